"""Files that are whole or absent: written to a temporary file, fsynced, renamed."""

import contextlib
import os
import re
import secrets
from pathlib import Path

from fednode.errors import StoreError

_BLOCK = 4096
_TEMP_NAME = re.compile(r"\.(.+)\.[0-9a-f]{8}", re.DOTALL)


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write `data` to `path`: a reader, or a crash, sees all of it or nothing. On disk when this returns.

    Raises `StoreError` with the operating system's reason; the earlier file at `path` is then still there.
    """
    temp = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            _write_synced(temp, data, mode)
            temp.replace(path)
            sync_folder(path.parent)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temp.unlink()
    except OSError as error:
        what = "free some space or choose another folder" if path.parent.exists() else "make the folder first"
        raise StoreError(f"could not write {path}: {error.strerror or error}; {what}") from error


def temp_target(name: str) -> str:
    """The file name that `write_whole` was writing if `name` is that of its temporary file, else ""."""
    found = _TEMP_NAME.fullmatch(name)
    return found[1] if found else ""


def _write_synced(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def append_line(path: Path, line: bytes, mode: int = 0o600) -> None:
    """Append one line and fsync before returning.

    An incomplete last line, left by a crash, is removed first. Raises `StoreError`, with the file's complete lines as
    they were; `ValueError` if `line` holds a newline.
    """
    if b"\n" in line:
        raise ValueError("a line must not hold a newline")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, mode)
        try:
            before = _cut_torn_line(descriptor)
            try:
                if os.write(descriptor, line + b"\n") != len(line) + 1:
                    raise OSError("the disk took only a part of the line")
                os.fsync(descriptor)
                if before == 0:
                    sync_folder(path.parent)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, before)
                raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(
            f"could not append to {path}: {error.strerror or error}; free some space and start again"
        ) from error


def _cut_torn_line(descriptor: int) -> int:
    """Remove an incomplete last line and return the size of the file."""
    size = end = os.fstat(descriptor).st_size
    whole = 0
    while end > 0 and whole == 0:
        start = max(0, end - _BLOCK)
        whole = start + 1 + found if (found := os.pread(descriptor, end - start, start).rfind(b"\n")) >= 0 else 0
        end = start
    if whole < size:
        os.ftruncate(descriptor, whole)
    return whole


def sync_folder(folder: Path) -> None:
    """Make a rename or a new file in `folder` outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
