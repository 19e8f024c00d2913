"""Parameters of scheme `ring`. Every instance is safe to use: the constructor checks every bound."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import ClassVar, Final

from fednode_crypto.errors import WrongParameters
from fednode_crypto.hazmat.modular import largest_primes, seal_primes
from fednode_crypto.params import SumParams, lane_span
from fednode_crypto.tail_bounds import TASK_DRAWS, noise_tail

PRIME_BITS: Final[Mapping[int, tuple[int, ...]]] = {4096: (54, 55), 8192: (54, 54, 55, 55)}
"""All that `LARGEST_MODULUS_BITS` allows: a longer modulus carries more lanes for the same noise."""

MASK_VARIANCE: Final = Fraction(1024, 25)
"""Variance of a client's secret and error: width 6.4. An opening reveals a hint, their sums; with two or more honest
clients it leaves ring-LWE of width 3.2 (see `fednode_crypto.ring.scheme`), which the security table is about."""

MOST_LANES: Final = 128

_JUNK: Final = (7, 8)
"""At most 7 of 8 residues mod q are valid in an honest sum, so thousands of random ones are never all valid."""


@lru_cache(maxsize=4096)
def small_bound(summands: int) -> int:
    """Return the bound of every coefficient of the sums of secrets and of errors; it fails with 2^-128 in a whole task.

    A discrete Gaussian is sub-Gaussian with its own variance (Canonne, Kamath, Steinke 2020); cutting its tails, as the
    sampler does, only makes it narrower.
    """
    return noise_tail(MASK_VARIANCE * summands, TASK_DRAWS)


@lru_cache(maxsize=256)
def share_prime(bound: int) -> int:
    """Return the prime over which numbers of magnitude `bound` are shared: the largest of the fewest bits."""
    bits = (2 * bound).bit_length()
    while (found := largest_primes(1, bits, 1)[0]) <= 2 * bound:
        bits += 1
    return found


@dataclass(frozen=True, slots=True)
class RingParams(SumParams):
    """Parameters of scheme `ring`. Honest sums fit and open, except with a chance of 2^-128 in a whole task.

    A coefficient carries its lanes times 2^`shift`; the error of the sum is below them.
    """

    scheme: ClassVar = "ring"
    OWN_LIMITS: ClassVar[Mapping[str, tuple[int, int]]] = {"lanes": (1, MOST_LANES), "shift": (1, 40)}

    shift: int

    def _check(self) -> None:
        q, small = prod(self.primes), self.small
        if 2 * small >> self.shift:
            raise WrongParameters(
                f"errors of {self.summands} updates do not fit {self.shift} bits: take a larger shift"
            )
        span = lane_span(self.value_bound, self.lanes, self.lane_bits)
        if 2 * ((span << self.shift) + small) >= q:
            raise WrongParameters("the packed sum does not fit the modulus: take fewer lanes")
        if _JUNK[1] * (2 * small + 1) * (2 * self.value_bound + 1) ** self.lanes > _JUNK[0] * q:
            raise WrongParameters("the packed sum fills the modulus, and junk could pass for one: take fewer lanes")

    @property
    def primes(self) -> tuple[int, ...]:
        """The primes of the modulus, smallest size first, in SEAL's order."""
        return seal_primes(self.ring_degree, PRIME_BITS[self.ring_degree])

    @property
    def small(self) -> int:
        """Largest magnitude of a coefficient of the sum of honest secrets, and of the sum of errors."""
        return small_bound(self.summands)

    @property
    def share_prime(self) -> int:
        """The prime over which secrets are shared: above twice `small`."""
        return share_prime(self.small)

    @property
    def payload_bytes(self) -> int:
        """Exact bytes of one sealed update without its boxes: one polynomial a block."""
        return self.blocks * sum(PRIME_BITS[self.ring_degree]) * self.ring_degree // 8

    @property
    def check_rows(self) -> int:
        """The fewest rows L of the check of shares with share_prime^L >= 2^128."""
        return next(rows for rows in range(1, 129) if self.share_prime**rows >> 128)

    @property
    def share_bytes(self) -> int:
        """Exact bytes of a share: a number mod `share_prime` a coefficient and a row of the check, in whole words."""
        return 8 * -(-(self.ring_degree + self.check_rows) * self.share_prime.bit_length() // 64)

    @property
    def check_bytes(self) -> int:
        """Exact bytes of the check of a client's shares: `threshold` coefficients of each row."""
        return -(-self.threshold * self.check_rows * self.share_prime.bit_length() // 8)

    @property
    def answer_bytes(self) -> int:
        """Exact bytes of one holder's answer, whatever the dimension: one number mod `share_prime` a coefficient."""
        return self.ring_degree * self.share_prime.bit_length() // 8
