"""A model in chunks: what one is made of, and which values of which array a chunk holds, the same for both sides.

Nobody says where a chunk begins or ends: that follows from names and shapes, so chunks cannot overlap or leave gaps.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from fednode.errors import PeerFault
from fednode.protocol.model import Layout, model_digest
from fednode.reasons import Reason
from fednode.wire import Fields, canonical, parse

CHUNK_VALUES: Final = 1 << 18
"""Values in a full chunk: 1 MiB as the float32 that travel."""

MAX_MODEL_VALUES: Final = 1 << 31
MAX_OUTLINE: Final = 1 << 24
"""Bytes of names and shapes."""

_MAX_ARRAYS, _MAX_NAME, _MAX_DIMENSIONS = 1 << 16, 256, 32


@dataclass(frozen=True, slots=True)
class Chunk:
    """Values `first` to `first + count` of the flat array called `array`."""

    id: str
    array: str
    first: int
    count: int


def chunks_of(array: str, size: int) -> tuple[Chunk, ...]:
    """The chunks of an array of `size` values, in order; an empty one has one empty chunk."""
    label = quote(array, safe="")
    return tuple(
        Chunk(f"{label}/{number}", array, first, min(CHUNK_VALUES, size - first))
        for number, first in enumerate(range(0, max(size, 1), CHUNK_VALUES))
    )


NOTHING: Final = Layout((), ())


@dataclass(frozen=True, slots=True)
class Outline:
    """Names and shapes of a model: the arrays that are trained, then those that are not (`frozen`), both float32.

    Raises `ValueError` for a name that is there twice and for more values than anyone would send.
    """

    trained: Layout
    frozen: Layout = NOTHING

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise ValueError("two arrays of the model have one name; give every trained and frozen array its own")
        if self.trained.dimension + self.frozen.dimension > MAX_MODEL_VALUES:
            raise ValueError(f"a model of more than {MAX_MODEL_VALUES} values does not travel")

    @property
    def names(self) -> tuple[str, ...]:
        """All arrays, in the order in which they travel and are digested."""
        return self.trained.names + self.frozen.names

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array, in order."""
        return dict(zip(self.names, self.trained.shapes + self.frozen.shapes, strict=True))

    def chunks(self) -> tuple[Chunk, ...]:
        """Every chunk of the model, in order."""
        return tuple(chunk for name, shape in self.shapes.items() for chunk in chunks_of(name, math.prod(shape)))

    def digest(self, arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
        """The model digest of arrays that have these names and shapes."""
        return model_digest({name: arrays[name] for name in self.names}, self.frozen.names)

    def to_bytes(self) -> bytes:
        """The one form that travels beside a spec."""
        return canonical({"trained": _rows(self.trained), "frozen": _rows(self.frozen)})

    @staticmethod
    def from_bytes(data: bytes) -> "Outline":
        """An outline from untrusted bytes; nothing is allocated on its word. Raises `PeerFault`: "oversize" for more
        than `MAX_OUTLINE` bytes, "malformed"."""
        fields = parse(data, MAX_OUTLINE).only("trained", "frozen")
        try:
            return Outline(_layout(fields.rows("trained", _MAX_ARRAYS)), _layout(fields.rows("frozen", _MAX_ARRAYS)))
        except ValueError as error:
            raise PeerFault(Reason.MALFORMED, str(error)) from error


def _rows(layout: Layout) -> list[dict[str, object]]:
    return [{"name": name, "shape": list(shape)} for name, shape in zip(layout.names, layout.shapes, strict=True)]


def _layout(rows: Collection[Fields]) -> Layout:
    return Layout(tuple(row.only("name", "shape").text("name", _MAX_NAME) for row in rows), tuple(map(_shape, rows)))


def _shape(row: Fields) -> tuple[int, ...]:
    shape = row.raw()["shape"]
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS:
        raise PeerFault(Reason.MALFORMED, "the shape of an array is not a short list")
    if not all(type(size) is int and 0 <= size <= MAX_MODEL_VALUES for size in shape):
        raise PeerFault(Reason.MALFORMED, "the shape of an array is not of sizes")
    if math.prod(shape) > MAX_MODEL_VALUES:
        raise PeerFault(Reason.MALFORMED, "an array is larger than any model")
    return tuple(shape)
