"""The specification of a round: all that a client needs to judge it, under one digest that every message names."""

import math
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import cast

from fednode.errors import PeerFault
from fednode.reasons import Reason
from fednode.units import require_unit
from fednode.wire import Fields, canonical, digest
from fednode_crypto import SumParams, WrongParameters, params_from_dict

KEY_CHECK_ROUND = 0
"""The round in which the holders open a known vector; training starts with round 1."""

MAX_STALENESS = 1_000
"""The most versions that an update may lag behind."""

MAX_GRID_BITS = 40

MOST_ROTATED = 1 << 16
"""The most records of a rotated sum: floats then move it by less than the part of mu^2 that a plan keeps back."""

ROUNDING_CHANCE = 2.0**-140
"""The chance that `rounded_norm` is too small."""

_ROUNDING_TAIL = math.sqrt(2.0 * 140.0 * math.log(2.0))


def rounded_norm(norm: float, dimension: int) -> float:
    """Return the most L2 norm of a vector of at most `norm` grid steps after stochastic rounding to integers.

    Two vectors that are rounded with the same coins differ by the stochastic rounding of their difference, so this also
    bounds how far one unit moves a rounded sum. Source: Kairouz, Liu and Steinke 2021 (arXiv:2102.06387), Proposition
    22, at beta = `ROUNDING_CHANCE`, without a redraw; for any coins at most norm + sqrt(dimension).
    """
    root = math.sqrt(dimension)
    likely = norm * norm + dimension / 4.0 + _ROUNDING_TAIL * (norm + root / 2.0)
    return min(math.sqrt(likely), norm + root)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a round. In a task only the noise differs from round to round, and a staleness that was lowered.

    `unit` is what is protected, of `fednode.units`, and `clip` the L2 bound of one (model units). The grid step is
    2^-grid_bits, `local_variance` the noise of one client per coordinate in grid steps squared, `max_records` the most
    units in one client's sum, `divisor` the public number by which the opened sum is divided. `min_survivors -
    assumed_colluders` shares of noise add up to the target. An update may be computed from a model up to `staleness`
    versions older than the round's. If `rotated`, each sum is rotated as the spec's digest says before it is rounded.
    With an `adaptive_clip`, the round's own (`fednode.privacy.adaptive`), the sum has one value beside the model's.
    """

    unit: str
    clip: float
    grid_bits: int
    local_variance: int
    max_records: int
    divisor: float
    min_survivors: int
    assumed_colluders: int
    deadline: float
    staleness: int = 0
    rotated: bool = False
    adaptive_clip: float | None = None

    def __post_init__(self) -> None:
        for name in ("clip", "divisor", "deadline"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError("clip, divisor and deadline must be finite and above zero")
            # 1 and 1.0 are the same terms and must have the same digest
            object.__setattr__(self, name, float(value))
        wholes = (self.grid_bits, self.local_variance, self.max_records, self.min_survivors, self.assumed_colluders)
        if any(type(value) is not int for value in (*wholes, self.staleness)):
            raise ValueError("grid bits, variance, records, survivors, colluders and staleness must be whole numbers")
        require_unit(self.unit)
        if self.unit == "client" and self.max_records != 1:
            raise ValueError(f"a client is one unit of itself, so max_records must be 1, not {self.max_records}")
        if not (0 <= self.grid_bits <= MAX_GRID_BITS and self.local_variance > 0 and self.max_records > 0):
            raise ValueError(f"grid_bits must be 0 to {MAX_GRID_BITS}, local_variance and max_records above zero")
        if not 0 <= self.assumed_colluders < self.min_survivors:
            raise ValueError("assumed_colluders must be at least 0 and below min_survivors")
        if type(self.rotated) is not bool or (self.rotated and self.max_records > MOST_ROTATED):
            raise ValueError(f"rotated must be true or false, and false for more than {MOST_ROTATED} records")
        if not 0 <= self.staleness <= MAX_STALENESS:
            raise ValueError(f"staleness must be 0 to {MAX_STALENESS}")
        if self.adaptive_clip is not None and not (0 < self.adaptive_clip < math.inf and self.unit == "client"):
            raise ValueError("adaptive_clip must be finite and above zero, and the unit a client")

    @property
    def training_clip(self) -> float:
        """The L2 bound that training is given for one unit."""
        return self.adaptive_clip or self.clip

    def noise_multiplier(self, dimension: int = 0) -> float:
        """Return the least noise of a released sum over its sensitivity to one unit: z = sigma sqrt(honest) / Delta.

        Delta is `rounded_norm` of the clip, as the ledger charges it; for dimension 0 it is the clip alone.
        """
        honest = self.min_survivors - self.assumed_colluders
        return math.sqrt(self.local_variance * honest) / rounded_norm(self.clip * 2.0**self.grid_bits, dimension)


@dataclass(frozen=True)
class RoundSpec:
    """One round of one task. Two rounds with the same digest are the same round."""

    task: str
    round: int
    model_version: int
    model_digest: bytes
    cohort_digest: bytes
    key_digest: bytes
    terms: Terms
    sum_params: SumParams

    def to_dict(self) -> dict[str, object]:
        """Return the JSON-safe form; digests in hexadecimal."""
        return {
            "task": self.task,
            "round": self.round,
            "model_version": self.model_version,
            "model_digest": self.model_digest.hex(),
            "cohort_digest": self.cohort_digest.hex(),
            "key_digest": self.key_digest.hex(),
            "terms": asdict(self.terms),
            "sum_params": self.sum_params.to_dict(),
        }

    @property
    def trained(self) -> int:
        """How many values of the sum are the model's."""
        return self.sum_params.dimension - (self.terms.adaptive_clip is not None)

    def digest(self) -> bytes:
        """Return 32 bytes that identify this round and all its fields."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        return digest("round-spec", canonical(self.to_dict()))

    @staticmethod
    def from_fields(data: Fields) -> "RoundSpec":
        """Return the spec in untrusted fields, every bound checked. Raises `PeerFault("malformed")`."""
        data.only(*(field.name for field in fields(RoundSpec)))
        try:
            return RoundSpec(
                task=data.text("task"),
                round=data.integer("round", 0, 1_000_000),
                model_version=data.integer("model_version", 0, 1_000_000),
                model_digest=data.octets("model_digest", 32),
                cohort_digest=data.octets("cohort_digest", 32),
                key_digest=data.octets("key_digest", 32),
                terms=_terms(data.fields("terms")),
                sum_params=params_from_dict(data.fields("sum_params").raw()),
            )
        except (ValueError, WrongParameters) as error:
            raise PeerFault(Reason.MALFORMED, str(error)) from error


def _terms(data: Fields) -> Terms:
    data.only(*(field.name for field in fields(Terms)))
    return Terms(
        unit=data.text("unit"),
        clip=data.number("clip", 0.0, 1e9),
        grid_bits=data.integer("grid_bits", 0, MAX_GRID_BITS),
        local_variance=data.integer("local_variance", 1, 1 << 110),
        max_records=data.integer("max_records", 1, 1 << 40),
        divisor=data.number("divisor", 0.0, 1e15),
        min_survivors=data.integer("min_survivors", 1, 1_000_000),
        assumed_colluders=data.integer("assumed_colluders", 0, 1_000_000),
        deadline=data.number("deadline", 0.0, 1e7),
        staleness=data.integer("staleness", 0, MAX_STALENESS),
        rotated=cast(bool, data.raw().get("rotated")),
        adaptive_clip=None if data.raw().get("adaptive_clip") is None else data.number("adaptive_clip", 0.0, math.inf),
    )
