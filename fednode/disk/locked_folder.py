"""Private folders that live as long as the process that made them. Each is locked, so that later processes can tell a
folder in use from one that a killed process left."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR

from fednode.disk.locks import is_at, lock, open_folder
from fednode.errors import ConfigError, StoreError


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new private folder in the system's temporary folder, locked for the block and removed after it.

    `remove_abandoned` leaves it alone while this process, or a child forked from it, lives, also in another pid
    namespace. Raises `StoreError`.
    """
    with _removed_after(*_make(prefix)) as folder:
        yield folder


@contextmanager
def temporary_folder_at(folder: Path) -> Iterator[Path]:
    """As `temporary_folder`, at this path. Raises `ConfigError` if the folder is in use or not empty."""
    with _removed_after(folder, _take(folder)):
        yield folder


def remove_abandoned(
    prefix: str, place: Path | None = None, inner: str = "", before: Callable[[Path], None] | None = None
) -> None:
    """Remove this user's folders with this prefix in `place` that no process has locked.

    `place` None is the system's temporary folder. A folder whose subfolder `inner` is locked stays. `before` is called
    with each folder before it is removed. What cannot be locked or removed stays.
    """
    for folder in (place or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        with suppress(OSError):
            found = folder.lstat()
            if not S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            held = _lock(folder)
            if held is None:
                continue
            try:
                if not inner or not _is_locked(folder / inner):
                    if before is not None:
                        before(folder)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)


@contextmanager
def _removed_after(folder: Path, held: int) -> Iterator[Path]:
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _make(prefix: str) -> tuple[Path, int]:
    try:
        while True:
            # another process may remove the folder between mkdtemp and the lock: then make another
            folder = Path(tempfile.mkdtemp(prefix=prefix))
            held = _lock(folder)
            if held is not None:
                return folder, held
    except OSError as error:
        raise StoreError(
            f"could not make and lock a folder in {tempfile.gettempdir()}: {error.strerror}; free some space there, or "
            "set TMPDIR to a folder on a local disk"
        ) from error


def _take(folder: Path) -> int:
    try:
        while True:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            held = _lock(folder)
            if held is not None:
                break
            if folder.exists():
                raise ConfigError(f"{folder} is in use by another run; set key-root to another folder")
            # another process removed it between mkdir and the lock: make it again
    except OSError as error:
        raise StoreError(
            f"could not make and lock {folder}: {error.strerror}; set key-root or TMPDIR to a folder on a local disk"
        ) from error
    if any(folder.iterdir()):
        os.close(held)
        raise ConfigError(f"{folder} is not empty, and the run removes it at its end; set key-root to a new folder")
    return held


def _is_locked(folder: Path) -> bool:
    held = _lock(folder)
    if held is None:
        return folder.exists()
    os.close(held)
    return False


def _lock(folder: Path) -> int | None:
    """The locked descriptor of the folder at this path; None if another holds the lock or it is gone."""
    try:
        # a link is not followed: what is behind it would be removed at the end
        descriptor = open_folder(folder, os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        # the path may lead to another folder by the time the lock is ours
        if lock(descriptor) and is_at(descriptor, folder):
            return descriptor
    except FileNotFoundError:
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
