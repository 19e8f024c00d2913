"""The copy of a value that a cache keeps, which no caller can reach, and its size."""

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from fednode.cache.backend import TooLarge, Value

DEPTH: Final = 32
"""How deep lists, tuples and dicts may be nested in one value."""
NODES: Final = 1 << 20
"""How many items and dimensions one value may have: copying a list that contains itself would not end."""
DIMENSIONS: Final = 64
"""How many dimensions an array or a tensor may have: as numpy allows."""
TENSORS: Final = frozenset(
    ["bool", "uint8", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
    + [f"int{bits}" for bits in (8, 16, 32, 64)]
)

_KINDS: Final = frozenset("biufcmM")
_CONTAINER: Final = 16
"""Bytes that a container and each of its items count, so that empty ones are not free."""
_ARRAY: Final = 160
"""Bytes that an array object in a container takes beside its numbers, as measured."""
_TENSOR: Final = 448


class Frozen(NamedTuple):
    """A value as the cache owns it. `size`: bytes, as `size_of` counts; `plain`: `content` is handed out as it is."""

    content: Any
    size: int
    plain: bool


class _OwnedArray:
    """An array as its parts: an array object could be reached, and reshaped, as the `base` of the views handed out."""

    __slots__ = ("data", "dtype", "shape")

    def __init__(self, array: Any) -> None:
        # a view: if the caller reshapes its array meanwhile, shape and bytes still agree
        seen = array.view()
        # not the caller's dtype, whose metadata may be any object; a dtype that can be changed is kept as its name
        plain = np.dtype(seen.dtype.str)
        self.dtype: Final[Any] = plain if plain.isbuiltin else plain.str
        self.shape: Final[tuple[int, ...]] = seen.shape
        if seen.dtype.kind == "b":
            # numpy takes every byte above 0 for True
            seen = seen.view(np.uint8) != 0
        # tobytes() of another order goes item by item
        self.data: Final[bytes] = np.ascontiguousarray(seen).tobytes()


class Measure:
    """Bytes and nodes of one value, counted while it is walked."""

    __slots__ = ("nodes", "size")

    def __init__(self) -> None:
        self.nodes = self.size = 0

    def enter(self, items: int, depth: int) -> None:
        """Count a container of `items` at `depth`; raise `ValueError` where the value is too deep or too many."""
        self.size += _CONTAINER * (items + 1)
        self.spread(items, depth)

    def spread(self, nodes: int, depth: int) -> None:
        """Count items or dimensions; raise as `enter` does."""
        self.nodes += nodes
        if depth >= DEPTH or self.nodes > NODES:
            raise ValueError(
                f"a cached value may be nested {DEPTH} deep with {NODES} items; keep numbers in an array, and no list "
                "inside itself"
            )


def freeze(value: Any, most: int | None = None) -> Frozen:
    """A copy of `value` that its caller cannot reach. Bytes are not copied.

    bytearray and memoryview become bytes; arrays come in C order, tensors detached. Raises `TypeError` for what is no
    `Value` (also subclasses, object and structured arrays, tensors off the CPU), `ValueError` for text that is not
    UTF-8 or a value with too many levels or items, `TooLarge` for one over `most` bytes before that much is copied. If
    another thread changes `value` meanwhile, each part is copied, and counted, as it was at one moment.
    """
    kind = type(value)
    if kind is bytes:
        _check(len(value), most)
        return Frozen(value, len(value), plain=True)
    if kind is np.ndarray:
        _check(_buffer_size(value), most)
        held = _OwnedArray(value)
        _check(len(held.data), most)
        return Frozen(held, len(held.data), plain=False)
    if most is not None:
        _check(size_of(value), most)
    measured = Measure()
    content = walk(value, measured, 0, _own)
    _check(measured.size, most)
    return Frozen(content, measured.size, plain=kind in _LEAVES)


def _check(size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise TooLarge(size, most)


def thaw(frozen: Frozen) -> Value:
    """The value for a caller: immutable, a read-only array over the stored bytes, or a copy."""
    return frozen.content if frozen.plain else hand_out(frozen.content)


def size_of(value: Value) -> int:
    """The bytes that `value` counts against limits; nothing is copied. Raises as `freeze` does.

    Bytes, text (UTF-8), arrays and tensors count their bytes, other leaves 8 or more. Containers and their items count
    16 more each, arrays and tensors in containers 160 and 448 more.
    """
    measured = Measure()
    walk(value, measured, 0, keep)
    return measured.size


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


def walk(value: Any, measured: Measure, depth: int, take: Callable[[Any], Any]) -> Any:
    """`value` in new containers, each leaf checked, counted and passed through `take`."""
    kind = type(value)
    measure = _LEAVES.get(kind)
    if measure is not None:
        measured.size += measure(value)
        return value
    # copied first: another thread may change the length of the caller's own
    if kind is list or kind is tuple:
        items = value[:]
        measured.enter(len(items), depth)
        return kind([walk(item, measured, depth + 1, take) for item in items])
    if kind is dict:
        pairs = value.copy()
        measured.enter(len(pairs), depth)
        return {_key(key, measured): walk(item, measured, depth + 1, take) for key, item in pairs.items()}
    return _buffer(value, measured, depth, take)


def _buffer(value: Any, measured: Measure, depth: int, take: Callable[[Any], Any]) -> Any:
    _buffer_size(value)
    taken = take(value)
    kind = type(taken)
    if kind is _OwnedArray or kind is np.ndarray:
        measured.size += len(taken.data) if kind is _OwnedArray else int(taken.nbytes)
        object_size, dimensions = _ARRAY, len(taken.shape)
    elif kind in (bytes, bytearray, memoryview):
        measured.size += taken.nbytes if kind is memoryview else len(taken)
        return taken
    else:
        measured.size += int(taken.numel() * taken.element_size())
        object_size, dimensions = _TENSOR, taken.ndim
    if depth:
        measured.size += object_size
        measured.spread(dimensions, depth - 1)
    return taken


def _key(key: Any, measured: Measure) -> str:
    if type(key) is not str:
        raise TypeError(f"a dict with a key of type {type(key).__name__} cannot be cached; make its keys text")
    measured.size += text_size(key)
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
    torch: Any = sys.modules.get("torch")
    if torch is None or type(value) not in (getattr(torch, "Tensor", None), torch.nn.Parameter):
        return False
    if (
        value.layout is not torch.strided
        or value.device.type != "cpu"
        or tensor_kind(value) not in TENSORS
        or not _has_memory(value)
    ):
        raise TypeError(
            f"a {value.layout} tensor of {value.dtype} on {value.device} cannot be cached; store a plain one of "
            "numbers on the CPU"
        )
    if value.ndim > DIMENSIONS:
        raise TypeError(f"a tensor of {value.ndim} dimensions cannot be cached; give it {DIMENSIONS} at most")
    return True


def _has_memory(tensor: Any) -> bool:
    """Whether it is one block of memory: not nested, and not a stand-in such as `vmap` passes to a function."""
    if tensor.is_nested:
        return False
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True


def tensor_kind(tensor: Any) -> str:
    """The name in `TENSORS` of a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")


def keep(value: Any) -> Any:
    """For `walk`: the leaf itself."""
    return value


def seen(value: Any) -> Any:
    """For `walk`: the leaf with a shape and length of its own, to be copied next."""
    if type(value) is np.ndarray:
        return value.view()
    if type(value) in (bytearray, memoryview):
        return bytes(value)
    return plain_tensor(value)


def _own(value: Any) -> Any:
    if type(value) is np.ndarray:
        return _OwnedArray(value)
    if type(value) in (bytearray, memoryview):
        return bytes(value)
    return plain_tensor(value).clone(memory_format=_torch().contiguous_format)


def _torch() -> Any:
    # whoever has a tensor has imported torch; the cache itself never does
    return sys.modules["torch"]


def plain_tensor(tensor: Any) -> Any:
    """The tensor detached, contiguous, conjugation and negation resolved, booleans as 0 and 1; not always a copy."""
    torch = _torch()
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype is torch.bool:
        plain = plain.view(torch.uint8).ne(0)
    # one element is contiguous under every stride, and has no view as bytes under most
    return plain.clone(memory_format=torch.contiguous_format) if plain.numel() == 1 else plain.contiguous()


def hand_out(content: Any) -> Any:
    """`thaw` for the content of a `Frozen`. It shares only immutable objects with the store."""
    kind = type(content)
    if kind is _OwnedArray:
        # over immutable bytes, so it cannot be made writeable
        return np.ndarray(content.shape, content.dtype, content.data)
    if kind in _LEAVES:
        return content
    if kind is dict:
        return {key: hand_out(item) for key, item in content.items()}
    if kind is list or kind is tuple:
        return kind([hand_out(item) for item in content])
    return content.clone()
