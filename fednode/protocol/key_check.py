"""The vector that holders seal and open to test a new joint key. It is public, so the test reveals nothing."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from fednode_crypto import SumParams

_LARGEST = 100


def known_vector(params: SumParams, context: bytes) -> NDArray[np.int64]:
    """Return int64 [params.dimension], each value from -100 to 100, drawn from SHAKE-256 of `context`."""
    largest = min(_LARGEST, params.value_bound // max(1, params.summands))
    stream = hashlib.shake_256(b"fednode/v1/known-vector" + context).digest(2 * params.dimension)
    words = np.frombuffer(stream, dtype="<u2").astype(np.int64)
    return words % (2 * largest + 1) - largest
