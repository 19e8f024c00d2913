"""Folders that live as long as the process that made them: each is held by a lock that the kernel frees, however the
process ends."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR

from fednode.errors import StoreError


@contextmanager
def held_folder(prefix: str) -> Iterator[Path]:
    """A new private folder in the temporary folder, removed at the end of the block.

    `sweep_unheld` leaves it alone for as long as this process, or one forked from it, is there: in whichever pid
    namespace either of them is, and from the first moment on. POSIX only (flock), local disks only. Raises
    `StoreError`.
    """
    folder, lock = _made(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep_unheld(prefix: str) -> None:
    """Remove this user's folders of this prefix that no process holds. What cannot be locked or removed stays."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            found = folder.lstat()
            if not S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            lock = _locked(folder)
            if lock is None:
                continue
            try:
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _made(prefix: str) -> tuple[Path, int]:
    try:
        # a sweep may come between the making of a folder and its lock: what it takes is not used
        while True:
            folder = Path(tempfile.mkdtemp(prefix=prefix))
            lock = _locked(folder)
            if lock is not None:
                return folder, lock
    except OSError as error:
        raise StoreError(
            f"could not make and lock a folder in {tempfile.gettempdir()}: {error.strerror}; free some space there, or "
            "let TMPDIR name a folder on a local disk"
        ) from error


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the lock of the folder at this very path, or None if another has it or it is gone."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.lstat(folder)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None
