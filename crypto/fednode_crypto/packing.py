"""Checks of the values that go into a sum and come out of it, for every scheme."""

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.errors import Overflow, Tampered
from fednode_crypto.params import SumParams


def checked_values(values: NDArray[np.int64], params: SumParams) -> NDArray[np.int64]:
    """Return `values` if they are int64, (dimension,), each within the bound.

    ValueError for another type or shape, Overflow for a value out of bound; the message does not show the value.
    """
    if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.shape != (params.dimension,):
        raise ValueError(f"give the values as an int64 array of shape ({params.dimension},)")
    if values.min() < -params.value_bound or values.max() > params.value_bound:
        raise Overflow(f"a value lies outside +-{params.value_bound}: plan the sum with a larger value_bound")
    return values


def checked_sum(values: NDArray[np.int64], params: SumParams) -> NDArray[np.int64]:
    """Return the first `dimension` of the opened `values`, all lanes end to end.

    Raises Tampered if they are no sum of honest ones: one out of bound, or a value in an unused lane.
    """
    bound = params.value_bound
    if values[params.dimension :].any() or values.min() < -bound or values.max() > bound:
        raise impossible_sum()
    return values[: params.dimension]


def impossible_sum() -> Tampered:
    """Return the error for an opened sum that honest updates cannot add up to."""
    return Tampered("the opened sum has values that honest updates cannot add up to: do not use it")
