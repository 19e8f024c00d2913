"""One process at a time: a member checks its record and writes to it in one step."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from fednode.disk.locks import locked
from fednode.errors import StoreError
from fednode_clients.keyfolder.folder import KeyFolder


@contextmanager
def exclusive(folder: KeyFolder) -> Iterator[None]:
    """Wait for the lock of this key folder and hold it for the block. Not re-entrant: a nested block deadlocks.

    Flower may run two messages of a member at once, each in its own process; without the lock both would find the same
    round unopened. First removes half-written files of dead processes. Raises `StoreError`.
    """
    path = folder.path / "turn.lock"
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)))
        except OSError as error:
            raise StoreError(
                f"could not lock {path}: {error.strerror}; make the folder writable, on a local disk"
            ) from error
        folder.sweep()
        yield
