"""One process at a time: what a member checks in its record and what it then writes there are one step."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from fednode.disk.locks import locked
from fednode.errors import StoreError
from fednode_clients.keyfolder.folder import KeyFolder


@contextmanager
def exclusive(folder: KeyFolder) -> Iterator[None]:
    """Wait for the lock of this key folder and hold it for the block. Do not nest: the inner block would wait for ever.

    Flower may run two messages of a member at once, each in its own process; without the lock both would find the same
    round unopened. What a process that died left half written is removed first. Raises `StoreError`.
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
