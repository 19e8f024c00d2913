"""The model as it travels: named float32 arrays in one order, and one digest over all of them."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from fednode.errors import PeerFault
from fednode.reasons import Reason
from fednode.wire import canonical, digest

BASIS: Final = "model"
"""What the attachment is called in which an update says which model it was computed from."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and shapes of a model's trainable arrays, in the order in which they stand in the flat vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(arrays: Mapping[str, NDArray[np.generic]]) -> "Layout":
        """The layout of these arrays. Raises `ValueError` if there are none or one is not of floats.

        Integer buffers (a counter of batches, say) are not sent: noise on integers means nothing, so they stay where
        they are.
        """
        if not arrays:
            raise ValueError("a model without trainable arrays cannot be trained")
        for name, array in arrays.items():
            if array.dtype.kind != "f":
                raise ValueError(
                    f"{name} is {array.dtype}, not floating: leave it out, integer buffers stay with their owner"
                )
        return Layout(tuple(arrays), tuple(array.shape for array in arrays.values()))

    @property
    def dimension(self) -> int:
        """How many numbers there are in all."""
        return sum(math.prod(shape) for shape in self.shapes)

    def flatten(self, arrays: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float64]:
        """All arrays as one float64 vector [d]. Raises `PeerFault("wrong-shape")` if they do not fit this layout."""
        if tuple(arrays) != self.names or tuple(array.shape for array in arrays.values()) != self.shapes:
            raise PeerFault(Reason.WRONG_SHAPE, "the arrays are not those of the model")
        if any(array.dtype.kind != "f" for array in arrays.values()):
            raise PeerFault(Reason.WRONG_SHAPE, "an array of the model is not of floats")
        return np.concatenate([np.asarray(array, dtype=np.float64).ravel() for array in arrays.values()])

    def split(self, vector: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """The arrays of a float64 vector [d], as views of it."""
        if vector.shape != (self.dimension,):
            raise ValueError(f"a vector of {vector.shape} does not fill {self.dimension} parameters")
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        pieces = np.split(vector, ends)
        return {name: piece.reshape(shape) for name, shape, piece in zip(self.names, self.shapes, pieces, strict=True)}

    def unflatten(self, vector: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
        """The arrays of a float64 vector [d], as float32: what travels and what the digest is of."""
        return {name: array.astype(np.float32) for name, array in self.split(vector).items()}


def model_digest(arrays: Mapping[str, NDArray[np.generic]], frozen: Collection[str] = ()) -> bytes:
    """32 bytes over names, shapes and little-endian float32 values, in order, and over which of them are `frozen`."""
    parts: list[bytes] = []
    for name, array in arrays.items():
        mark = {"frozen": True} if name in frozen else {}
        parts.append(canonical({"name": name, "shape": list(array.shape), **mark}))
        parts.append(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return digest("model", *parts)


@dataclass(frozen=True, slots=True)
class Basis:
    """The model that an update was computed from: public, and the same for whoever computed from that model.

    Attached to updates of tasks that allow staleness, so that the signed head names it by hash and stays small.
    """

    version: int
    digest: bytes

    SIZE: ClassVar[int] = 40

    def to_bytes(self) -> bytes:
        """Version (8 bytes, little-endian), then the model digest."""
        return self.version.to_bytes(8, "little") + self.digest

    @staticmethod
    def from_bytes(data: bytes) -> "Basis":
        """The inverse of `to_bytes`. Raises `PeerFault("malformed")`."""
        if len(data) != Basis.SIZE:
            raise PeerFault(Reason.MALFORMED, "the update does not say which model it was computed from")
        return Basis(int.from_bytes(data[:8], "little"), data[8:])
