"""What goes into a sum and comes out: checked values; and, for `bfv`, values to slots and back.

Several values of the sum share one slot, in balanced digits of base 2^lane_bits.
"""

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.errors import Overflow, Tampered
from fednode_crypto.params import SumParams


def checked_values(values: NDArray[np.int64], params: SumParams) -> NDArray[np.int64]:
    """Return `values` if they are int64, (dimension,), each within the bound.

    ValueError for another type or shape, Overflow for a value out of bound; the message does not name the value.
    """
    if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.shape != (params.dimension,):
        raise ValueError(f"give the values as an int64 array of shape ({params.dimension},)")
    if values.min() < -params.value_bound or values.max() > params.value_bound:
        raise Overflow(f"a value lies outside +-{params.value_bound}: plan the sum with a larger value_bound")
    return values


def to_slots(values: NDArray[np.int64], params: BfvParams) -> NDArray[np.int64]:
    """Return slots (blocks, ring_degree) that hold `values`; adding slots adds values.

    Value i stands in lane i // (blocks * ring_degree); what is left over is 0. Raises as `checked_values`.
    """
    room = params.blocks * params.ring_degree
    lanes = np.zeros(params.lanes * room, dtype=np.int64)
    lanes[: params.dimension] = checked_values(values, params)
    slots = np.zeros(room, dtype=np.int64)
    for lane in range(params.lanes):
        slots += lanes[lane * room : (lane + 1) * room] << (lane * params.lane_bits)
    return slots.reshape(params.blocks, params.ring_degree)


def from_slots(slots: NDArray[np.int64], params: BfvParams) -> NDArray[np.int64]:
    """Return the (dimension,) values in `slots`.

    Raises Tampered when a slot is not a sum of honest ones: a digit out of bound, or anything where 0 must be.
    """
    rest = slots.reshape(-1).copy()
    half, mask = np.int64(1 << (params.lane_bits - 1)), np.int64((1 << params.lane_bits) - 1)
    digits = []
    for _ in range(params.lanes):
        digit = ((rest + half) & mask) - half
        digits.append(digit)
        rest = (rest - digit) >> params.lane_bits
    if rest.any():
        raise _impossible()
    return checked_sum(np.concatenate(digits), params)


def checked_sum(values: NDArray[np.int64], params: SumParams) -> NDArray[np.int64]:
    """Return the first `dimension` of the opened `values`, all lanes end to end.

    Raises Tampered when they are not a sum of honest ones: one out of bound, or anything where 0 must be.
    """
    bound = params.value_bound
    if values[params.dimension :].any() or values.min() < -bound or values.max() > bound:
        raise _impossible()
    return values[: params.dimension]


def _impossible() -> Tampered:
    return Tampered("the opened sum has values that no honest updates add up to: do not use it")
