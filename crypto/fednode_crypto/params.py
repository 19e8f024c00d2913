"""What both sides of a secure sum must agree on, as data: one frozen type a scheme, one way in from bytes."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

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


def checked_integer(name: str, value: object, limits: Mapping[str, tuple[int, int]] = _LIMITS) -> int:
    """Return `value` when it is an integer within the limits of the field `name`, else raise WrongParameters."""
    low, high = limits[name]
    if type(value) is not int or not low <= value <= high:
        raise WrongParameters(f"{name} must be a whole number from {low} to {high}: ask for other sum parameters")
    return value


def lane_span(value_bound: int, lanes: int, lane_bits: int) -> int:
    """Return the largest magnitude of `lanes` values, each within the bound, packed in base 2^lane_bits."""
    return value_bound * sum(1 << (lane_bits * lane) for lane in range(lanes))


@dataclass(frozen=True, slots=True)
class SumParams(ABC):
    """The parameters of one secure sum. Build them with `plan`, or with `from_dict` from what a peer sent.

    Any instance is well formed: every field within its limits, security of 128 bits, the lanes wide enough for the sum.
    `value_bound` holds for each coordinate of the final sum, the tail of the noise included; values are integers.
    `lanes` values of `lane_bits` bits share a slot (`bfv`) or a coefficient (`ring`). Raises WrongParameters.
    """

    SCHEME: ClassVar[str]
    OWN_LIMITS: ClassVar[Mapping[str, tuple[int, int]]]

    scheme: str
    dimension: int
    summands: int
    value_bound: int
    ring_degree: int
    lanes: int
    lane_bits: int
    holders: int
    threshold: int

    def __post_init__(self) -> None:
        if type(self.scheme) is not str or self.scheme != self.SCHEME:
            raise WrongParameters(f"these are fields of scheme '{self.SCHEME}': name it so")
        limits = {**_LIMITS, **self.OWN_LIMITS}
        for name in limits:
            checked_integer(name, getattr(self, name), limits)
        if self.ring_degree not in LARGEST_MODULUS_BITS:
            raise WrongParameters("ring_degree must be 4096 or 8192")
        if self.threshold > self.holders:
            raise WrongParameters(f"{self.threshold} of {self.holders} holders cannot open: lower the threshold")
        if self.value_bound >> (self.lane_bits - 1):
            raise WrongParameters("a lane must hold the sum and its sign: take more lane_bits")
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Raise WrongParameters when the fields, each within its limits, do not belong together."""

    @property
    @abstractmethod
    def payload_bytes(self) -> int:
        """Exact bytes of one sealed update, its boxes not counted."""

    @property
    @abstractmethod
    def share_bytes(self) -> int:
        """Exact bytes of what a client sends each holder in a box; 0 when there are no boxes."""

    @property
    @abstractmethod
    def request_bytes(self) -> int:
        """Exact bytes that a holder needs of the sum; 0 when it needs none."""

    @property
    @abstractmethod
    def answer_bytes(self) -> int:
        """Exact bytes of one holder's answer."""

    @property
    def blocks(self) -> int:
        """Polynomials (`ring`) or ciphertexts (`bfv`) in one payload."""
        return -(-self.dimension // (self.lanes * self.ring_degree))

    @property
    def upload_bytes(self) -> int:
        """Bytes of one update with the boxes of all holders, signatures and headers not counted."""
        return self.payload_bytes + (self.holders * (self.share_bytes + OVERHEAD) if self.share_bytes else 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe values; `from_dict` undoes it."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @staticmethod
    def from_dict(document: object) -> "SumParams":
        """Return the parameters in `document` (what `to_dict` gives, parsed from anyone's bytes), of its scheme's type.

        Raises WrongParameters for anything else: missing or unknown names, wrong types, values out of their limits.
        """
        kinds = _kinds()
        name = document.get("scheme") if isinstance(document, Mapping) else None
        kind = kinds.get(name) if isinstance(name, str) else None
        if kind is None or not isinstance(document, Mapping):
            raise WrongParameters(f"sum parameters must name their scheme: {' or '.join(kinds)}")
        names = {f.name for f in fields(kind)}
        if set(document) != names:
            raise WrongParameters(f"sum parameters need exactly these names: {', '.join(sorted(names))}")
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in document.items()}
        return kind(**values)

    def digest(self) -> bytes:
        """Return 32 bytes that stand for exactly these parameters: SHA-256 of their canonical JSON."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"fednode/sum-params/1\n" + text.encode("ascii")).digest()


def _kinds() -> dict[str, type[SumParams]]:
    from fednode_crypto.bfv.params import BfvParams
    from fednode_crypto.ring.params import RingParams

    return {kind.SCHEME: kind for kind in (BfvParams, RingParams)}
