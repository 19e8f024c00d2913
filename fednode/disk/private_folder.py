"""Folders that only this user can enter."""

import os
from pathlib import Path
from stat import S_ISDIR

from fednode.disk.atomic import sync_folder
from fednode.errors import ConfigError, StoreError


def make_private(folder: Path, remedy: str = "choose another folder") -> None:
    """Make `folder` and the missing folders above it durably, and set its own mode to 0700.

    A symbolic link to a folder is followed. Raises `StoreError` with `remedy`, for instance if the folder belongs to
    another user.
    """
    try:
        missing = [place for place in (folder, *folder.parents) if not place.exists()]
        for place in reversed(missing):
            place.mkdir(mode=0o700 if place == folder else 0o777, exist_ok=True)
            sync_folder(place.parent)
        folder.chmod(0o700)
    except OSError as error:
        raise StoreError(f"could not make {folder} private: {error.strerror}; {remedy}") from error


def claim_private(folder: Path, remedy: str) -> None:
    """As `make_private`, for a folder whose name others can guess: a symbolic link is refused, never followed."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(f"could not make {folder} private: {error.strerror}; {remedy}") from error
    require_private(folder, remedy)


def require_private(folder: Path, remedy: str) -> None:
    """Return if `folder` is this user's, in a folder of this user or of root, with mode 0700; or does not exist.

    For a folder whose name others can guess: they may have made it first. Raises `ConfigError` with `remedy`.
    """
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"could not check {folder}: {error.strerror}; {remedy}") from error
    if not S_ISDIR(found.st_mode):
        fault = "is not a folder"
    elif found.st_uid != os.getuid() or folder.parent.stat().st_uid not in (os.getuid(), 0):
        fault = "belongs to another user"
    elif found.st_mode & 0o077:
        fault = "is open to other users"
    else:
        return
    raise ConfigError(f"{folder} {fault}, so keys in it are not secret; remove it, or {remedy}")
