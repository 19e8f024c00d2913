"""What a cache keeps of a value: an owned copy that no caller can reach, and its size."""

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from fednode.cache.backend import TooLarge, Value

DEPTH: Final = 32
"""How deep lists, tuples and dicts may be nested in one value."""
NODES: Final = 1 << 20
"""How many items one value may have: a list shared or cyclic inside itself would copy without end."""
TENSORS: Final = frozenset(
    ["bool", "uint8", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
    + [f"int{bits}" for bits in (8, 16, 32, 64)]
)

_KINDS: Final = frozenset("biufcmM")
_CONTAINER: Final = 16
"""Bytes that a container and each of its items count, so that empty ones are not free."""


class Frozen(NamedTuple):
    """A value as the cache owns it. `size`: bytes, as `size_of` counts; `plain`: immutable, so given out as it is."""

    content: Any
    size: int
    plain: bool


class Tally:
    """Bytes and nodes of one value, while it is walked."""

    __slots__ = ("nodes", "size")

    def __init__(self) -> None:
        self.nodes = self.size = 0

    def enter(self, items: int, depth: int) -> None:
        """Count a container of `items` at `depth`; raise `ValueError` where the value is too deep or too many."""
        self.nodes += items
        self.size += _CONTAINER * (items + 1)
        if depth >= DEPTH or self.nodes > NODES:
            raise ValueError(
                f"a cached value may be nested {DEPTH} deep with {NODES} items; keep numbers in an array, and no list "
                "inside itself"
            )


def freeze(value: Any, most: int | None = None) -> Frozen:
    """An owned copy of `value`: what the caller does to its own afterwards reaches nothing. Bytes are not copied.

    bytearray and memoryview become bytes; arrays come in C order, tensors detached. Raises `TypeError` for what is no
    `Value` (subclasses, object and structured arrays and tensors off the CPU are none), `ValueError` for text that is
    not UTF-8, or a value nested or split too far, `TooLarge` for one over `most` bytes before that much is copied.
    """
    kind = type(value)
    if kind is bytes:
        _check(len(value), most)
        return Frozen(value, len(value), plain=True)
    if kind is np.ndarray:
        _check(_buffer_size(value), most)
        content = _own(value)
        return Frozen(content, content.nbytes, plain=False)
    if most is not None:
        _check(size_of(value), most)
    tally = Tally()
    content = walk(value, tally, 0, _own)
    # another thread may have changed the value meanwhile
    _check(tally.size, most)
    return Frozen(content, tally.size, plain=kind in _LEAVES)


def _check(size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise TooLarge(size, most)


def thaw(frozen: Frozen) -> Value:
    """The value for a caller: immutable, a read-only view (arrays), or a copy of its own (tensors and containers)."""
    return frozen.content if frozen.plain else hand_out(frozen.content)


def size_of(value: Value) -> int:
    """The bytes that `value` counts against limits; nothing is copied. Raises as `freeze` does.

    Bytes, text (UTF-8), arrays and tensors count their bytes, other leaves 8 or more, containers and items 16 more.
    """
    tally = Tally()
    walk(value, tally, 0, keep)
    return tally.size


def text_size(text: str) -> int:
    """Bytes of `text` in UTF-8; `ValueError` where it has none."""
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(
            f"text with a lone surrogate (at {error.start}) cannot be cached; store bytes instead"
        ) from error


_LEAVES: Final[dict[type, Callable[[Any], int]]] = {
    bytes: len,
    str: text_size,
    int: lambda number: max(8, number.bit_length() // 8 + 1),
    float: lambda _: 8,
    bool: lambda _: 8,
    type(None): lambda _: 8,
}


def walk(value: Any, tally: Tally, depth: int, take: Callable[[Any], Any]) -> Any:
    """`value` with each leaf checked, counted and run through `take`, in new containers."""
    kind = type(value)
    measure = _LEAVES.get(kind)
    if measure is not None:
        tally.size += measure(value)
        return value
    if kind is list or kind is tuple:
        tally.enter(len(value), depth)
        return kind([walk(item, tally, depth + 1, take) for item in value])
    if kind is dict:
        tally.enter(len(value), depth)
        return {_key(key, tally): walk(item, tally, depth + 1, take) for key, item in value.items()}
    tally.size += _buffer_size(value)
    return take(value)


def _key(key: Any, tally: Tally) -> str:
    if type(key) is not str:
        raise TypeError(f"a dict with a key of type {type(key).__name__} cannot be cached; make its keys text")
    tally.size += text_size(key)
    return key


def _buffer_size(value: Any) -> int:
    if type(value) is np.ndarray:
        if value.dtype.kind not in _KINDS:
            raise TypeError(f"an array of {value.dtype} cannot be cached; make it one of numbers, booleans or dates")
        return int(value.nbytes)
    if type(value) is bytearray:
        return len(value)
    if type(value) is memoryview:
        return value.nbytes
    if _is_tensor(value):
        return int(value.numel() * value.element_size())
    raise TypeError(
        f"a {type(value).__name__} cannot be cached; store None, bool, int, float, str, bytes, an array, a tensor, or "
        "lists, tuples and dicts of these"
    )


def _is_tensor(value: Any) -> bool:
    # whoever holds a tensor has imported torch; the cache alone never does
    torch: Any = sys.modules.get("torch")
    if torch is None or type(value) not in (getattr(torch, "Tensor", None), torch.nn.Parameter):
        return False
    if value.layout is not torch.strided or value.device.type != "cpu" or tensor_kind(value) not in TENSORS:
        raise TypeError(
            f"a {value.layout} tensor of {value.dtype} on {value.device} cannot be cached; store a plain one of "
            "numbers on the CPU"
        )
    return True


def tensor_kind(tensor: Any) -> str:
    """The name in `TENSORS` of a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")


def keep(value: Any) -> Any:
    """What `walk` does to a leaf that is not copied."""
    return value


def _own(value: Any) -> Any:
    if type(value) is np.ndarray:
        # over immutable bytes nobody can make it writeable again; tobytes() of another order goes item by item
        return np.ndarray(value.shape, value.dtype, np.ascontiguousarray(value).tobytes())
    if type(value) in (bytearray, memoryview):
        return bytes(value)
    return plain_tensor(value).clone()


def plain_tensor(tensor: Any) -> Any:
    """The tensor detached, contiguous, with nothing left to resolve; not always a copy."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def hand_out(content: Any) -> Any:
    """`thaw` for the content of a `Frozen`."""
    kind = type(content)
    if kind in _LEAVES:
        return content
    if kind is np.ndarray:
        # a view of its own: shape and dtype of an array object can be assigned to
        return content.view()
    if kind is dict:
        return {key: hand_out(item) for key, item in content.items()}
    if kind is list or kind is tuple:
        return kind([hand_out(item) for item in content])
    return content.clone()
