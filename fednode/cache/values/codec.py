"""Values and their form as bytes, which is never pickle; `freeze`, `thaw` and `size_of` come from `owned`.

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
    Frozen,
    Tally,
    freeze,
    seen,
    size_of,
    tensor_kind,
    text_size,
    thaw,
    walk,
)
from fednode.errors import StoreError

__all__ = ["Frozen", "Undecodable", "decode", "encode", "encode_counted", "freeze", "size_of", "thaw"]

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
_NESTING: Final = re.compile(_TEXT.pattern + rb"|[\[\]{}]", re.DOTALL)


class Undecodable(ValueError):
    """The bytes are not a value as `encode` writes it: cut, changed, or made by something else.

    A cache takes it for a miss, and deletes nothing for it alone: what fits its seal or its digest is not damaged.
    """


def encode(value: Value) -> bytes:
    """`value` as bytes that `decode` turns back into the same: types, dtypes, shapes, bits. Raises as `freeze` does."""
    return _written(walk(value, Tally(), 0, seen))


def encode_counted(value: Value, most: int) -> tuple[bytes, int]:
    """`encode`, and the bytes that `value` counts: of what was written, whatever other threads do to it meanwhile.

    Raises `TooLarge` for one over `most` bytes, before that much is copied, and as `freeze`.
    """
    size, checked = size_of(value), None
    if size <= most:
        tally = Tally()
        checked = walk(value, tally, 0, seen)
        size = tally.size
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
    lacks says nothing about the bytes and comes as it is: `RecursionError`, `MemoryError`, torch's own errors, and
    `StoreError` for a tensor where there is no torch.
    """
    try:
        magic, length = _HEADER.unpack_from(data)
        start = _HEADER.size + length
        if magic != _MAGIC or start > len(data):
            raise Undecodable("these bytes do not begin as a cached value does, or are cut short; treat it as a miss")
        reader = _Reader(data, start)
        value = reader.value(_parsed(data[_HEADER.size : start]), 0)
    except Undecodable:
        raise
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        raise Undecodable(f"these bytes are no cached value ({error}); treat it as a miss") from error
    if reader.end != len(data):
        raise Undecodable(f"a cached value has {len(data) - reader.end} bytes too many; treat it as a miss")
    return value


def _parsed(tree: bytes) -> Any:
    # an empty list of 3 bytes becomes an object of 56 and more: too many of them are refused before they are made
    if _brackets(tree, 0, len(tree)) > _OPENINGS or tree.count(b",") > _COMMAS:
        _check_parts(tree)
    try:
        return json.loads(tree, parse_constant=_refuse, object_pairs_hook=_distinct)
    except RecursionError:
        # too deep for any value, or only for the stack that is left here
        if _nested(tree) > DEPTH + 1:
            raise Undecodable(f"a cached value is nested over {DEPTH} deep; treat it as a miss") from None
        raise


def _nested(tree: bytes) -> int:
    deepest = depth = 0
    for part in _NESTING.finditer(tree):
        first = tree[part.start()]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"]}":
            depth -= 1
    return deepest


def _check_parts(tree: bytes) -> None:
    """Raise `Undecodable` where there are too many parts outside text. One text after the other: no copy is made."""
    openings = commas = end = 0
    for text in _TEXT.finditer(tree):
        start = text.start()
        openings += _brackets(tree, end, start)
        commas += tree.count(b",", end, start)
        end = text.end()
        if openings > _OPENINGS or commas > _COMMAS:
            break
    else:
        openings += _brackets(tree, end, len(tree))
        commas += tree.count(b",", end)
    if openings > _OPENINGS or commas > _COMMAS:
        raise Undecodable(f"a cached value has over {NODES} items; treat it as a miss")


def _brackets(tree: bytes, start: int, end: int) -> int:
    return tree.count(b"[", start, end) + tree.count(b"{", start, end)


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
        raise StoreError("the cache holds a tensor, and torch cannot be loaded here; install it to read it") from error
    return torch


def _text(node: Any) -> str:
    if type(node) is not str:
        raise Undecodable(f"{node!r} is no text in a cached value; treat it as a miss")
    return node


def _length(node: Any) -> int:
    if type(node) is not int or node < 0:
        raise Undecodable(f"{node!r} is no length in a cached value; treat it as a miss")
    return node


def _lengths(shape: list[Any]) -> tuple[int, ...]:
    if len(shape) > DIMENSIONS:
        raise Undecodable(f"a cached array has {len(shape)} dimensions; treat it as a miss")
    return tuple(_length(one) for one in shape)


def _refuse(constant: str) -> NoReturn:
    raise Undecodable(f"{constant} is no part of a cached value; treat it as a miss")


class _Reader:
    """Nodes back into values; raw leaves are taken in order, from `end` on."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._tally = Tally()
        self.end = start

    def value(self, node: Any, depth: int) -> Any:
        if type(node) is dict:
            self._tally.enter(len(node), depth)
            return {_checked(key): self.value(item, depth + 1) for key, item in node.items()}
        if type(node) is not list:
            return _checked(node)
        tag = node[0]
        if tag in ("l", "t"):
            self._tally.enter(len(node) - 1, depth)
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
        raise Undecodable(f"a cached value has no part called {tag!r}; treat it as a miss")

    def _array(self, name: str, shape: list[Any]) -> Any:
        try:
            dtype = np.dtype(name) if _DTYPE.fullmatch(name) else None
        except TypeError:
            dtype = None
        if dtype is None:
            raise Undecodable(f"{name!r} is no dtype of a cached array; treat it as a miss")
        return self._elements(dtype, shape)

    def _tensor(self, name: str, shape: list[Any]) -> Any:
        if name not in TENSORS:
            raise Undecodable(f"{name!r} is no dtype of a cached tensor; treat it as a miss")
        lengths = _lengths(shape)
        if math.prod(length for length in lengths if length) > _INDEX:
            raise Undecodable(f"no tensor has lengths such as {lengths}; treat it as a miss")
        torch = _torch()
        dtype = getattr(torch, name)
        kind = np.dtype(np.bool_ if name == "bool" else np.uint8)
        octets = self._elements(kind, [math.prod(lengths) * dtype.itemsize])
        # not where `torch.set_default_device` says
        tensor = torch.empty(lengths, dtype=dtype, device="cpu")
        tensor.reshape(-1).view(torch.uint8).numpy()[:] = octets
        return tensor

    def _elements(self, dtype: "np.dtype[Any]", shape: list[Any]) -> Any:
        lengths = _lengths(shape)
        start = self._take(math.prod(lengths) * dtype.itemsize)
        array: Any = np.ndarray(lengths, dtype, self._data, start)
        if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
            raise Undecodable("a cached array of booleans holds others; treat it as a miss")
        return array

    def _take(self, size: int) -> int:
        start = self.end + -self.end % _ALIGN
        if size > len(self._data) - start:
            raise Undecodable(f"a cached value lacks {size + start - len(self._data)} bytes; treat it as a miss")
        self.end = start + size
        return start
