"""Bytes that cross a trust boundary: one frame, one canonical form, bounds checked before anything else.

A frame is

    "FN" | version 1 | kind length (1) | header length (4) | body length (8) | kind | header | body | SHA-256 (32)

with lengths little-endian. The header is canonical JSON: sorted keys, no spaces, ASCII, no NaN; any other form is
refused, so one value has one encoding and one digest. The digest detects accidents; signatures
(`fednode.protocol.envelope`) prove who wrote a frame.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from fednode.errors import PeerFault
from fednode.reasons import Reason
from fednode_crypto.canonical import canonical as canonical  # noqa: PLC0414 - part of this module

_PREFIX = struct.Struct("<2sBBIQ")
_MAGIC, _VERSION = b"FN", 1
_DIGEST_SIZE = 32
_HEX = re.compile(r"[0-9a-f]*")
MAX_HEADER = 1 << 16
MAX_BODY = 1 << 31
MAX_VALUES = 1 << 20
"""The most values in one JSON text, counted before parsing: each takes 60 to 100 bytes of memory but 2 of text."""

_REMEMBERED = 2048
"""The longest text whose fields are remembered: a round's spec comes with each of its requests."""

MAX_DEPTH = 16
"""The deepest nesting of objects and lists, so that any value that was read can also be written."""


def digest(domain: str, *parts: bytes) -> bytes:
    """Return SHA-256 over `domain` and each part with its length, so that no two lists of parts hash the same bytes."""
    state = hashlib.sha256()
    for part in (b"fednode/v1/" + domain.encode("ascii"), *parts):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


@dataclass(frozen=True, slots=True)
class Frame:
    """The content of a frame: a JSON header and a body."""

    kind: str
    header: "Fields"
    body: bytes


def pack(kind: str, header: Mapping[str, object], body: bytes = b"") -> bytes:
    """Return the frame's bytes. Raises `ValueError` if it exceeds the limits of every reader."""
    name, text = kind.encode("ascii"), canonical(header)
    if not 0 < len(name) < 256:
        raise ValueError(f"the kind of a frame must have 1 to 255 characters, not {len(name)}")
    if len(text) > MAX_HEADER or len(body) > MAX_BODY:
        raise ValueError(f"a {kind} frame of {len(text)} + {len(body)} bytes is over the limits; send it in parts")
    head = _PREFIX.pack(_MAGIC, _VERSION, len(name), len(text), len(body)) + name + text
    state = hashlib.sha256(head)
    state.update(body)
    return b"".join((head, body, state.digest()))


def unpack(kind: str, data: bytes, max_body: int = MAX_BODY) -> Frame:
    """Return the frame in `data` if it is whole, canonical, of this `kind`, and its body at most `max_body` bytes.

    Lengths are checked before anything is allocated. Raises `PeerFault`: "malformed", "oversize", "damaged" or
    "unexpected".
    """
    if len(data) < _PREFIX.size + _DIGEST_SIZE:
        raise PeerFault(Reason.MALFORMED, f"{len(data)} bytes are too few for a frame")
    magic, version, kind_size, header_size, body_size = _PREFIX.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise PeerFault(Reason.MALFORMED, "not a FedNode frame of version 1")
    if header_size > MAX_HEADER or body_size > max_body:
        raise PeerFault(
            Reason.OVERSIZE, f"a header of {header_size} and a body of {body_size} bytes, {max_body} at most"
        )
    if len(data) != _PREFIX.size + kind_size + header_size + body_size + _DIGEST_SIZE:
        raise PeerFault(Reason.MALFORMED, "the lengths in the frame do not match its size")
    if hashlib.sha256(memoryview(data)[:-_DIGEST_SIZE]).digest() != data[-_DIGEST_SIZE:]:
        raise PeerFault(Reason.DAMAGED, "the digest of the frame does not match")
    start = _PREFIX.size + kind_size
    # `kind` may come from a peer and be any text; the kind of a frame is ASCII
    if not kind.isascii() or data[_PREFIX.size : start] != kind.encode("ascii"):
        raise PeerFault(Reason.UNEXPECTED, f"the frame is not of kind {kind}")
    header = parse(data[start : start + header_size])
    return Frame(kind, header, data[start + header_size : -_DIGEST_SIZE])


def parse(text: bytes, most: int = MAX_HEADER) -> "Fields":
    """Return the fields of a canonical JSON object of at most `most` bytes, `MAX_VALUES` values and `MAX_DEPTH` levels.

    Raises `PeerFault`: "oversize" before anything is parsed, "malformed" for any other deviation.
    """
    return (_parse if len(text) <= _REMEMBERED else _parse.__wrapped__)(text, most)


@lru_cache(maxsize=256)
def _parse(text: bytes, most: int) -> "Fields":
    if len(text) > most or sum(map(text.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise PeerFault(Reason.OVERSIZE, f"{len(text)} bytes of JSON; at most {most} bytes and {MAX_VALUES} values")
    try:
        value = json.loads(text.decode("ascii"), parse_constant=_refuse_constant)
        same = isinstance(value, dict) and _is_shallow(value, MAX_DEPTH) and canonical(value) == text
    except (ValueError, RecursionError) as error:
        raise PeerFault(Reason.MALFORMED, "the header is not JSON") from error
    if not same:
        raise PeerFault(Reason.MALFORMED, "the header is not in canonical form")
    return Fields(value)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not allowed in canonical JSON")


def _is_shallow(value: object, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in inside if isinstance(one, dict | list))


class Fields:
    """Typed, read-only access to a peer's JSON object: any value of another type or out of bounds is a `PeerFault`."""

    __slots__ = ("_value",)

    def __init__(self, value: Mapping[str, object]) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"Fields({', '.join(sorted(self._value))})"

    def raw(self) -> Mapping[str, object]:
        """Return the parsed object, for a reader with its own checks."""
        return self._value

    def only(self, *names: str) -> "Fields":
        """Return self if it has exactly these names."""
        if set(self._value) != set(names):
            raise PeerFault(Reason.MALFORMED, f"the fields are {sorted(self._value)}, not {sorted(names)}")
        return self

    def text(self, name: str, longest: int = 128) -> str:
        """Return a string of 1 to `longest` printable characters."""
        value = self._value.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
            raise PeerFault(Reason.MALFORMED, f"{name} is not a text of 1 to {longest} printable characters")
        return value

    def integer(self, name: str, lowest: int, highest: int) -> int:
        """Return an integer in `lowest` .. `highest`."""
        value = self._value.get(name)
        if type(value) is not int or not lowest <= value <= highest:
            raise PeerFault(Reason.MALFORMED, f"{name} is not an integer from {lowest} to {highest}")
        return value

    def number(self, name: str, lowest: float, highest: float) -> float:
        """Return a finite float in `lowest` .. `highest`."""
        value = self._value.get(name)
        if type(value) is not float or not math.isfinite(value) or not lowest <= value <= highest:
            raise PeerFault(Reason.MALFORMED, f"{name} is not a number from {lowest} to {highest}")
        return value

    def octets(self, name: str, size: int) -> bytes:
        """Return exactly `size` bytes, written as lower-case hexadecimal."""
        value = self._value.get(name)
        if not isinstance(value, str) or len(value) != 2 * size or not _HEX.fullmatch(value):
            raise PeerFault(Reason.MALFORMED, f"{name} is not {size} bytes in hexadecimal")
        return bytes.fromhex(value)

    def fields(self, name: str) -> "Fields":
        """Return a nested object."""
        value = self._value.get(name)
        if not isinstance(value, dict):
            raise PeerFault(Reason.MALFORMED, f"{name} is not an object")
        return Fields(value)

    def rows(self, name: str, most: int) -> "list[Fields]":
        """Return a list of at most `most` nested objects."""
        value = self._value.get(name)
        if not isinstance(value, list) or len(value) > most or not all(isinstance(row, dict) for row in value):
            raise PeerFault(Reason.MALFORMED, f"{name} is not a list of at most {most} objects")
        return [Fields(row) for row in value]


def join_parts(parts: Mapping[str, bytes]) -> bytes:
    """Return named byte strings as one: a count, then each name and its bytes with their lengths, sorted by name."""
    pieces = [struct.pack("<I", len(parts))]
    for name in sorted(parts):
        label = name.encode("ascii")
        pieces += [struct.pack("<HQ", len(label), len(parts[name])), label, parts[name]]
    return b"".join(pieces)


def split_parts(data: bytes, most: int) -> dict[str, bytes]:
    """Undo `join_parts`, for at most `most` parts. Raises `PeerFault("malformed")`."""
    try:
        (count,) = struct.unpack_from("<I", data)
        if count > most:
            raise PeerFault(Reason.MALFORMED, f"{count} parts, {most} at most")
        parts: dict[str, bytes] = {}
        at = 4
        for _ in range(count):
            label_size, size = struct.unpack_from("<HQ", data, at)
            at += 10
            if at + label_size + size > len(data):
                raise PeerFault(Reason.MALFORMED, "a part extends beyond the end")
            parts[data[at : at + label_size].decode("ascii")] = data[at + label_size : at + label_size + size]
            at += label_size + size
    except (struct.error, UnicodeDecodeError) as error:
        raise PeerFault(Reason.MALFORMED, "the parts do not parse") from error
    if at != len(data) or len(parts) != count or list(parts) != sorted(parts):
        raise PeerFault(Reason.MALFORMED, "the parts are not in canonical form")
    return parts
