"""Values to the slots of BFV plaintexts and back: several values share one slot, in balanced digits of 2^lane_bits."""

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.packing import checked_sum, checked_values, impossible_sum


def to_slots(values: NDArray[np.int64], params: BfvParams) -> NDArray[np.int64]:
    """Return slots (blocks, ring_degree) that hold `values`; adding slots adds values.

    Value i stands in lane i // (blocks * ring_degree); unused lanes are 0. Raises as `checked_values`.
    """
    size = params.blocks * params.ring_degree
    lanes = np.zeros(params.lanes * size, dtype=np.int64)
    lanes[: params.dimension] = checked_values(values, params)
    slots = np.zeros(size, dtype=np.int64)
    for lane in range(params.lanes):
        slots += lanes[lane * size : (lane + 1) * size] << (lane * params.lane_bits)
    return slots.reshape(params.blocks, params.ring_degree)


def from_slots(slots: NDArray[np.int64], params: BfvParams) -> NDArray[np.int64]:
    """Return the (dimension,) values in `slots`.

    Raises Tampered if a slot is no sum of honest ones: a digit out of bound, or a value in an unused lane.
    """
    rest = slots.reshape(-1).copy()
    half, mask = np.int64(1 << (params.lane_bits - 1)), np.int64((1 << params.lane_bits) - 1)
    digits = []
    for _ in range(params.lanes):
        digit = ((rest + half) & mask) - half
        digits.append(digit)
        rest = (rest - digit) >> params.lane_bits
    if rest.any():
        raise impossible_sum()
    return checked_sum(np.concatenate(digits), params)
