"""A model in chunks: its outline, and which values of which array each chunk holds.

The bounds of chunks are not sent: they follow from names and shapes, so chunks cannot overlap or leave gaps.
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
"""Values in a full chunk: 1 MiB of float32."""

MAX_MODEL_VALUES: Final = 1 << 31
MAX_OUTLINE: Final = 1 << 24
"""The most bytes of names and shapes."""

_MAX_ARRAYS, _MAX_NAME, _MAX_DIMENSIONS = 1 << 16, 256, 32


@dataclass(frozen=True, slots=True)
class Chunk:
    """Values `first` to `first + count` of the flat array called `array`."""

    id: str
    array: str
    first: int
    count: int


def chunks_of(array: str, size: int) -> tuple[Chunk, ...]:
    """Return the chunks of an array of `size` values, in order; an empty array has one empty chunk."""
    label = quote(array, safe="")
    return tuple(
        Chunk(f"{label}/{number}", array, first, min(CHUNK_VALUES, size - first))
        for number, first in enumerate(range(0, max(size, 1), CHUNK_VALUES))
    )


NOTHING: Final = Layout((), ())


@dataclass(frozen=True, slots=True)
class Outline:
    """Names and shapes of a model: the trained arrays, then the `frozen` ones, all float32.

    Raises `ValueError` for a repeated name, for an array without values and for more than `MAX_MODEL_VALUES` values.
    """

    trained: Layout
    frozen: Layout = NOTHING

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise ValueError("two arrays of the model have one name; give every trained and frozen array its own")
        # numpy cannot reshape to every shape whose product is 0
        if any(0 in shape for shape in self.shapes.values()):
            raise ValueError("an array of the model has no values; leave it out")
        if self.trained.dimension + self.frozen.dimension > MAX_MODEL_VALUES:
            raise ValueError(f"the model has more than {MAX_MODEL_VALUES} values")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all arrays, in the order in which they are sent and digested."""
        return self.trained.names + self.frozen.names

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array, in order."""
        return dict(zip(self.names, self.trained.shapes + self.frozen.shapes, strict=True))

    def chunks(self) -> tuple[Chunk, ...]:
        """Return every chunk of the model, in order."""
        return tuple(chunk for name, shape in self.shapes.items() for chunk in chunks_of(name, math.prod(shape)))

    def digest(self, arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
        """Return the model digest of arrays with these names and shapes."""
        return model_digest({name: arrays[name] for name in self.names}, self.frozen.names)

    def to_bytes(self) -> bytes:
        """Return the form that is sent with a spec."""
        return canonical({"trained": _rows(self.trained), "frozen": _rows(self.frozen)})

    @staticmethod
    def from_bytes(data: bytes) -> "Outline":
        """Return the outline in untrusted bytes, without allocating what it describes.

        Raises `PeerFault`: "oversize" for more than `MAX_OUTLINE` bytes, "malformed".
        """
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
    if (
        not isinstance(shape, list)
        or len(shape) > _MAX_DIMENSIONS
        or not all(type(size) is int and 0 <= size <= MAX_MODEL_VALUES for size in shape)
    ):
        raise PeerFault(Reason.MALFORMED, f"a shape is not a list of at most {_MAX_DIMENSIONS} sizes")
    if math.prod(shape) > MAX_MODEL_VALUES:
        raise PeerFault(Reason.MALFORMED, f"an array has more than {MAX_MODEL_VALUES} values")
    return tuple(shape)
