"""Folders that live as long as the process that made them: each is held by a lock that the kernel frees, however the
process ends."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR

from fednode.errors import ConfigError, StoreError


@contextmanager
def held_folder(prefix: str) -> Iterator[Path]:
    """A new private folder in the temporary folder, removed at the end of the block.

    `sweep_unheld` leaves it alone for as long as this process, or one forked from it, is there: in whichever pid
    namespace either of them is, and from the first moment on. POSIX only (flock), local disks only. Raises
    `StoreError`.
    """
    folder, lock = _made(prefix)
    owner = os.getpid()
    try:
        yield folder
    finally:
        # a forked child that leaves the block leaves the folder to its parent
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def held_at(folder: Path) -> Iterator[Path]:
    """As `held_folder`, but this very folder: new, or empty. Raises `ConfigError` where it has anything in it."""
    lock, owner = _taken(folder), os.getpid()
    try:
        yield folder
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep_unheld(
    prefix: str, place: Path | None = None, inner: str = "", ending: Callable[[Path], None] | None = None
) -> None:
    """Remove this user's folders of this prefix in `place` (None: the temporary folder) that no process holds.

    One whose folder `inner` somebody holds stays. Before a folder goes, `ending` may end what still works in it. What
    cannot be locked or removed stays.
    """
    for folder in (place or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        with suppress(OSError):
            found = folder.lstat()
            if not S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            lock = _locked(folder)
            if lock is None:
                continue
            try:
                if not inner or not _is_held(folder / inner):
                    (ending or _nothing)(folder)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _nothing(_: Path) -> None:
    return None


def _is_held(folder: Path) -> bool:
    lock = _locked(folder)
    if lock is None:
        return folder.exists()
    os.close(lock)
    return False


def _taken(folder: Path) -> int:
    try:
        while True:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = _locked(folder)
            if lock is None and folder.exists():
                raise ConfigError(f"{folder} is in use by another run; name another folder as key-root")
            if lock is None:
                # a sweep took it in between
                continue
            if any(folder.iterdir()):
                os.close(lock)
                raise ConfigError(
                    f"{folder} is not empty, and goes at the end of a run with all that is in it; name a folder that "
                    "is not there yet as key-root"
                )
            return lock
    except OSError as error:
        raise StoreError(
            f"could not make and lock {folder}: {error.strerror}; let key-root or TMPDIR name a folder on a local disk"
        ) from error


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
