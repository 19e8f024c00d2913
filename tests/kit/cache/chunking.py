"""A model as it travels: what a node would send of it."""

import numpy as np

from fednode.protocol.chunks import Outline, chunks_of
from fednode.protocol.model import Layout


def outline_of(arrays, frozen=None) -> Outline:
    return Outline(Layout.of(arrays), Layout.of(frozen) if frozen else Layout((), ()))


def chunked(arrays) -> dict[str, np.ndarray]:
    """Every chunk, float32, by id."""
    return {
        chunk.id: np.asarray(arrays[chunk.array]).reshape(-1)[chunk.first : chunk.first + chunk.count]
        for name, array in arrays.items()
        for chunk in chunks_of(name, np.asarray(array).size)
    }
