"""Byte forms around SEAL objects: protobuf fields (TenSEAL's outer form) and SEAL's own 16-byte header.

Only bytes that our own TenSEAL wrote come here, never a peer's. Another form than expected means another version of
TenSEAL: RuntimeError. Tested with TenSEAL 0.3.18.
"""

import struct
from dataclasses import dataclass
from typing import Final

import zstandard

_MAGIC: Final = 0xA15E
_HEADER: Final = struct.Struct("<HBBBBHQ")
_STORED, _ZSTD = 0, 2
_VARINT, _FIXED64, _BYTES = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Field:
    """One protobuf field as it stands in a message: number, wire type, and its bytes (a varint's included)."""

    number: int
    wire: int
    content: bytes


def _unexpected() -> RuntimeError:
    return RuntimeError("TenSEAL wrote bytes of an unknown form: install a tenseal that FedNode was tested with")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varint_end(message: bytes, at: int) -> int:
    while at < len(message) and message[at] & 128:
        at += 1
    if at >= len(message):
        raise _unexpected()
    return at + 1


def _varint_value(content: bytes) -> int:
    return sum((byte & 127) << (7 * i) for i, byte in enumerate(content))


def read_fields(message: bytes) -> list[Field]:
    """Return the fields of a protobuf message, in order."""
    found, at = [], 0
    while at < len(message):
        end = _varint_end(message, at)
        tag = _varint_value(message[at:end])
        number, wire, at = tag >> 3, tag & 7, end
        if wire == _VARINT:
            end = _varint_end(message, at)
        elif wire == _FIXED64:
            end = at + 8
        elif wire == _BYTES:
            start = _varint_end(message, at)
            at, end = start, start + _varint_value(message[at:start])
        else:
            raise _unexpected()
        if end > len(message):
            raise _unexpected()
        found.append(Field(number, wire, message[at:end]))
        at = end
    return found


def write_fields(fields: list[Field]) -> bytes:
    """Return the message with these fields; undoes `read_fields`."""
    out = bytearray()
    for field in fields:
        out += _varint(field.number << 3 | field.wire)
        if field.wire == _BYTES:
            out += _varint(len(field.content))
        out += field.content
    return bytes(out)


def bytes_field(number: int, content: bytes) -> Field:
    """Return a field of bytes (or of an embedded message)."""
    return Field(number, _BYTES, content)


def only(fields: list[Field], number: int) -> bytes:
    """Return the content of the one field of that number."""
    contents = [f.content for f in fields if f.number == number]
    if len(contents) != 1:
        raise _unexpected()
    return contents[0]


def open_seal(stored: bytes, size: int) -> tuple[bytes, bytes]:
    """Return SEAL's header and the body behind it, unpacked, which must have exactly `size` bytes; reads no more."""
    if len(stored) < _HEADER.size:
        raise _unexpected()
    magic, length, _major, _minor, mode, _reserved, total = _HEADER.unpack_from(stored)
    if magic != _MAGIC or length != _HEADER.size or total != len(stored) or mode not in (_STORED, _ZSTD):
        raise _unexpected()
    body = stored[_HEADER.size :]
    if mode == _ZSTD:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            body = reader.read(size + 1)
    if len(body) != size:
        raise _unexpected()
    return stored[: _HEADER.size], body


def close_seal(header: bytes, body: bytes) -> bytes:
    """Return `body`, stored as it is, behind a header of the same version as `header`."""
    magic, length, major, minor, _mode, reserved, _total = _HEADER.unpack(header)
    return _HEADER.pack(magic, length, major, minor, _STORED, reserved, _HEADER.size + len(body)) + body
