"""Scheme `ring`: the parameters that serve a demand."""

from collections.abc import Iterator
from dataclasses import asdict

from fednode_crypto.errors import WrongParameters
from fednode_crypto.params import Demand
from fednode_crypto.ring.params import MOST_LANES, PRIME_BITS, RingParams, small_bound


def candidates(demand: Demand) -> Iterator[RingParams]:
    """Yield, for each ring and number of lanes, the parameters with the least shift that serve `demand`."""
    lane_bits = demand.value_bound.bit_length() + 1
    shift = (2 * small_bound(demand.summands)).bit_length()
    for degree, sizes in PRIME_BITS.items():
        for lanes in range(1, min(MOST_LANES, sum(sizes) // lane_bits) + 1):
            try:
                yield RingParams(**asdict(demand), ring_degree=degree, lanes=lanes, lane_bits=lane_bits, shift=shift)
            except WrongParameters:
                break
