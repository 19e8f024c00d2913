"""Row `exact`: small rounds in which anyone may drop: the opened sum must be the sum of exactly those who are in it.

Drawn for each round: length, bits, committee, how many of the cohort arrive, who is excluded later, order and
grouping of the additions, which holders answer. Boxes and signatures have no part in this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fednode_crypto import Demand, SumParams, SystemRng, plan
from fednode_crypto.errors import CryptoError
from fednode_crypto.interfaces import SealedSum
from fednode_crypto.ring.scheme import RingMask

MOST_CLIENTS: Final = 6
DIMENSIONS: Final = (1, 2, 7, 64, 500)
COMMITTEES: Final = ((2, 2), (3, 2), (5, 4))
BITS: Final = (1, 4, 12, 20)
_SAMPLE: Final = 5

Choice = np.random.Generator


@dataclass(frozen=True, slots=True)
class Arrival:
    """One client's part of a round as the crypto sees it."""

    values: NDArray[np.int64]
    payload: bytes
    shares: Mapping[int, bytes]


def work(seed: int, rounds: int) -> dict[str, Any]:
    """Run `rounds` rounds that depend on `seed`; answer how many differ, and name the first of them."""
    wrong = [number for number in range(rounds) if not holds(seed, number)]
    return {"rounds": rounds, "differences": len(wrong), "first": wrong[:_SAMPLE]}


def holds(seed: int, number: int) -> bool:
    """Run one round and say whether the sum is exact; a scheme that refuses an honest round does not hold either."""
    choice = np.random.default_rng([seed, number])
    holders, threshold = COMMITTEES[choice.integers(len(COMMITTEES))]
    largest = (1 << int(choice.choice(BITS))) - 1
    params = _params(int(choice.choice(DIMENSIONS)), largest, holders, threshold)
    context = b"exact" + bytes([seed % 256]) + number.to_bytes(4, "little")
    try:
        return _round(params, largest, context, choice)
    except CryptoError:
        return False


@lru_cache(maxsize=64)
def _params(dimension: int, largest: int, holders: int, threshold: int) -> SumParams:
    return plan("ring", Demand(dimension, MOST_CLIENTS, MOST_CLIENTS * largest, holders, threshold))


def _round(params: SumParams, largest: int, context: bytes, choice: Choice) -> bool:
    arrivals = [
        _arrival(params, _values(params, largest, choice), context) for _ in range(choice.integers(1, MOST_CLIENTS + 1))
    ]
    struck = choice.random(len(arrivals)) < 0.25
    struck[choice.integers(len(arrivals))] = False
    kept = [arrival for arrival, out in zip(arrivals, struck, strict=True) if not out]
    total = _folded(params, arrivals, choice)
    for arrival, out in zip(arrivals, struck, strict=True):
        total = total.subtract(arrival.payload) if out else total
    answering = choice.permutation(params.holders)[: choice.integers(params.threshold, params.holders + 1)] + 1
    answers = {
        int(point): RingMask().answer(params, [arrival.shares[int(point)] for arrival in kept]) for point in answering
    }
    found = RingMask().combine(params, total, answers, context)
    return np.array_equal(found, np.sum([arrival.values for arrival in kept], axis=0))


def _values(params: SumParams, largest: int, choice: Choice) -> NDArray[np.int64]:
    kind = choice.integers(4)
    if kind == 0:
        return np.full(params.dimension, largest * choice.choice([-1, 0, 1]), dtype=np.int64)
    return choice.integers(-largest, largest + 1, params.dimension)


def _arrival(params: SumParams, values: NDArray[np.int64], context: bytes) -> Arrival:
    sealing = RingMask().sealer(params).seal(values, SystemRng(), context)
    return Arrival(values, sealing.payload, sealing.shares)


def _folded(params: SumParams, arrivals: list[Arrival], choice: Choice) -> SealedSum:
    order = choice.permutation(len(arrivals))
    cut = int(choice.integers(len(arrivals) + 1))
    halves = []
    for part in (order[:cut], order[cut:]):
        half = RingMask().zero(params)
        for index in part:
            half.absorb(arrivals[index].payload)
        halves.append(half)
    return halves[0].merge(halves[1])
