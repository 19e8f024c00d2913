"""A member's own limits, which hold whatever the node asks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError, PeerFault
from fednode.members import corrupt_holders, default_survivors, least_threshold
from fednode.privacy.accountant import member_epsilon
from fednode.privacy.mechanism import DiscreteGaussianSum
from fednode.protocol.chunks import Outline
from fednode.protocol.headroom import release_failure, update_headroom
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.units import UNITS
from fednode_crypto import SumParams

_RENAMED = {"min-survivors": "floor-survivors", "z-min": "min-noise"}
_OF_THE_RUN = {
    "max-staleness": "staleness",
    "schemes": "scheme",
    "min-threshold": "threshold",
    "colluders": "assumed-colluders",
}
"""The setting of a run that says what a member of its own must allow; `delta` has the same name on both sides."""


@dataclass(frozen=True, slots=True)
class MemberLimits:
    """The limits of one member. In configurations each has its field's name with dashes: `floor-survivors`.

    `floor_survivors`: fewest updates in a sum that is opened. `min_noise`: least noise multiplier of a released sum
    (noise over clip, without that of `colluders`). `max_rounds`: most rounds of one task. `max_staleness`: how many
    versions the model of an update may lag behind the round's; above 0, a lying node can choose among these models for
    each client. `max_tasks`: most open tasks, since each keeps something on the member's disk. `schemes`: the secure
    sums that it takes part in. `units`: what a round may protect, of `fednode.units`. `min_threshold`: fewest holders
    that open a sum. `max_corrupt`: how many corrupt holders the committee must withstand beside a node that lies: 2t -
    k > c. `max_epsilon`: the privacy, at `delta`, that all rounds of all tasks together may cost its data. `colluders`:
    survivors whose noise it does not count on. `max_weight`: largest magnitude in a model. Training stays far below
    1,000, and two layers of such weights do not overflow float32, as a model would that makes records contribute
    nothing. `max_arrays`: most arrays of a model. `pad`: seconds; the answer to a round that was joined leaves a whole
    number of them after the request came, so that its time does not tell how many records there are. 0: at once.
    """

    floor_survivors: int = 2
    min_noise: float = 0.5
    max_rounds: int = 1_000
    max_staleness: int = 0
    max_tasks: int = 1_000
    schemes: tuple[str, ...] = ("ring",)
    units: tuple[str, ...] = tuple(UNITS)
    min_threshold: int = 2
    max_corrupt: int = 1
    max_epsilon: float = 8.0
    delta: float = 1e-5
    colluders: int = 1
    max_weight: float = 1e3
    max_arrays: int = 1_000
    pad: float = 0.0

    def __post_init__(self) -> None:
        if unknown := set(self.units) - set(UNITS):
            raise ConfigError(f"units is {', '.join(self.units)}; {min(unknown)!r} is none of {', '.join(UNITS)}")
        right = {name: name in ("schemes", "units") or getattr(self, name) >= 0 for name in self.__slots__}
        right |= {"delta": 0.0 < self.delta < 1.0, "pad": 0.0 <= self.pad < math.inf}
        for name in (name for name, fits in right.items() if not fits):
            allowed = "above 0 and below 1" if name == "delta" else "of 0 or more"
            raise ConfigError(f"{name.replace('_', '-')} is {getattr(self, name):g}; give a number {allowed}")

    def configured(self, node: Mapping[str, object], run: Mapping[str, object], *, simulated: bool) -> "MemberLimits":
        """Return the limits that the node's own configuration sets; a run's can make the first three stricter.

        A simulated member, whose keys the run has made, gets what that run needs. Raises `ConfigError`.
        """
        for old, new in _RENAMED.items():
            if old in node:
                raise ConfigError(f"this version knows no limit {old}; call it {new} in the node's configuration")
        limits = replace(self, **self._given({**run, **_needs(run), **node} if simulated else node))
        asked = replace(limits, **self._given(run))
        return replace(
            limits,
            floor_survivors=max(limits.floor_survivors, asked.floor_survivors),
            min_noise=max(limits.min_noise, asked.min_noise),
            max_rounds=min(limits.max_rounds, asked.max_rounds),
        )

    def _given(self, config: Mapping[str, object]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for field in fields(self):
            key = field.name.replace("_", "-")
            if key in config:
                kind = type(getattr(self, field.name))
                if kind is tuple:
                    given[field.name] = tuple(word.strip() for word in str(config[key]).split(","))
                    continue
                try:
                    given[field.name] = kind(str(config[key]))
                except ValueError:
                    raise ConfigError(f"{key} is {config[key]!r}; expected a number ({kind.__name__})") from None
        return given

    def check_sum(self, params: SumParams) -> None:
        """Return if a task's secure sum is within these limits. Raises `PeerFault`: SCHEME_FLOOR, LOW_THRESHOLD."""
        if params.scheme not in self.schemes:
            raise PeerFault(Reason.SCHEME_FLOOR, f"the sum is {params.scheme}, schemes is {', '.join(self.schemes)}")
        least = max(self.min_threshold, least_threshold(params.holders, self.max_corrupt))
        if params.threshold < least:
            why = f"min-threshold is {self.min_threshold} and max-corrupt {self.max_corrupt}, which 2t - k must exceed"
            raise PeerFault(Reason.LOW_THRESHOLD, f"{params.threshold} of {params.holders} open, {least} must: {why}")

    def cost(self, spec: RoundSpec, clients: int) -> DiscreteGaussianSum:
        """What the round costs this member's data at most: opened over as few updates as its terms allow.

        The noise of this member's own number of colluders does not count, nor that of the task's if it names more; the
        member's own always does.
        """
        terms, dimension = spec.terms, spec.sum_params.dimension
        return DiscreteGaussianSum(
            clip=terms.clip,
            grid_bits=terms.grid_bits,
            dimension=dimension,
            local_variance=terms.local_variance,
            contributors=max(1, terms.min_survivors - max(self.colluders, terms.assumed_colluders)),
            failure=release_failure(dimension, clients),
        )

    def check_model(self, outline: Outline, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Return if the model is within these limits, frozen arrays too. Raises `PeerFault` BAD_MODEL."""
        if len(outline.names) > self.max_arrays:
            raise PeerFault(Reason.BAD_MODEL, f"{len(outline.names)} arrays, max-arrays is {self.max_arrays}")
        for array in arrays.values():
            # also refuses NaN, which is not below anything
            if not max(array.max(), -array.min()) <= self.max_weight:
                raise PeerFault(Reason.BAD_MODEL, f"a value is not finite or above max-weight {self.max_weight:g}")

    def check(self, spec: RoundSpec, clients: int) -> None:
        """Return if the round is within these limits; `clients` is how many the signed cohort has.

        Raises `PeerFault`: UNIT_REFUSED, MIN_SURVIVORS, NOISE_FLOOR, NO_ROOM, STALENESS or ROUND_CAP, with the numbers.
        """
        terms = spec.terms
        if terms.unit not in self.units:
            raise PeerFault(Reason.UNIT_REFUSED, f"the round protects a {terms.unit}, units is {', '.join(self.units)}")
        most = min(clients, spec.sum_params.summands)
        # a floor out of reach would make each client believe that many others add noise too
        if not self.floor_survivors <= terms.min_survivors <= most:
            allowed = f"{self.floor_survivors} (floor-survivors) to {most} are allowed"
            raise PeerFault(Reason.MIN_SURVIVORS, f"the round opens {terms.min_survivors} updates; {allowed}")
        known = max(self.colluders, terms.assumed_colluders)
        # one honest update alone is not hidden by any sum
        if terms.min_survivors - known < 2:
            raise PeerFault(Reason.MIN_SURVIVORS, f"without {known} (colluders), fewer than two survivors are left")
        noise = self.cost(spec, clients).noise_multiplier
        if not noise >= self.min_noise:
            rest = f"{noise:.4g} without that of {known} (colluders)"
            raise PeerFault(Reason.NOISE_FLOOR, f"the noise multiplier is {rest}, min-noise is {self.min_noise:.4g}")
        if spec.sum_params.value_bound < update_headroom(terms, spec.sum_params.dimension):
            # checked before training: a refusal afterwards would depend on the data
            raise PeerFault(Reason.NO_ROOM, "the sum has no room for one honest update")
        if terms.staleness > self.max_staleness:
            raise PeerFault(Reason.STALENESS, f"staleness is {terms.staleness}, max-staleness {self.max_staleness}")
        if spec.round > self.max_rounds:
            raise PeerFault(Reason.ROUND_CAP, f"round {spec.round} of {spec.task}, max-rounds is {self.max_rounds}")


def _needs(run: Mapping[str, object]) -> dict[str, object]:
    """What a run's configuration asks of the members whose keys it made."""
    needs = {limit: run[setting] for limit, setting in _OF_THE_RUN.items() if setting in run}
    if "threshold" in run and "holders" in run:
        needs["max-corrupt"] = corrupt_holders(int(str(run["threshold"])), int(str(run["holders"])))
    if {"epsilon", "delta", "clients", "assumed-colluders", "min-survivors"} <= run.keys():
        needs["max-epsilon"] = _counted(run)
    return needs


def _counted(run: Mapping[str, object]) -> float:
    """The most epsilon that a member counts in such a run."""
    clients, colluders = int(str(run["clients"])), int(str(run["assumed-colluders"]))
    least = int(str(run["min-survivors"] or default_survivors(clients)))
    budget = float(str(run["epsilon"])), float(str(run["delta"]))
    return member_epsilon(*budget, clients - colluders, least - colluders)
