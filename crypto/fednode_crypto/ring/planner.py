"""Scheme `ring`: the parameters that serve a demand."""

from collections.abc import Iterator

from fednode_crypto.demand import Demand
from fednode_crypto.errors import WrongParameters
from fednode_crypto.ring.params import MOST_LANES, PRIME_BITS, RingParams, small_bound


def candidates(demand: Demand) -> Iterator[RingParams]:
    """Yield, for each ring and number of lanes, the parameters with the least shift that serve `demand`."""
    lane_bits = demand.value_bound.bit_length() + 1
    shift = (2 * small_bound(demand.summands)).bit_length()
    for degree, sizes in PRIME_BITS.items():
        for lanes in range(1, min(MOST_LANES, sum(sizes) // lane_bits) + 1):
            try:
                yield RingParams(
                    scheme="ring",
                    dimension=demand.dimension,
                    summands=demand.summands,
                    value_bound=demand.value_bound,
                    ring_degree=degree,
                    lanes=lanes,
                    lane_bits=lane_bits,
                    holders=demand.holders,
                    threshold=demand.threshold,
                    shift=shift,
                )
            except WrongParameters:
                break
