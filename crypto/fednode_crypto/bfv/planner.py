"""Scheme `bfv`: how much noise honest parties make, and the parameters that leave headroom for it.

Noise is bounded by sub-Gaussian tails, with a union bound over everything that a task can draw, never by experience.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Final

from fednode_crypto.bfv.params import MOST_LANES, BfvParams
from fednode_crypto.errors import WrongParameters
from fednode_crypto.hazmat.lagrange import amplification, lift, opening_growth
from fednode_crypto.hazmat.modular import largest_primes
from fednode_crypto.params import LARGEST_MODULUS_BITS, Demand, lane_span
from fednode_crypto.tail_bounds import TASK_DRAWS, noise_tail

DEGREE: Final = 8192
SMUDGING_BITS: Final = 40
"""Smudging has a standard deviation of 2^40 times the largest noise it hides."""

SMUDGING_STEP_BITS: Final = 40
"""The variance of smudging is a multiple of 4^40: it is drawn as 2^40 times a coarse Gaussian plus a fine one."""

_MARGIN_BITS: Final = 6
"""The largest honest residual is 2^-6 of the gap: a random coefficient passes with that chance, thousands never do."""

_LARGEST_ERROR: Final = 64
"""No coefficient of a key's or payload's error: 14 standard deviations of ours (3.2); SEAL cuts its own at 21."""

_SMALLEST_PLAIN: Final = 20
_PRIME_SIZES: Final = range(30, 61)


@dataclass(frozen=True, slots=True)
class NoiseBounds:
    """How much noise honest parties make under some parameters; each bound fails with chance < 2^-128 in a task.

    `payload`: the noise of a full sum of payloads, in one coefficient. `smudging`: the variance of what a holder adds
    to its answer. `residual`: the noise of an opened sum, at the scale at which it is opened.
    """

    payload: int
    smudging: int
    residual: int


@lru_cache(maxsize=4096)
def _noise_bounds(summands: int, degree: int, special_bits: int, holders: int, threshold: int) -> NoiseBounds:
    # a payload's noise: rounding when SEAL drops the special prime, r0 + r1 s with |r| <= 1/2 uniform and |s| <= k;
    # rounding of the scaled message, at most 1/2; the ring-LWE error divided by the special prime
    rounding = Fraction(summands * (1 + holders * holders * degree), 4)
    error = (2 * degree * holders + 1) * _LARGEST_ERROR
    payload = noise_tail(rounding, TASK_DRAWS) + summands + 1 + (summands * error >> (special_bits - 1))
    shown = payload * amplification(holders, threshold)
    step = 2 * SMUDGING_STEP_BITS
    smudging = -(-((shown << SMUDGING_BITS) ** 2) >> step) << step
    scale, squares = opening_growth(holders, threshold)
    return NoiseBounds(payload, smudging, scale * payload + noise_tail(smudging * squares, TASK_DRAWS))


def noise_bounds(params: BfvParams) -> NoiseBounds:
    """Return the noise of honest parties under `params`.

    Raises WrongParameters if an honest opening could fail, or junk could pass for one.
    """
    found = _noise_bounds(params.summands, params.ring_degree, params.prime_bits[-1], params.holders, params.threshold)
    if prod(params.primes[:-1]) < (2 * params.plain_modulus * found.residual) << _MARGIN_BITS:
        raise WrongParameters(
            f"{params.data_primes} primes of {params.data_bits} bits leave no headroom for the noise of "
            f"{params.summands} updates and {params.holders} holders: take parameters from `plan`"
        )
    if lift(params.holders, params.threshold) % params.plain_modulus == 0:
        raise WrongParameters("the plain modulus divides the opening scale: take parameters from `plan`")
    return found


def candidates(demand: Demand) -> Iterator[BfvParams]:
    """Yield the smallest parameters for each number of lanes and primes that serve `demand`."""
    lane_bits = demand.value_bound.bit_length() + 1
    for lanes in range(1, min(MOST_LANES, 62 // lane_bits) + 1):
        plain = _plain_modulus(demand.value_bound, lanes, lane_bits)
        for data_primes in range(1, 5) if plain else ():
            if sizes := _prime_sizes(demand, plain, data_primes):
                yield BfvParams(
                    **asdict(demand),
                    ring_degree=DEGREE,
                    lanes=lanes,
                    lane_bits=lane_bits,
                    prime_bits=sizes,
                    plain_modulus=plain,
                )


def _plain_modulus(value_bound: int, lanes: int, lane_bits: int) -> int:
    """Return the largest prime of the least size of which at most 7 of 8 residues are sums within the bound, or 0."""
    span = lane_span(value_bound, lanes, lane_bits)
    valid = (2 * value_bound + 1) ** lanes
    for bits in range(max(_SMALLEST_PLAIN, span.bit_length()), 61):
        (prime,) = largest_primes(DEGREE, bits, 1)
        if 2 * span < prime - 1 and 8 * valid <= 7 * prime:
            return prime
    return 0


def _prime_sizes(demand: Demand, plain: int, data_primes: int) -> tuple[int, ...]:
    """Return the smallest sizes of primes with headroom for all noise at 128 bits of security; empty if none."""
    for size in _PRIME_SIZES:
        bits_left = min(60, LARGEST_MODULUS_BITS[DEGREE] - data_primes * size)
        special = bits_left - (bits_left == plain.bit_length())
        if special < _PRIME_SIZES[0] or size == plain.bit_length():
            continue
        noise = _noise_bounds(demand.summands, DEGREE, special, demand.holders, demand.threshold)
        sizes = (size,) * data_primes
        needed = (2 * plain * noise.residual) << _MARGIN_BITS
        if (data_primes * size) >= needed.bit_length() and _product(size, data_primes, special) >= needed:
            return (*sizes, special)
    return ()


def _product(size: int, data_primes: int, special: int) -> int:
    # a special prime of the same size is the largest of the pool: SEAL gives the smallest first
    drawn = largest_primes(DEGREE, size, data_primes + (special == size))
    return prod(drawn[-data_primes:])
