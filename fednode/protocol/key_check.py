"""The vector that holders seal and open to try a new joint key: anyone can compute it, so nothing is given away."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from fednode_crypto import SumParams

_LARGEST = 100


def known_vector(params: SumParams, context: bytes) -> NDArray[np.int64]:
    """int64 [params.dimension], each from -100 to 100, drawn from SHAKE-256 of `context`."""
    largest = min(_LARGEST, params.value_bound // max(1, params.summands))
    stream = hashlib.shake_256(b"fednode/v1/known-vector" + context).digest(2 * params.dimension)
    words = np.frombuffer(stream, dtype="<u2").astype(np.int64)
    return words % (2 * largest + 1) - largest
