"""One release as data, the Gaussian mechanism that it is a post-processing of, and its Renyi bound.

Every honest client adds an integer share of noise to an integer vector before it is sealed; what is opened is the
sum. The privacy of that sum is the distributed discrete Gaussian of Kairouz, Liu and Steinke, "The Distributed
Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation", 2021 (arXiv:2102.06387), section 3. That
it is nearly a post-processing of a continuous Gaussian is proven in docs/privacy.md.
"""

import math
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np

from fednode.privacy.checks import exact_keys, positive, real, whole
from fednode.protocol.spec import ROUNDING_CHANCE, rounded_norm

# far above any real run; they keep every product below within a double
_MOST_GRID_BITS = 60
_MOST_CONTRIBUTORS = 1_000_000
_LARGEST_CLIP = 2.0**64
LARGEST_VARIANCE = 2**128

KERNEL_VARIANCE = 5.0
"""Of the discrete Gaussian kernel that turns the continuous mechanism's output into integers, in grid steps squared."""

_KERNEL_GAP = 2.0 * math.exp(-2.0 * math.pi**2 * KERNEL_VARIANCE)
"""eta: how far the kernel's normalisation depends on where its centre lies between two integers; below 2^-141."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The most by which one unit can move the integer sum, in grid steps."""

    l2: float
    l1: float

    @classmethod
    def of_integers(cls, l2: float, dimension: int) -> Self:
        """Return the L2 bound and the L1 bound that follows: sqrt(d) L2, or L2^2 as the coordinates are integers."""
        return cls(l2, min(math.sqrt(dimension) * l2, l2 * l2))


@dataclass(frozen=True, slots=True)
class RenyiBound:
    """Renyi divergence of order alpha is at most min(slope alpha + offset, pure_slope alpha), for every alpha > 1."""

    slope: float
    offset: float
    pure_slope: float

    def at(self, alpha: float) -> float:
        """Return the bound at one order. ValueError unless `alpha` is above 1."""
        if not alpha > 1.0:
            raise ValueError(f"a Renyi order must be above 1, not {alpha!r}")
        return min(self.slope * alpha + self.offset, self.pure_slope * alpha)


@lru_cache(maxsize=4096)
def sum_gap(local_variance: int, contributors: int) -> float:
    """Return tau: the distance of a sum of discrete Gaussians from one discrete Gaussian, per coordinate.

    tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 v k / (k + 1)), v the variance of one share in grid steps squared, n the
    number of shares. One share is exact (tau = 0); from a standard deviation of 2 grid steps on it is below 1e-15.
    Kairouz et al., Theorem 1.
    """
    k = np.arange(1, contributors, dtype=np.float64)
    return float(10.0 * np.exp(-2.0 * math.pi**2 * float(local_variance) * (k / (k + 1.0))).sum())


def discrete_gaussian_bound(
    sensitivity: Sensitivity, dimension: int, local_variance: int, contributors: int
) -> RenyiBound:
    """Return the bound of one opened sum with the shares of `contributors` clients. Kairouz et al., Proposition 14.

    Valid for any neighbours whose integer vectors differ by at most `sensitivity`; what other clients send
    only shifts the sum. `local_variance` is in grid steps squared and at least 1 (the theorem asks
    for 1/4).
    """
    stddev = math.sqrt(float(local_variance) * contributors)
    l2, l1 = sensitivity.l2 / stddev, sensitivity.l1 / stddev
    tau = sum_gap(local_variance, contributors)
    crossed = l2 + math.sqrt(dimension) * tau
    return RenyiBound(
        slope=0.5 * l2 * l2,
        offset=tau * dimension,
        pure_slope=0.5 * min(l2 * l2 + 2.0 * l1 * tau + tau * tau * dimension, crossed * crossed),
    )


@dataclass(frozen=True, slots=True)
class DiscreteGaussianSum:
    """One release of an integer sum, with the noise of `contributors` honest clients in it.

    Guarantee: up to `distance` in total variation this release is a data-independent post-processing of a continuous
    Gaussian mechanism with `mu`, for one unit that reaches one client's sum with an L2 norm of at most `clip`, or is
    replaced by zero there, before that sum is rounded to the grid, once. Rounding both neighbours with the same coins
    moves the sum by the stochastic rounding of the unit, whose norm `rounded_norm` bounds without a redraw.

    Edge cases: ValueError for a field that is not finite and in range; one contributor is the exact discrete Gaussian;
    a coarse grid is accepted and costs more.
    """

    kind: ClassVar[str] = "discrete-gaussian-sum"

    clip: float
    """L2 bound of one unit's contribution, in units of the model."""
    grid_bits: int
    """The grid step is 2**-grid_bits."""
    dimension: int
    """Opened coordinates, padding included."""
    local_variance: int
    """Noise of one client per coordinate, in grid steps squared."""
    contributors: int
    """Clients whose noise is in the sum, less the assumed colluders."""
    failure: float
    """Total variation between this event and what was released: sampler error of all shares, chance of overflow."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", positive("clip", self.clip))
        if self.clip > _LARGEST_CLIP:
            raise ValueError(f"clip must be at most {_LARGEST_CLIP:g}, not {self.clip!r}")
        whole("grid_bits", self.grid_bits, 0, _MOST_GRID_BITS)
        whole("dimension", self.dimension, 1, 2**48)
        whole("local_variance", self.local_variance, 1, LARGEST_VARIANCE)
        whole("contributors", self.contributors, 1, _MOST_CONTRIBUTORS)
        object.__setattr__(self, "failure", real("failure", self.failure))
        if not 0.0 <= self.failure < 1.0:
            raise ValueError(f"failure must lie in [0, 1), not {self.failure!r}")

    @property
    def grid(self) -> float:
        """The grid step, in units of the model."""
        return 2.0**-self.grid_bits

    @property
    def sensitivity(self) -> Sensitivity:
        """The most by which one unit moves the rounded sum, in grid steps, but for `rounding_chance`."""
        return Sensitivity.of_integers(rounded_norm(self.clip * 2.0**self.grid_bits, self.dimension), self.dimension)

    @property
    def rounding_chance(self) -> float:
        """The chance that rounding moves the sum by more than `sensitivity`."""
        return ROUNDING_CHANCE

    @property
    def mu(self) -> float:
        """mu of the Gaussian mechanism: the sensitivity over its deviation, sqrt(n v - 5); inf for n v of at most 5."""
        variance = float(self.local_variance) * self.contributors - KERNEL_VARIANCE
        return self.sensitivity.l2 / math.sqrt(variance) if variance > 0.0 else math.inf

    @property
    def distance(self) -> float:
        """Total variation between this release and the post-processing: d (tau / 5 + 3 eta), rounding, `failure`."""
        gap = sum_gap(self.local_variance, self.contributors) / 5.0 + 3.0 * _KERNEL_GAP
        return self.dimension * gap + self.rounding_chance + self.failure

    @property
    def stddev(self) -> float:
        """Standard deviation of the honest noise in the sum, per coordinate, in units of the model."""
        return math.sqrt(float(self.local_variance) * self.contributors) * self.grid

    @property
    def noise_multiplier(self) -> float:
        """z: standard deviation of the noise over the L2 sensitivity, rounding included."""
        return self.stddev / (self.sensitivity.l2 * self.grid)

    def renyi_bound(self) -> RenyiBound:
        """Return the Renyi bound of this release, but for `rounding_chance` and `failure`."""
        return discrete_gaussian_bound(self.sensitivity, self.dimension, self.local_variance, self.contributors)

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON; `from_dict` returns the same event, to the bit."""
        return {"kind": self.kind} | asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Undo `to_dict`. ValueError for another kind, missing or unknown fields, or a bad value."""
        names = {field.name for field in fields(cls)}
        found = exact_keys("the event", data, frozenset(names | {"kind"}))
        if found["kind"] != cls.kind:
            raise ValueError(f"unknown mechanism {found['kind']!r}: this version knows {cls.kind!r}")
        return cls(**{name: found[name] for name in names})  # type: ignore[arg-type]  # the class checks each
