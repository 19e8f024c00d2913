"""A value's bytes in pieces, under a manifest: reading gives all of it, or `Damaged`.

A record is the manifest (`_FIXED` and a SHA-256) and, if the value fits in one piece, the value. The digest covers the
manifest, the key and the value, so a record under another key and a piece of another write are found. It finds damage,
not forgery: updates are sealed before they come here.
"""

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

from fednode.cache.backend import check_key

PIECE_BYTES: Final = 1 << 20
"""The default size of a piece: larger ones make a server stall, and 16 MB in one command take 7 times as long."""
GENERATION_BYTES: Final = 16
MAX_PIECES: Final = 1 << 16
MAX_PIECE_BYTES: Final = (1 << 32) - 1
"""The largest size that fits the manifest."""

_MAGIC: Final = b"FNpiece1"
_FIXED: Final = struct.Struct(f"<8sQIId{GENERATION_BYTES}s")
"""Magic with version, bytes of the value, number of pieces, bytes of a piece, expiry (s, wall clock), generation."""
_DIGEST: Final = 32
HEAD_BYTES: Final = _FIXED.size + _DIGEST
"""Bytes of a record before the value."""


class Damaged(Exception):
    """The bytes are not what was stored, or only a part of it: a miss."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one write stored. `count` is 0 if the value is in the record itself."""

    size: int
    count: int
    piece_bytes: int
    expires_at: float
    """Seconds since 1970 by the writer's clock; infinite for no expiry."""
    generation: bytes
    """Drawn anew for each write and part of the pieces' names, so that pieces of two writes never mix."""
    digest: bytes

    @classmethod
    def read(cls, record: bytes, limit: int) -> Self:
        """The manifest at the start of `record`. Raises `Damaged`, also for a value over `limit` bytes."""
        if len(record) < HEAD_BYTES or not record.startswith(_MAGIC):
            raise Damaged
        _, size, count, piece_bytes, expires_at, generation = _FIXED.unpack_from(record)
        wanted = _pieces_of(size, piece_bytes) if piece_bytes else -1
        if size > limit or count != wanted or count > MAX_PIECES or math.isnan(expires_at):
            raise Damaged
        return cls(size, count, piece_bytes, expires_at, generation, record[_FIXED.size : HEAD_BYTES])

    @property
    def lengths(self) -> tuple[int, ...]:
        """The bytes of each piece, in order; () if the value is in the record."""
        return tuple(
            min(self.piece_bytes, self.size - start)
            for start in range(0, self.count * self.piece_bytes, self.piece_bytes)
        )

    def join(self, key: bytes, pieces: Sequence[bytes]) -> bytes:
        """The value, from its pieces in order. Raises `Damaged` if one is missing or changed."""
        expected = self.lengths or (self.size,)
        if len(pieces) != len(expected) or any(
            len(one) != length for one, length in zip(pieces, expected, strict=True)
        ):
            raise Damaged
        if _digest(self._fixed(), key, pieces) != self.digest:
            raise Damaged
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def inline(self, record: bytes, key: bytes) -> bytes:
        """The value in `record` after this manifest. Raises `Damaged`."""
        return self.join(key, [record[HEAD_BYTES:]])

    def _fixed(self) -> bytes:
        return _FIXED.pack(_MAGIC, self.size, self.count, self.piece_bytes, self.expires_at, self.generation)


@dataclass(frozen=True, slots=True)
class Cut:
    """A value ready to be stored: its pieces, if it is large, and its record, which is written last."""

    manifest: Manifest
    record: bytes
    pieces: tuple[memoryview, ...]


def cut(key: bytes, data: bytes, piece_bytes: int, generation: bytes, expires_at: float = math.inf) -> Cut:
    """Cut `data` into pieces of `piece_bytes`, or put it in the record if one is enough. Pieces are views of `data`."""
    count = _pieces_of(len(data), piece_bytes)
    if count > MAX_PIECES:
        raise ValueError(f"{len(data)} bytes make {count} pieces, over {MAX_PIECES}; choose larger pieces")
    fixed = _FIXED.pack(_MAGIC, len(data), count, piece_bytes, expires_at, generation)
    digest = _digest(fixed, key, [data])
    view = memoryview(data)
    pieces = tuple(view[start : start + piece_bytes] for start in range(0, count * piece_bytes, piece_bytes))
    manifest = Manifest(len(data), count, piece_bytes, expires_at, generation, digest)
    return Cut(manifest, fixed + digest + (b"" if count else data), pieces)


def key_bytes(key: str) -> bytes:
    """`key` as bytes, lone surrogates included. Raises as `check_key` does."""
    check_key(key)
    return key.encode("utf-8", "surrogatepass")


def encoded_limit(value_bytes: int) -> int:
    """The most bytes that an encoded value of `value_bytes` can have: escapes in text make six of one."""
    return 6 * value_bytes + 4096


def check_piece_bytes(piece_bytes: int, value_bytes: int) -> None:
    """Raise `ValueError` unless a manifest can describe a value of `value_bytes` in such pieces."""
    if type(piece_bytes) is not int or piece_bytes > MAX_PIECE_BYTES:
        raise ValueError(f"pieces of {piece_bytes!r} bytes; give a whole number, {MAX_PIECE_BYTES} at most")
    if piece_bytes < 1 or _pieces_of(encoded_limit(value_bytes), piece_bytes) > MAX_PIECES:
        raise ValueError(
            f"pieces of {piece_bytes} bytes are too small for values of {value_bytes} bytes; "
            f"give at least {-(-encoded_limit(value_bytes) // MAX_PIECES)}"
        )


def _pieces_of(size: int, piece_bytes: int) -> int:
    return 0 if size <= piece_bytes else -(-size // piece_bytes)


def _digest(fixed: bytes, key: bytes, pieces: Iterable[bytes]) -> bytes:
    running = sha256(fixed + len(key).to_bytes(8, "little") + key)
    for piece in pieces:
        running.update(piece)
    return running.digest()
