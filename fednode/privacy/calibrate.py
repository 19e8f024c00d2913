"""How much noise the next round of a planned run needs, after what was charged."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from fednode.errors import BudgetExhausted, ConfigError
from fednode.privacy.accountant import gaussian_mu_of_epsilon
from fednode.privacy.checks import positive, probability, real
from fednode.privacy.mechanism import KERNEL_VARIANCE, LARGEST_VARIANCE, DiscreteGaussianSum
from fednode.protocol.spec import MAX_GRID_BITS, rounded_norm

_SMALLEST_VARIANCE = 4
"""A standard deviation of two grid steps: below it a sum of discrete Gaussians is not close to one, and tau costs more
than the smaller noise saves."""

_SMALLEST_SUM_VARIANCE = 1_000
"""Of the shares that are counted on: the kernel's 5 then costs less than 1 %, which `member_epsilon` relies on."""

_MOST_ROUNDING = 1.005

_KEPT_BACK = 1e-9
"""The part of mu^2 that is not planned for, so that the floats of plan and ledger never disagree about a round."""


@dataclass(frozen=True, slots=True)
class NoiseRequest:
    """A run as planned: one release for each of `weights`, all together within (epsilon, delta).

    A weight says how much of its round's sum enters the last model (`ServerOptimiser.weights`). `contributors` is the
    minimum of a round: minimum survivors less assumed colluders. No round has a noise multiplier below `floor`. The
    other fields are those of `DiscreteGaussianSum`. Raises ConfigError for a value out of range.
    """

    epsilon: float
    delta: float
    weights: tuple[float, ...]
    clip: float
    grid_bits: int
    dimension: int
    contributors: int
    failure: float
    floor: float = 0.0

    def __post_init__(self) -> None:
        try:
            positive("epsilon", self.epsilon)
            probability("delta", self.delta)
            for weight in self.weights or (0.0,):
                positive("a round's weight", weight)
            if not real("floor", self.floor) >= 0.0:
                raise ValueError(f"floor must not be negative, but is {self.floor!r}")
            self.event(1)
        except ValueError as error:
            raise ConfigError(f"noise: {error}") from error

    def event(self, variance: int) -> DiscreteGaussianSum:
        """Return one round of the plan with this noise of one client."""
        return DiscreteGaussianSum(
            self.clip, self.grid_bits, self.dimension, variance, contributors=self.contributors, failure=self.failure
        )


def local_variance(
    request: NoiseRequest, charged: Sequence[DiscreteGaussianSum] = (), *, step: int = 0, left: int | None = None
) -> int:
    """Return the least noise of one client in the next round, in grid steps squared, after what was `charged`.

    The next round is release number `step`, counted from 0, of which `left` can still come, all that the plan has if
    None. It gets of the mu^2 that is left its weight's part of the weights to come: the variance of a round is
    proportional to 1 / weight, which gives the last model the least noise (docs/privacy.md). As this plans all rounds
    to come with the fewest contributors, the budget holds each of them, whoever survives.

    Raises BudgetExhausted if nothing is left, and ConfigError if no noise fits at all, or if the grid is so coarse that
    the first noise would be less than 2 grid steps.
    """
    if not charged and _is_coarse(request):
        raise ConfigError(
            f"noise: 2**-{request.grid_bits} is too coarse a grid, the noise would be a few of its steps; raise "
            "grid_bits"
        )
    weights = request.weights[step:][:left]
    spent, distance = (math.fsum(part) for part in zip(*map(_cost, charged), strict=True)) if charged else (0.0, 0.0)

    def enough(variance: int) -> int:
        """The noise that is enough if all rounds to come are as far from the Gaussian as with this noise, or less."""
        far = distance + len(weights) * request.event(variance).distance
        kept = request.delta - (1.0 + math.exp(min(request.epsilon, 700.0))) * far
        square = (1.0 - _KEPT_BACK) * _mu(request.epsilon, kept) ** 2 - spent if kept > 0.0 else 0.0
        return _variance(request, square * weights[0] / math.fsum(weights)) if square > 0.0 else LARGEST_VARIANCE

    # more noise is never further away: what too little noise asks for is enough
    floor = _variance(request, request.floor**-2) if request.floor else 0
    variance = max(enough(LARGEST_VARIANCE), _smallest(request), floor)
    while (needed := enough(variance)) >= LARGEST_VARIANCE:
        if variance >= LARGEST_VARIANCE:
            raise _refusal(request, charged)
        variance *= 2
    return max(needed, variance)


def coarsest_grid(request: NoiseRequest) -> int:
    """Return the fewest grid bits that cost next to nothing: a value of fewer bits is a smaller upload.

    Rounding to that grid adds less than 0.5 % to the sensitivity, and the first noise is 2 grid steps or more. The
    `grid_bits` of the request do not count. Raises ConfigError if the clip is too small for any grid.
    """
    for bits in range(MAX_GRID_BITS + 1):
        steps = request.clip * 2.0**bits
        small = rounded_norm(steps, request.dimension) < _MOST_ROUNDING * steps
        if small and not _is_coarse(replace(request, grid_bits=bits)):
            return bits
    raise ConfigError(f"clip is {request.clip:g}, too small for a grid of 2**-{MAX_GRID_BITS} or coarser; raise clip")


def _is_coarse(request: NoiseRequest) -> bool:
    """Whether the first noise would be less than the smallest that a share or a sum may have."""
    square = _mu(request.epsilon, request.delta) ** 2 * request.weights[0] / math.fsum(request.weights)
    return _variance(request, square) < _smallest(request)


def _smallest(request: NoiseRequest) -> int:
    return max(_SMALLEST_VARIANCE, -(-_SMALLEST_SUM_VARIANCE // request.contributors))


def _variance(request: NoiseRequest, square: float) -> int:
    """Return the least noise of one client with which a round costs at most `square`, a mu^2."""
    needed = request.event(1).sensitivity.l2 ** 2 / square + KERNEL_VARIANCE
    return math.ceil(min(needed / request.contributors, LARGEST_VARIANCE))


@lru_cache(maxsize=4096)
def _cost(event: DiscreteGaussianSum) -> tuple[float, float]:
    return event.mu**2, event.distance


_mu = lru_cache(maxsize=64)(gaussian_mu_of_epsilon)


def _refusal(request: NoiseRequest, charged: Sequence[DiscreteGaussianSum]) -> BudgetExhausted | ConfigError:
    budget = f"epsilon {request.epsilon:g} and delta {request.delta:g}"
    if charged:
        return BudgetExhausted(f"{budget} leave nothing after {len(charged)} rounds; give a new task a larger budget")
    return ConfigError(
        f"noise: no amount keeps {len(request.weights)} rounds at {budget} when each may fail with probability "
        f"{request.failure:g}; raise epsilon or delta"
    )
