"""Values and their form as bytes, which is never pickle.

The form is `_HEADER` (magic with version, bytes of the tree), a JSON tree, and the raw bytes of its leaves in order.
Each raw leaf begins at a multiple of `_ALIGN`. In the tree null, booleans, numbers and text are themselves, an object
is a dict, and an array begins with its tag: "l" list, "t" tuple, "b" bytes, "a" array, "T" tensor, "i" an integer
beyond 64 bits (hexadecimal), "f" a float that is not finite (its 8 bytes, hexadecimal).
"""

import json
import math
import re
import struct
from typing import Any, Final, NoReturn

import numpy as np

from fednode.cache.backend import TooLarge, Value
from fednode.cache.values.freeze import (
    DEPTH,
    DIMENSIONS,
    NODES,
    TENSORS,
    Measure,
    seen,
    size_of,
    tensor_kind,
    text_size,
    walk,
)
from fednode.errors import StoreError

_DTYPE: Final = re.compile(r"[<>|][biufcmM][0-9]{1,2}(\[[0-9]{0,10}[A-Za-z]{1,2}\])?")
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_HEADER: Final = struct.Struct("<4sI")
_MAGIC: Final = b"FNv1"
_ALIGN: Final = 16
_INDEX: Final = (1 << 63) - 1
_OPENINGS: Final = NODES + 2
_COMMAS: Final = 2 * NODES + 2 * DIMENSIONS
"""The most brackets and commas outside text that a value within `NODES` can come to."""
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


class Undecodable(ValueError):
    """The bytes are not a value as `encode` writes it: cut, changed, or made by something else.

    To a cache it is a miss. It deletes nothing because of it: bytes that match their digest are not damaged.
    """


def encode(value: Value) -> bytes:
    """`value` as bytes that `decode` turns back into the same: types, dtypes, shapes, bits. Raises as `freeze` does."""
    return _written(walk(value, Measure(), 0, seen))


def encode_counted(value: Value, most: int) -> tuple[bytes, int]:
    """`encode`, and the bytes that `value` counts against limits, as it was encoded.

    Raises `TooLarge` for a value over `most` bytes, before that much is copied, and as `freeze` does.
    """
    size, checked = size_of(value), None
    if size <= most:
        measured = Measure()
        checked = walk(value, measured, 0, seen)
        size = measured.size
    if size > most:
        raise TooLarge(size, most)
    return _written(checked), size


def _written(checked: Any) -> bytes:
    raws: list[bytes | memoryview] = []
    tree = _JSON.encode(_node(checked, raws)).encode()
    parts: list[bytes | memoryview] = [_HEADER.pack(_MAGIC, len(tree)), tree]
    end = _HEADER.size + len(tree)
    for raw in raws:
        parts += (bytes(-end % _ALIGN), raw)
        end += -end % _ALIGN + len(raw)
    return b"".join(parts)


def decode(data: bytes) -> Value:
    """The value that `encode` wrote as `data`; its arrays are read-only views of `data`, the rest is owned.

    Raises `Undecodable` for anything else, before memory is taken for a length that is not there. What this process
    lacks raises other errors: `MemoryError`, torch's own, and `StoreError` for a tensor if torch is missing.
    """
    try:
        magic, length = _HEADER.unpack_from(data)
        start = _HEADER.size + length
        if magic != _MAGIC or start > len(data):
            raise Undecodable("these bytes do not begin like a cached value, or are cut short; treat it as a miss")
        reader = _Decoder(data, start)
        value = reader.value(_parsed(data[_HEADER.size : start]), 0)
    except Undecodable:
        raise
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        raise Undecodable(f"these bytes are not a cached value ({error}); treat it as a miss") from error
    if reader.end != len(data):
        raise Undecodable(f"a cached value has {len(data) - reader.end} bytes too many; treat it as a miss")
    return value


def _parsed(tree: bytes) -> Any:
    _check_parts(tree)
    try:
        return json.loads(tree, parse_constant=_refuse, object_pairs_hook=_distinct)
    except RecursionError:
        raise Undecodable(f"a cached value is nested over {DEPTH} deep; treat it as a miss") from None


def _check_parts(tree: bytes) -> None:
    """Raise `Undecodable` for too many parts before the tree is built: an empty list of 3 bytes takes 56 and more."""
    openings, commas = _parts(tree, 0, len(tree))
    if openings > _OPENINGS or commas > _COMMAS:
        # those in text do not count; most trees never come here
        for text in _TEXT.finditer(tree):
            in_text = _parts(tree, *text.span())
            openings, commas = openings - in_text[0], commas - in_text[1]
        if openings > _OPENINGS or commas > _COMMAS:
            raise Undecodable(f"a cached value has over {NODES} items; treat it as a miss")


def _parts(tree: bytes, start: int, end: int) -> tuple[int, int]:
    return tree.count(b"[", start, end) + tree.count(b"{", start, end), tree.count(b",", start, end)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise Undecodable("a cached dict has a key twice; treat it as a miss")
    return made


def _node(value: Any, raws: list[bytes | memoryview]) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _node(item, raws) for key, item in value.items()}
    if kind is list or kind is tuple:
        return ["l" if kind is list else "t", *(_node(item, raws) for item in value)]
    if kind is int and not -(1 << 63) <= value < 1 << 63:
        return ["i", f"{value:x}"]
    if kind is float and not math.isfinite(value):
        return ["f", struct.pack("<d", value).hex()]
    if value is None or kind in (bool, int, float, str):
        return value
    return _raw_node(value, raws)


def _raw_node(value: Any, raws: list[bytes | memoryview]) -> Any:
    if type(value) is np.ndarray:
        raws.append(_raw(value.view(np.uint8) != 0 if value.dtype.kind == "b" else value))
        return ["a", value.dtype.str, *value.shape]
    if type(value) is bytes:
        raws.append(value)
        return ["b", len(value)]
    torch = _torch()
    raws.append(_raw(value.reshape(-1).view(torch.uint8).numpy()))
    return ["T", tensor_kind(value), *value.shape]


def _raw(array: Any) -> bytes | memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.nbytes else b""


def _checked(leaf: Any) -> Any:
    if type(leaf) is str:
        text_size(leaf)
    return leaf


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise StoreError("the cached value is a tensor, and torch cannot be imported; install it") from error
    return torch


def _text(node: Any) -> str:
    if type(node) is not str:
        raise Undecodable(f"{node!r} stands where a cached value has text; treat it as a miss")
    return node


def _length(node: Any) -> int:
    if type(node) is not int or node < 0:
        raise Undecodable(f"{node!r} stands where a cached value has a length; treat it as a miss")
    return node


def _lengths(shape: list[Any]) -> tuple[int, ...]:
    if len(shape) > DIMENSIONS:
        raise Undecodable(f"a cached array has {len(shape)} dimensions; treat it as a miss")
    return tuple(_length(one) for one in shape)


def _refuse(constant: str) -> NoReturn:
    raise Undecodable(f"a cached value contains {constant}; treat it as a miss")


class _Decoder:
    """Turns nodes of the tree back into values; raw leaves are taken in order, from `end` on."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._measured = Measure()
        self.end = start

    def value(self, node: Any, depth: int) -> Any:
        if type(node) is dict:
            self._measured.enter(len(node), depth)
            return {_checked(key): self.value(item, depth + 1) for key, item in node.items()}
        if type(node) is not list:
            return _checked(node)
        tag = node[0]
        if tag in ("l", "t"):
            self._measured.enter(len(node) - 1, depth)
            items = [self.value(item, depth + 1) for item in node[1:]]
            return items if tag == "l" else tuple(items)
        return self._leaf(tag, node[1:])

    def _leaf(self, tag: Any, rest: list[Any]) -> Any:
        if tag == "a":
            return self._array(_text(rest[0]), rest[1:])
        if tag == "T":
            return self._tensor(_text(rest[0]), rest[1:])
        (only,) = rest
        if tag == "b":
            start = self._take(_length(only))
            return self._data[start : self.end]
        if tag == "i":
            return int(_text(only), 16)
        if tag == "f":
            return struct.unpack("<d", bytes.fromhex(_text(only)))[0]
        raise Undecodable(f"unknown tag {tag!r} in a cached value; treat it as a miss")

    def _array(self, name: str, shape: list[Any]) -> Any:
        try:
            dtype = np.dtype(name) if _DTYPE.fullmatch(name) else None
        except TypeError:
            dtype = None
        if dtype is None:
            raise Undecodable(f"unknown dtype {name!r} of a cached array; treat it as a miss")
        return self._elements(dtype, shape)

    def _tensor(self, name: str, shape: list[Any]) -> Any:
        if name not in TENSORS:
            raise Undecodable(f"unknown dtype {name!r} of a cached tensor; treat it as a miss")
        lengths = _lengths(shape)
        if math.prod(length for length in lengths if length) > _INDEX:
            raise Undecodable(f"a cached tensor has the impossible shape {lengths}; treat it as a miss")
        torch = _torch()
        dtype = getattr(torch, name)
        kind = np.dtype(np.bool_ if name == "bool" else np.uint8)
        octets = self._elements(kind, [math.prod(lengths) * dtype.itemsize])
        # the CPU, whatever `torch.set_default_device` says
        tensor = torch.empty(lengths, dtype=dtype, device="cpu")
        tensor.reshape(-1).view(torch.uint8).numpy()[:] = octets
        return tensor

    def _elements(self, dtype: "np.dtype[Any]", shape: list[Any]) -> Any:
        lengths = _lengths(shape)
        start = self._take(math.prod(lengths) * dtype.itemsize)
        array: Any = np.ndarray(lengths, dtype, self._data, start)
        if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
            raise Undecodable("a cached array of booleans holds other bytes; treat it as a miss")
        return array

    def _take(self, size: int) -> int:
        start = self.end + -self.end % _ALIGN
        if size > len(self._data) - start:
            raise Undecodable(f"a cached value lacks {size + start - len(self._data)} bytes; treat it as a miss")
        self.end = start + size
        return start
