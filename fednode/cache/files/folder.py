"""The folder of a `FileBackend`: made, locked, and known again."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fednode.disk.locks import is_at, lock
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


def lock_folder(folder: Path, held: int) -> None:
    """Take the lock of the folder that `held` is. Raises `StoreError` where another has it, `OSError`."""
    if not lock(held):
        raise StoreError(
            f"the cache folder {folder} is in use by another process; wait for it to end or choose another folder"
        )


def require_same(folder: Path, held: int) -> None:
    """Return if the path still leads to the folder that is locked. Raises `StoreError`: another is not ours to use."""
    with spoken("find", folder):
        if is_at(held, folder):
            return
    raise StoreError(
        f"the cache folder {folder} was moved or replaced while it was in use; put it back, or close this cache and "
        "open it again"
    )
