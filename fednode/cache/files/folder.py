"""The folder of a `FileBackend`: made, locked, and known again."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from fednode.disk.atomic import sync_folder
from fednode.errors import StoreError


@contextlib.contextmanager
def spoken(verb: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` into a `StoreError` with a sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"could not {verb} {path}: {error.strerror or error}; check the disk and who may use the folder"
        ) from error


def make_private(folder: Path) -> None:
    """Make `folder` and what is missing above it, durably, for this user alone. Raises `OSError`."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for place in missing:
        sync_folder(place.parent)


def open_folder(folder: Path) -> int:
    """A descriptor of the folder itself: unlike a file in it, nobody deletes it by mistake. Raises `OSError`."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def lock_folder(folder: Path, held: int) -> None:
    """Take the lock of the folder that `held` is. Raises `StoreError` where another has it, `OSError`."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreError(
            f"the cache folder {folder} is in use by another process; wait for it to end or choose another folder"
        ) from error


def unlock_folder(held: int) -> None:
    """Let the lock go, whoever else has the descriptor."""
    fcntl.flock(held, fcntl.LOCK_UN)


def require_same(folder: Path, held: int) -> None:
    """Return if the path still leads to the folder that is locked. Raises `StoreError`: another is not ours to use."""
    with spoken("find", folder):
        if os.path.samestat(os.fstat(held), folder.stat()):
            return
    raise StoreError(
        f"the cache folder {folder} was moved or replaced while it was in use; put it back, or close this cache and "
        "open it again"
    )
