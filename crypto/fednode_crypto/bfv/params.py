"""Parameters of scheme `bfv`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from fednode_crypto.errors import WrongParameters
from fednode_crypto.hazmat.modular import is_prime, seal_primes
from fednode_crypto.params import LARGEST_MODULUS_BITS, SumParams, lane_span

MOST_LANES: Final = 16


@dataclass(frozen=True, slots=True)
class BfvParams(SumParams):
    """Well-formed parameters of scheme `bfv`; `bfv.planner.noise_bounds` checks that they have headroom for the noise.

    `prime_bits` are the sizes of the primes; the last prime carries no data.
    """

    scheme: ClassVar = "bfv"
    OWN_LIMITS: ClassVar[Mapping[str, tuple[int, int]]] = {
        "lanes": (1, MOST_LANES),
        "plain_modulus": (3, (1 << 60) - 1),
    }

    prime_bits: tuple[int, ...]
    plain_modulus: int

    def _check(self) -> None:
        self._check_primes()
        t = self.plain_modulus
        if t % (2 * self.ring_degree) != 1 or not is_prime(t) or t.bit_length() in self.prime_bits:
            raise WrongParameters("plain_modulus must be a prime, 1 mod twice the ring degree, of a size of its own")
        if self.lanes * self.lane_bits > 62:
            raise WrongParameters("all lanes of a slot must fit 62 bits: take fewer or narrower ones")
        if 2 * lane_span(self.value_bound, self.lanes, self.lane_bits) >= t - 1:
            raise WrongParameters("the packed sum does not fit the plain modulus: take fewer lanes")

    def _check_primes(self) -> None:
        sizes = self.prime_bits
        if type(sizes) is not tuple or not 2 <= len(sizes) <= 5 or any(type(b) is not int for b in sizes):
            raise WrongParameters("prime_bits must be two to five whole numbers")
        if any(not 30 <= b <= 60 for b in sizes) or len(set(sizes[:-1])) != 1:
            raise WrongParameters("the primes must have 30 to 60 bits, all but the last one the same number")
        if sum(sizes) > LARGEST_MODULUS_BITS[self.ring_degree]:
            raise WrongParameters("the modulus is too large for 128 bits of security: take fewer or smaller primes")

    @property
    def data_bits(self) -> int:
        """Bits of one residue that travels."""
        return self.prime_bits[0]

    @property
    def data_primes(self) -> int:
        """Number of primes that carry data."""
        return len(self.prime_bits) - 1

    @property
    def primes(self) -> tuple[int, ...]:
        """All primes, in SEAL's order; the last one carries no data."""
        return seal_primes(self.ring_degree, self.prime_bits)

    @property
    def polynomial_bytes(self) -> int:
        """Bytes of one polynomial over the data primes, bit-packed."""
        return self.data_primes * self.data_bits * self.ring_degree // 8

    @property
    def payload_bytes(self) -> int:
        """Exact bytes of one sealed update: two polynomials a block."""
        return 2 * self.blocks * self.polynomial_bytes

    @property
    def request_bytes(self) -> int:
        """Exact bytes of what a holder needs: one polynomial a block."""
        return self.blocks * self.polynomial_bytes

    @property
    def answer_bytes(self) -> int:
        """Exact bytes of one holder's answer: one polynomial a block."""
        return self.blocks * self.polynomial_bytes
