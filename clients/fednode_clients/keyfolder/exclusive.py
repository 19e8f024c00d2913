"""One at a time: what a member checks in its record and what it then writes there are one step."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from fednode.disk.locks import locked
from fednode.errors import StoreError
from fednode_clients.keyfolder.folder import KeyFolder


@contextmanager
def exclusive(folder: KeyFolder) -> Iterator[None]:
    """Wait until no other thread or process works on this key folder, and keep them out for the block.

    Flower may run two of a member's messages side by side, each in a process of its own: without this, both would find
    the round unopened. A process that dies lets go; what it left half written is removed before the block. Not for
    nesting: a second block inside the first waits for ever. POSIX only (flock), local disks only. Raises `StoreError`
    if the folder cannot be locked.
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
