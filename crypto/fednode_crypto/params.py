"""What both sides of a secure sum must agree on, as data."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from re import fullmatch
from typing import Any, Final, Self

from fednode_crypto.errors import WrongParameters
from fednode_crypto.hazmat.modular import is_prime, seal_primes

LARGEST_DIMENSION: Final = 1 << 28
LARGEST_COHORT: Final = 1 << 20
LARGEST_VALUE: Final = 1 << 58
MOST_HOLDERS: Final = 10
MOST_LANES: Final = 16
LARGEST_MODULUS_BITS: Final[Mapping[int, int]] = {4096: 109, 8192: 218}
"""Bits of q for 128 bits of security with ternary secrets: HomomorphicEncryption.org standard (2018), table 1."""

_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "dimension": (1, LARGEST_DIMENSION),
    "summands": (1, LARGEST_COHORT),
    "value_bound": (1, LARGEST_VALUE),
    "ring_degree": (4096, 8192),
    "plain_modulus": (3, (1 << 60) - 1),
    "lanes": (1, MOST_LANES),
    "lane_bits": (2, 60),
    "holders": (1, MOST_HOLDERS),
    "threshold": (1, MOST_HOLDERS),
}


def checked_integer(name: str, value: object) -> int:
    """Return `value` when it is an integer within the limits of the field `name`, else raise WrongParameters."""
    low, high = _LIMITS[name]
    if type(value) is not int or not low <= value <= high:
        raise WrongParameters(f"{name} must be a whole number from {low} to {high}: ask for other sum parameters")
    return value


def lane_span(value_bound: int, lanes: int, lane_bits: int) -> int:
    """Return the largest magnitude of `lanes` values, each within the bound, packed in base 2^lane_bits."""
    return value_bound * sum(1 << (lane_bits * lane) for lane in range(lanes))


@dataclass(frozen=True, slots=True)
class SumParams:
    """The parameters of one secure sum. Build them with `plan`, or with `from_dict` from what a peer sent.

    Any instance is well formed: every field within its limits, security of 128 bits, the lanes wide enough for the sum.
    `value_bound` holds for each coordinate of the final sum, the tail of the noise included; values are integers.
    `prime_bits` are the sizes of the primes, the last of which carries no data. Raises WrongParameters.
    """

    scheme: str
    dimension: int
    summands: int
    value_bound: int
    ring_degree: int
    prime_bits: tuple[int, ...]
    plain_modulus: int
    lanes: int
    lane_bits: int
    holders: int
    threshold: int

    def __post_init__(self) -> None:
        if type(self.scheme) is not str or not fullmatch("[a-z][a-z-]{0,31}", self.scheme):
            raise WrongParameters("scheme must be a short name such as 'bfv'")
        for name in _LIMITS:
            checked_integer(name, getattr(self, name))
        self._check_primes()
        self._check_lanes()
        if self.threshold > self.holders:
            raise WrongParameters(f"{self.threshold} of {self.holders} holders cannot open: lower the threshold")

    def _check_primes(self) -> None:
        sizes = self.prime_bits
        if type(sizes) is not tuple or not 2 <= len(sizes) <= 5 or any(type(b) is not int for b in sizes):
            raise WrongParameters("prime_bits must be two to five whole numbers")
        if any(not 30 <= b <= 60 for b in sizes) or len(set(sizes[:-1])) != 1:
            raise WrongParameters("the primes must have 30 to 60 bits, all but the last one the same number")
        if sum(sizes) > LARGEST_MODULUS_BITS.get(self.ring_degree, 0):
            raise WrongParameters("the modulus is too large for 128 bits of security: take fewer or smaller primes")

    def _check_lanes(self) -> None:
        t = self.plain_modulus
        if t % (2 * self.ring_degree) != 1 or not is_prime(t) or t.bit_length() in self.prime_bits:
            raise WrongParameters("plain_modulus must be a prime, 1 mod twice the ring degree, of a size of its own")
        if self.value_bound >> (self.lane_bits - 1) or self.lanes * self.lane_bits > 62:
            raise WrongParameters("a lane must hold the sum in at most 62 bits together with its neighbours")
        if 2 * lane_span(self.value_bound, self.lanes, self.lane_bits) >= t - 1:
            raise WrongParameters("the packed sum does not fit the plain modulus: take fewer lanes")

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
    def blocks(self) -> int:
        """Ciphertexts in one payload."""
        return -(-self.dimension // (self.lanes * self.ring_degree))

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

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe values; `from_dict` undoes it."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**values, "prime_bits": list(self.prime_bits)}

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Return the parameters in `document` (what `to_dict` gives, parsed from anyone's bytes).

        Raises WrongParameters for anything else: missing or unknown names, wrong types, values out of their limits.
        """
        names = {f.name for f in fields(cls)}
        if not isinstance(document, Mapping) or set(document) != names:
            raise WrongParameters(f"sum parameters need exactly these names: {', '.join(sorted(names))}")
        sizes = document["prime_bits"]
        if not isinstance(sizes, list | tuple):
            raise WrongParameters("prime_bits must be a list of whole numbers")
        return cls(**{**document, "prime_bits": tuple(sizes)})

    def digest(self) -> bytes:
        """Return 32 bytes that stand for exactly these parameters: SHA-256 of their canonical JSON."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"fednode/sum-params/1\n" + text.encode("ascii")).digest()
