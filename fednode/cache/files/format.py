"""The files of `FileBackend`: a fixed part (`_FIXED`), the key, a SHA-256 seal over both, and the encoded value.

A file's name is the SHA-256 of its key and a running number. Of two files of a key the higher number counts, unless
that file is marked as withdrawn. Seal and digest find damage, not forgery: updates are sealed before they come here.
"""

import os
import re
import stat
import struct
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, Self

from fednode.cache.backend import Value
from fednode.cache.values.codec import decode

VALUE_NAME: Final = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")

_MAGIC: Final = b"FNvalue2"
_WITHDRAWN: Final = b"FNwithdrawn"
_FIXED: Final = struct.Struct("<8sQddIQQB32s")
"""Magic with version, number, ttl and expiry (s, infinite for none), bytes of the key, of the encoded value and of the
value as it counts against limits, 1 if pinned, SHA-256 of the encoded value."""
_SEAL: Final = 32


class DamagedFile(Exception):
    """The file is not what was written under its name."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The part of a value file before the value."""

    key: str
    number: int
    ttl: float
    expires_at: float
    """Wall clock, since readings of a monotonic clock mean nothing after a restart."""
    encoded: int
    """Bytes of the value in the file."""
    size: int
    """Bytes that the value counts against limits."""
    pinned: bool
    digest: bytes

    @property
    def name(self) -> str:
        """The file's name."""
        return _name(self.key.encode("utf-8", "surrogatepass"), self.number)

    def pack(self) -> bytes:
        """The bytes before the value."""
        key = self.key.encode("utf-8", "surrogatepass")
        lengths = (len(key), self.encoded, self.size, self.pinned)
        fixed = _FIXED.pack(_MAGIC, self.number, self.ttl, self.expires_at, *lengths, self.digest)
        return fixed + key + sha256(fixed + key).digest()

    @classmethod
    def read(cls, file: BinaryIO, name: str) -> Self:
        """Read the header of the file called `name`, up to its value. Raises `DamagedFile`, `OSError`."""
        fixed = file.read(_FIXED.size)
        if len(fixed) != _FIXED.size or not fixed.startswith(_MAGIC):
            raise DamagedFile
        _, number, ttl, expires_at, key_size, encoded, size, pinned, digest = _FIXED.unpack(fixed)
        # before a damaged length is used to read
        if os.fstat(file.fileno()).st_size != _FIXED.size + key_size + _SEAL + encoded:
            raise DamagedFile
        key, seal = file.read(key_size), file.read(_SEAL)
        if sha256(fixed + key).digest() != seal or _name(key, number) != name:
            raise DamagedFile
        return cls(key.decode("utf-8", "surrogatepass"), number, ttl, expires_at, encoded, size, pinned == 1, digest)


def open_value(path: Path) -> BinaryIO:
    """Open a value file for reading. Raises `DamagedFile`, without waiting, for a pipe or device; `OSError`."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller's
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise DamagedFile
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def stem_of(name: str) -> str:
    """The part of a file's name that all files of its key share."""
    return name[:64]


def number_of(name: str) -> int:
    """The number in a value file's name."""
    return int(name[65:], 16)


def withdraw(path: Path) -> None:
    """Mark a file that cannot be removed as one that does not count. Raises `OSError`."""
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(_WITHDRAWN)
        file.flush()
        os.fsync(file.fileno())


def is_withdrawn(path: Path) -> bool:
    """Whether `withdraw` has marked it. Raises `OSError`."""
    return path.stat().st_size == len(_WITHDRAWN) and path.read_bytes() == _WITHDRAWN


def read_value(file: BinaryIO, name: str) -> Value:
    """The value in the file called `name`. Raises `DamagedFile`, `OSError`; for an undamaged file as `decode` does."""
    header = FileHeader.read(file, name)
    encoded = file.read(header.encoded)
    if len(encoded) != header.encoded or sha256(encoded).digest() != header.digest:
        raise DamagedFile
    return decode(encoded)


def _name(key: bytes, number: int) -> str:
    return f"{sha256(key).hexdigest()}.{number:016x}"
