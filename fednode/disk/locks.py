"""Locks on open files and folders. The kernel frees a lock however its process ends.

POSIX only (flock), local disks only. A lock belongs to the open file: it goes with the last descriptor, and a forked
child shares the lock of its parent.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def open_folder(folder: Path, flags: int = 0) -> int:
    """Return a descriptor of the folder itself, to lock: unlike a lock file, it is not deleted by mistake.

    Raises `OSError`.
    """
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags)


def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file or folder. Return False if `wait` is False and another holds a lock that excludes this one.

    Any number may share a lock; an exclusive one excludes all others. Raises `OSError` where the disk has no locks.
    """
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, how if wait else how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock, also for a forked child that has a copy of the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextmanager
def locked(descriptor: int, *, shared: bool = False) -> Iterator[None]:
    """Wait for the lock, hold it for the block, then close `descriptor`. Raises `OSError`."""
    try:
        lock(descriptor, shared=shared, wait=True)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def try_locked(descriptor: int) -> Iterator[bool]:
    """As `locked`, without waiting: yields False if another holds the lock."""
    try:
        yield lock(descriptor)
    finally:
        os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether `path` still leads to the open file or folder. Raises `OSError`."""
    return os.path.samestat(os.fstat(descriptor), path.stat())
