"""An append-only file that one process holds at a time: a line is on the disk if and only if `append` returned."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from fednode.disk.atomic import sync_folder
from fednode.disk.locks import is_at, lock
from fednode.errors import StoreError


class Journal:
    """The file behind a ledger: mode 0600, an exclusive lock while open, O_APPEND, every change fsynced.

    The caller passes the size that it expects the file to have; another size is refused. For one thread; POSIX only
    (flock).
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor
        self._broken = False

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or create the file and lock it. Raises StoreError if that fails or another process holds the lock."""
        with _store_errors(f"ledger {path} cannot be opened", "; choose another run folder"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            with _store_errors(f"ledger {path} cannot be locked", "; put it on a local disk"):
                free = lock(descriptor)
            if not free:
                raise StoreError(
                    f"ledger {path} is in use by another process; wait for that run to end or choose another run folder"
                )
        except StoreError:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    def read(self) -> bytes:
        """Return the whole content of the file."""
        descriptor, parts = self._open_descriptor(), []
        left, at = os.fstat(descriptor).st_size, 0
        with _store_errors(f"ledger {self._path} cannot be read"):
            while left > 0 and (part := os.pread(descriptor, left, at)):
                parts.append(part)
                left, at = left - len(part), at + len(part)
        return b"".join(parts)

    def append(self, line: bytes, at: int) -> None:
        """Write `line` at offset `at`, the end of the file, and fsync.

        Raises StoreError on a disk error, with the file as it was before, and if somebody else changed, moved or
        replaced the file. After a failed fsync or repair the content of the disk is unknown, so nothing more is written
        until the file is opened again.
        """
        descriptor = self._open_descriptor()
        self._require_undisturbed(descriptor, at)
        written = False
        try:
            _write_all(descriptor, line)
            written = True
            os.fsync(descriptor)
        except BaseException as error:
            self._undo(descriptor, at)
            self._broken = self._broken or written
            if isinstance(error, OSError):
                raise StoreError(
                    f"ledger {self._path} could not be written: {error.strerror}; nothing was charged, "
                    "make room and try again"
                ) from error
            raise

    def cut(self, size: int) -> None:
        """Cut the file to `size` bytes, and fsync. Raises StoreError on a disk error."""
        descriptor = self._open_descriptor()
        with _store_errors(f"ledger {self._path} cannot be repaired"):
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)

    def sync_folder(self) -> None:
        """Make the file's name as durable as its content. Raises StoreError on a disk error."""
        with _store_errors(f"the folder of ledger {self._path} cannot be synced"):
            sync_folder(self._path.parent)

    def close(self) -> None:
        """Release the lock; closing twice is allowed."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise ValueError("the ledger is closed")
        return self._descriptor

    def _require_undisturbed(self, descriptor: int, size: int) -> None:
        if self._broken:
            raise StoreError(
                f"ledger {self._path} failed before and accepts no more charges; start again to have it checked"
            )
        mine = os.fstat(descriptor)
        try:
            in_place = is_at(descriptor, self._path)
        except OSError:
            in_place = False
        if not in_place:
            raise StoreError(
                f"ledger {self._path} was moved, replaced or deleted while in use; put it back and start again"
            )
        if stat.S_ISREG(mine.st_mode) and mine.st_size != size:
            raise StoreError(f"ledger {self._path} was changed while in use; start again to have it checked")

    def _undo(self, descriptor: int, size: int) -> None:
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        except OSError:
            self._broken = True


@contextmanager
def _store_errors(what: str, advice: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror}{advice}") from error


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
