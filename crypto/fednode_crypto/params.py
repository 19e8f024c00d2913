"""Parameters of a secure sum: what a task demands, and the base of each scheme's own type."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Self

from fednode_crypto.canonical import canonical
from fednode_crypto.errors import WrongParameters
from fednode_crypto.hazmat.boxes import OVERHEAD

LARGEST_DIMENSION: Final = 1 << 28
LARGEST_COHORT: Final = 1 << 20
LARGEST_VALUE: Final = 1 << 58
MOST_HOLDERS: Final = 10
LARGEST_MODULUS_BITS: Final[Mapping[int, int]] = {4096: 109, 8192: 218}
"""Bits of q for 128 bits of security with ternary secrets: HomomorphicEncryption.org standard (2018), table 1."""

_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "dimension": (1, LARGEST_DIMENSION),
    "summands": (1, LARGEST_COHORT),
    "value_bound": (1, LARGEST_VALUE),
    "ring_degree": (4096, 8192),
    "lane_bits": (2, 60),
    "holders": (1, MOST_HOLDERS),
    "threshold": (1, MOST_HOLDERS),
}


def _check_integers(document: object, limits: Mapping[str, tuple[int, int]]) -> None:
    for name, (low, high) in limits.items():
        value = getattr(document, name)
        if type(value) is not int or not low <= value <= high:
            raise WrongParameters(f"{name} must be a whole number from {low} to {high}: ask for other sum parameters")


def _check_threshold(threshold: int, holders: int) -> None:
    if threshold > holders:
        raise WrongParameters(f"{threshold} of {holders} holders cannot open: lower the threshold")


def lane_span(value_bound: int, lanes: int, lane_bits: int) -> int:
    """Return the largest magnitude of `lanes` values, each within the bound, packed in base 2^lane_bits."""
    return value_bound * sum(1 << (lane_bits * lane) for lane in range(lanes))


@dataclass(frozen=True, slots=True)
class Demand:
    """What a task needs of a secure sum under any scheme: `summands` is the most updates in one sum.

    `value_bound` bounds the magnitude of each coordinate of the final sum, the tail of the noise (`noise_tail`)
    included. Raises WrongParameters if a field is not a whole number within its limits.
    """

    dimension: int
    summands: int
    value_bound: int
    holders: int
    threshold: int

    def __post_init__(self) -> None:
        _check_integers(self, {field.name: _LIMITS[field.name] for field in fields(self)})
        _check_threshold(self.threshold, self.holders)


@dataclass(frozen=True, slots=True)
class SumParams(ABC):
    """The parameters of one secure sum. Build them with `plan`, or with `params_from_dict` from what a peer sent.

    Every instance is well formed: each field within its limits, security of 128 bits, lanes wide enough for the sum.
    `value_bound` bounds each coordinate of the final sum, the tail of the noise included; values are integers.
    `lanes` values of `lane_bits` bits share a slot (`bfv`) or a coefficient (`ring`). Raises WrongParameters.
    """

    scheme: ClassVar[str]
    OWN_LIMITS: ClassVar[Mapping[str, tuple[int, int]]]

    dimension: int
    summands: int
    value_bound: int
    ring_degree: int
    lanes: int
    lane_bits: int
    holders: int
    threshold: int

    def __post_init__(self) -> None:
        _check_integers(self, {**_LIMITS, **self.OWN_LIMITS})
        if self.ring_degree not in LARGEST_MODULUS_BITS:
            raise WrongParameters("ring_degree must be 4096 or 8192")
        _check_threshold(self.threshold, self.holders)
        if self.value_bound >> (self.lane_bits - 1):
            raise WrongParameters("a lane must hold the sum and its sign: take more lane_bits")
        self._check()

    @classmethod
    def of(cls, params: "SumParams") -> Self:
        """Return `params` itself. Raises WrongParameters if it belongs to another scheme."""
        if not isinstance(params, cls):
            raise WrongParameters(f"these are parameters of scheme '{params.scheme}': use that scheme")
        return params

    @abstractmethod
    def _check(self) -> None:
        """Raise WrongParameters if the fields, each within its limits, do not fit each other."""

    @property
    @abstractmethod
    def payload_bytes(self) -> int:
        """Exact size of one sealed update, without its boxes."""

    @property
    def share_bytes(self) -> int:
        """Exact size of the share that a client sends each holder in a box; 0 if the scheme has no boxes."""
        return 0

    @property
    def check_bytes(self) -> int:
        """Exact size of what shows the holders that a client's shares belong together; 0 if the scheme has no boxes."""
        return 0

    @property
    def request_bytes(self) -> int:
        """Exact size of the part of the sum that a holder needs; 0 if it needs none."""
        return 0

    @property
    @abstractmethod
    def answer_bytes(self) -> int:
        """Exact size of one holder's answer."""

    @property
    def blocks(self) -> int:
        """Polynomials (`ring`) or ciphertexts (`bfv`) in one payload."""
        return -(-self.dimension // (self.lanes * self.ring_degree))

    @property
    def upload_bytes(self) -> int:
        """Size of one update with the boxes of all holders, without signatures and headers."""
        return self.payload_bytes + (self.holders * (self.share_bytes + OVERHEAD) if self.share_bytes else 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the scheme and all fields as JSON-safe values; `params_from_dict` is the inverse."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"scheme": self.scheme} | {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}

    def digest(self) -> bytes:
        """Return 32 bytes that identify these parameters: SHA-256 of their canonical JSON."""
        return hashlib.sha256(b"fednode/sum-params/1\n" + canonical(self.to_dict())).digest()
