"""An append-only file that several processes may write in turn, and the note of its head beside it.

A line is on the disk if and only if `append` returned. The note says how long the file was and which line was its last
when a charge was last confirmed: a file that is shorter, or ends otherwise there, lost what it had confirmed.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fednode.disk.atomic import write_whole
from fednode.disk.locks import locked, open_folder
from fednode.errors import StoreError
from fednode.privacy.checks import exact_keys, whole, words
from fednode_crypto.canonical import canonical

HEAD_SUFFIX = ".head"


@dataclass(frozen=True, slots=True)
class ConfirmedHead:
    """How many bytes of a ledger were confirmed, and the hash of the last line in them."""

    size: int
    head: str


def head_file(path: Path) -> Path:
    """The file beside a ledger that holds its head: ledger.head beside ledger.jsonl."""
    return path.with_suffix(HEAD_SUFFIX)


class Journal:
    """The file behind a ledger: mode 0600, every change fsynced and made under a lock of its folder.

    The folder's lock, unlike one of the file, also covers making the file, and is held for one charge only. The caller
    passes the size that it expects the file to have; another size is refused. For one thread; POSIX only (flock).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._broken = ""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for the folder's lock and hold it for the block. Raises StoreError where there is none."""
        with _store_errors(f"the folder of ledger {self.path} cannot be locked", "; put it on a local disk"):
            descriptor = open_folder(self.path.parent)
        with locked(descriptor):
            yield

    def read(self, at: int = 0) -> bytes | None:
        """Return the content from offset `at` on; None if there is no file. Raises StoreError if it is shorter."""
        if self._broken:
            raise StoreError(f"ledger {self.path} {self._broken}")
        with _store_errors(f"ledger {self.path} cannot be read"), suppress(FileNotFoundError):
            return self._tail(at)
        return None

    def create(self, line: bytes) -> None:
        """Make the file with its first line, whole or not at all."""
        write_whole(self.path, line)

    def append(self, line: bytes, at: int) -> None:
        """Write `line` at offset `at`, the end of the file, and fsync.

        Raises StoreError on a disk error, with the file as it was before. After a failed fsync or repair the content
        of the disk is unknown, so nothing more is written until the file is opened again.
        """
        written = False
        with _store_errors(
            f"ledger {self.path} could not be written", "; nothing was charged, make room and try again"
        ):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_size != at:
                    raise StoreError(f"ledger {self.path} was changed without its lock; start again to have it checked")
                try:
                    _write_all(descriptor, line)
                    written = True
                    os.fsync(descriptor)
                except BaseException:
                    if not self._undone(descriptor, at) or written:
                        self._broken = "failed before and takes no more charges; start again to have it checked"
                    raise
            finally:
                os.close(descriptor)

    def cut(self, size: int) -> None:
        """Cut the file to `size` bytes, and fsync. Raises StoreError on a disk error."""
        with _store_errors(f"ledger {self.path} cannot be repaired"), self.path.open("r+b") as file:
            os.ftruncate(file.fileno(), size)
            os.fsync(file.fileno())

    def confirmed(self) -> ConfirmedHead | None:
        """What the head file says; None if there is none. Raises StoreError for one that was damaged."""
        place = head_file(self.path)
        try:
            found = exact_keys("the head", json.loads(place.read_bytes()), frozenset({"head", "size"}))
            return ConfirmedHead(whole("size", found["size"], 1, 1 << 53), words("head", found["head"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StoreError(f"{place} is damaged or cannot be read: {error}") from error

    def confirm(self, now: ConfirmedHead) -> None:
        """Note the head: what is before it is never given up again. Raises StoreError."""
        write_whole(head_file(self.path), canonical({"head": now.head, "size": now.size}) + b"\n")

    def close(self) -> None:
        """Take no more charges."""
        self._broken = self._broken or "is closed; open it again"

    def _tail(self, at: int) -> bytes:
        if self.path.exists() and not self.path.is_file():
            raise StoreError(f"ledger {self.path} is no regular file; choose another place")
        with self.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < at:
                raise StoreError(f"ledger {self.path} was cut while in use; start again to have it checked")
            file.seek(at)
            return file.read()

    def _undone(self, descriptor: int, size: int) -> bool:
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        except OSError:
            return False
        return True


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
