"""The model as it is sent: named float32 arrays in one order, and one digest over all of them."""

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
"""The name of the attachment that states from which model an update was computed."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and shapes of a model's trainable arrays, in the order of the flat vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(arrays: Mapping[str, NDArray[np.generic]]) -> "Layout":
        """Return the layout of these arrays. Raises `ValueError` if there are none or one is not of floats.

        Integer buffers, such as a counter of batches, are not sent, since noise on them has no meaning.
        """
        if not arrays:
            raise ValueError("a model without trainable arrays cannot be trained")
        for name, array in arrays.items():
            if array.dtype.kind != "f":
                raise ValueError(
                    f"array {name} is {array.dtype}, not of floats: leave it out, integer buffers are not sent"
                )
        return Layout(tuple(arrays), tuple(array.shape for array in arrays.values()))

    @property
    def dimension(self) -> int:
        """The number of values in all arrays."""
        return sum(math.prod(shape) for shape in self.shapes)

    def flatten(self, arrays: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float64]:
        """Return all arrays as one float64 vector [d]. Raises `PeerFault("wrong-shape")` if they do not fit."""
        if tuple(arrays) != self.names or tuple(array.shape for array in arrays.values()) != self.shapes:
            raise PeerFault(Reason.WRONG_SHAPE, "the names or shapes are not those of the model")
        if any(array.dtype.kind != "f" for array in arrays.values()):
            raise PeerFault(Reason.WRONG_SHAPE, "an array of the model is not of floats")
        return np.concatenate([np.asarray(array, dtype=np.float64).ravel() for array in arrays.values()])

    def split(self, vector: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Return the arrays of a float64 vector [d], as views of it."""
        if vector.shape != (self.dimension,):
            raise ValueError(f"the model has {self.dimension} values: a vector of shape {vector.shape} does not fit")
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        pieces = np.split(vector, ends)
        return {name: piece.reshape(shape) for name, shape, piece in zip(self.names, self.shapes, pieces, strict=True)}

    def unflatten(self, vector: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
        """Return the arrays of a float64 vector [d] as float32, as they are sent and digested."""
        return {name: array.astype(np.float32) for name, array in self.split(vector).items()}


def model_digest(arrays: Mapping[str, NDArray[np.generic]], frozen: Collection[str] = ()) -> bytes:
    """Return 32 bytes over names, shapes and little-endian float32 values, in order, and which arrays are `frozen`."""
    parts: list[bytes] = []
    for name, array in arrays.items():
        mark = {"frozen": True} if name in frozen else {}
        parts.append(canonical({"name": name, "shape": list(array.shape), **mark}))
        parts.append(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return digest("model", *parts)


@dataclass(frozen=True, slots=True)
class Basis:
    """The model from which an update was computed: public, and the same for all who used that model.

    It is attached to updates of tasks that allow staleness; the signed head names it by hash and stays small.
    """

    version: int
    digest: bytes

    SIZE: ClassVar[int] = 40

    def to_bytes(self) -> bytes:
        """Return the version (8 bytes, little-endian) and the model digest."""
        return self.version.to_bytes(8, "little") + self.digest

    @staticmethod
    def from_bytes(data: bytes) -> "Basis":
        """Undo `to_bytes`. Raises `PeerFault("malformed")`."""
        if len(data) != Basis.SIZE:
            raise PeerFault(Reason.MALFORMED, "the update does not state from which model it was computed")
        return Basis(int.from_bytes(data[:8], "little"), data[8:])
