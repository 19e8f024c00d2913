"""How much noise a planned run needs."""

from dataclasses import dataclass

from fednode.errors import ConfigError
from fednode.privacy.accountant import epsilon
from fednode.privacy.checks import positive, probability, whole
from fednode.privacy.mechanism import LARGEST_VARIANCE, DiscreteGaussianSum

# a standard deviation of two grid steps: below it a sum of discrete Gaussians is not close to one, and tau costs more
# than the smaller noise saves
_SMALLEST_VARIANCE = 4


@dataclass(frozen=True, slots=True)
class NoiseRequest:
    """A run as planned: `rounds` equal releases, all together within (epsilon, delta).

    `contributors` is the minimum of a round: minimum survivors less assumed colluders. The other fields are those of
    `DiscreteGaussianSum`. Raises ConfigError for a value out of range.
    """

    epsilon: float
    delta: float
    rounds: int
    clip: float
    grid_bits: int
    dimension: int
    contributors: int
    failure: float

    def __post_init__(self) -> None:
        try:
            positive("epsilon", self.epsilon)
            probability("delta", self.delta)
            whole("rounds", self.rounds, 1, 100_000)
            self.event(1)
        except ValueError as error:
            raise ConfigError(f"noise: {error}") from error

    def event(self, variance: int) -> DiscreteGaussianSum:
        """Return one round of the plan with this noise of one client."""
        return DiscreteGaussianSum(
            self.clip, self.grid_bits, self.dimension, variance, contributors=self.contributors, failure=self.failure
        )


def local_variance(request: NoiseRequest) -> int:
    """Return the smallest noise of one client, in grid steps squared, with which all rounds fit the requested epsilon.

    Guarantee: this variance fits by `accountant.epsilon`, and one less does not. Raises ConfigError if no amount of
    noise fits, or if the grid is so coarse that the noise would be less than 2 grid steps.
    """
    short, enough = _SMALLEST_VARIANCE - 1, _SMALLEST_VARIANCE
    if _fits(request, short):
        raise ConfigError(
            f"noise: 2**-{request.grid_bits} is too coarse a grid, one client's noise would be under 2 of its steps; "
            "raise grid_bits"
        )
    while not _fits(request, enough):
        if enough >= LARGEST_VARIANCE:
            raise ConfigError(
                f"noise: no amount keeps {request.rounds} rounds at epsilon {request.epsilon:g} and delta "
                f"{request.delta:g} when each may fail with probability {request.failure:g}; raise epsilon or delta"
            )
        short, enough = enough, 2 * enough
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (short, middle) if _fits(request, middle) else (middle, enough)
    return enough


def _fits(request: NoiseRequest, variance: int) -> bool:
    return epsilon((request.event(variance),) * request.rounds, request.delta) <= request.epsilon
