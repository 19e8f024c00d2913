"""The privacy cost of a sequence of releases.

`epsilon` is the number that budgets and reports use: the exact cost of a Gaussian mechanism of which every opened sum
is a post-processing, proven in docs/privacy.md. `renyi_epsilon` bounds the same releases by another proof, which is
never below it, and 4 to 12 % above it in most runs (docs/privacy.md): the cross-check.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fednode.privacy.checks import probability, real
from fednode.privacy.mechanism import DiscreteGaussianSum

_Floats = NDArray[np.float64]

# alpha - 1: any order gives a valid bound, and between these lies the best one for epsilons from 1e-5 to 1e8.
_ORDERS: _Floats = np.geomspace(1e-4, 1e7, 1024)
_REFINEMENTS, _REFINED_ORDERS = 3, 65
_FIXED_POINT_STEPS = 200
_MOST_LEFT = 10_000


def epsilon(events: Sequence[DiscreteGaussianSum], delta: float) -> float:
    """Return THE number: all `events` together are (epsilon, delta)-DP for one unit that is replaced by zero.

    Each event is, up to its `distance` in total variation, a post-processing of a continuous Gaussian mechanism that
    does not depend on the data. Gaussian mechanisms compose to mu^2 = sum of their mu^2, also if later events depend on
    earlier results, and stopping before this number passes a limit is a filter (Smith and Thakurta 2022,
    arXiv:2210.17520). The distances of all events add up to F, which can move either neighbour, so the profile of Balle
    and Wang 2018 is inverted at delta - (1 + e^epsilon) F.

    Edge cases: no events cost 0; inf if delta does not cover the distances, as for a noise of few grid steps. Raises
    ValueError unless 0 < delta < 1.
    """
    return group_epsilon(events, delta, 1)


def group_epsilon(events: Sequence[DiscreteGaussianSum], delta: float, size: int) -> float:
    """Return epsilon for `size` units that are replaced by zero together: 1 is `epsilon`, 2 also covers replacing one.

    A sum moves by at most `size` times as much, wherever the units are, so mu is `size` times as large, and `size`
    roundings may fail. Edge cases and errors as for `epsilon`.
    """
    probability("delta", delta)
    mu = size * gaussian_mu(events)
    distance = size * math.fsum(event.distance for event in events)
    return _covering(lambda left: gaussian_epsilon_of_mu(mu, left), delta, distance)


def rounds_left(events: Sequence[DiscreteGaussianSum], event: DiscreteGaussianSum, limit: float, delta: float) -> int:
    """Return how many more releases such as `event` fit an epsilon of `limit` after `events`, at most 10,000."""
    fits, more = 0, _MOST_LEFT
    while fits < more:
        middle = (fits + more + 1) // 2
        enough = epsilon((*events, *(event,) * middle), delta) <= limit
        fits, more = (middle, more) if enough else (fits, middle - 1)
    return fits


def renyi_epsilon(events: Sequence[DiscreteGaussianSum], delta: float) -> float:
    """Return the same guarantee by Renyi divergence: Kairouz et al., Proposition 14, order by order.

    The sum over the events is converted by Canonne, Kamath and Steinke 2020 (arXiv:2004.00010), Proposition 12, at the
    best order. Edge cases and errors as for `epsilon`, but a noise of few grid steps has a finite cost too.
    """
    probability("delta", delta)
    if not events:
        return 0.0
    failure = math.fsum(event.failure + event.rounding_chance for event in events)
    return _covering(_RenyiCurve.of(events).epsilon, delta, failure)


def _covering(price: Callable[[float], float], delta: float, distance: float) -> float:
    """Return the least fixed point of epsilon = price(delta - (1 + e^epsilon) distance), from below."""
    spent = price(delta)
    for _ in range(_FIXED_POINT_STEPS if distance else 0):
        # e^epsilon leaves the doubles above 700
        left = delta - (1.0 + math.exp(spent)) * distance if spent <= 700.0 else 0.0
        if not left > 0.0:
            return math.inf
        grown = price(left)
        if grown <= spent + 1e-13 * max(1.0, spent):
            return max(grown, spent)
        spent = grown
    return math.inf if distance else spent


def gaussian_mu(events: Sequence[DiscreteGaussianSum]) -> float:
    """Return mu of all events together: mu^2 is the sum of theirs. Dong, Roth and Su 2019 (arXiv:1905.02383)."""
    return math.sqrt(math.fsum(event.mu**2 for event in events))


def gaussian_epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the smallest epsilon of a mu-Gaussian mechanism: Balle and Wang 2018, Theorem 8, inverted by bisection.

    Edge cases: 0 if delta alone covers it, as for mu = 0; inf for mu = inf. Raises ValueError for mu < 0, NaN and for a
    delta outside (0, 1).
    """
    probability("delta", delta)
    if mu == math.inf:
        return math.inf
    if real("mu", mu) < 0.0:
        raise ValueError(f"mu must not be negative, but is {mu!r}")
    if _gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while _gaussian_delta(mu, high) > delta:
        low, high = high, 2.0 * high
    while low < (middle := 0.5 * (low + high)) < high and high - low > 1e-14 * high:
        low, high = (middle, high) if _gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def gaussian_mu_of_epsilon(eps: float, delta: float) -> float:
    """Return the largest mu of a Gaussian mechanism that costs at most `eps` at `delta`, by bisection.

    Raises ValueError for an epsilon below 0 or not finite, and for a delta outside (0, 1).
    """
    probability("delta", delta)
    if not real("epsilon", eps) >= 0.0:
        raise ValueError(f"epsilon must not be negative, but is {eps!r}")
    low, high = 0.0, 1.0
    while _gaussian_delta(high, eps) <= delta:
        low, high = high, 2.0 * high
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (low, middle) if _gaussian_delta(middle, eps) > delta else (middle, high)
    return low


def member_epsilon(eps: float, delta: float, most: int, least: int) -> float:
    """Return the most that a member counts for a run of budget (`eps`, `delta`): `most` and `least` clients add noise.

    A member counts each round as if it was opened over the `least`, the ledger over those that survived, so a member's
    mu^2 is up to most / least of the ledger's. The 1 % on top covers the 5 that `DiscreteGaussianSum.mu` takes off each
    variance, which is 1,000 or more in a planned run. Edge case: inf above 50, where e^epsilon makes the distances
    count. Raises ValueError as `gaussian_mu_of_epsilon`.
    """
    if most == least:
        return eps
    mu = gaussian_mu_of_epsilon(eps, delta) * math.sqrt(1.01 * most / least)
    return counted if (counted := gaussian_epsilon_of_mu(mu, delta)) <= 50.0 else math.inf


def attack_advantage(mu: float) -> float:
    """Return the largest true minus false positive rate of any attacker: 2 Phi(mu / 2) - 1."""
    return math.erf(real("mu", mu) / math.sqrt(8.0))


def attack_tpr(mu: float, fpr: float) -> float:
    """Return the highest true positive rate of any membership attack at `fpr`: Phi(Phi^-1(fpr) + mu)."""
    return _normal_cdf(NormalDist().inv_cdf(probability("fpr", fpr)) + real("mu", mu))


@dataclass(frozen=True, slots=True)
class _RenyiCurve:
    """The sum of many Renyi bounds as a function of the order; equal events share one weighted row."""

    slope: _Floats
    offset: _Floats
    pure_slope: _Floats

    @classmethod
    def of(cls, events: Sequence[DiscreteGaussianSum]) -> Self:
        rows = [(count, event.renyi_bound()) for event, count in Counter(events).items()]
        table = np.array([(n * b.slope, n * b.offset, n * b.pure_slope) for n, b in rows], dtype=np.float64)
        return cls(*table.T[:, :, np.newaxis])

    def at(self, excess: _Floats) -> _Floats:
        """Return the summed bound at the orders 1 + excess."""
        alpha = 1.0 + excess
        total: _Floats = np.minimum(self.slope * alpha + self.offset, self.pure_slope * alpha).sum(axis=0)
        return total

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon over all orders at `delta`; inf unless delta is above 0."""
        if not delta > 0.0:
            return math.inf
        orders, best = _ORDERS, math.inf
        for _ in range(_REFINEMENTS + 1):
            candidates = self.at(orders) + _conversion(orders, delta)
            at = int(np.argmin(candidates))
            best = min(best, float(candidates[at]))
            around = orders[max(at - 1, 0)], orders[min(at + 1, len(orders) - 1)]
            orders = np.geomspace(*around, _REFINED_ORDERS)
        return max(best, 0.0)


def _conversion(excess: _Floats, delta: float) -> _Floats:
    """Return ln(1 - 1/alpha) - (ln delta + ln alpha) / (alpha - 1) at alpha = 1 + excess, exact also next to 1."""
    log_alpha = np.log1p(excess)
    price: _Floats = np.log(excess) - log_alpha - (math.log(delta) + log_alpha) / excess
    return price


def _gaussian_delta(mu: float, eps: float) -> float:
    """Return Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), 0 for mu = 0. Balle and Wang 2018, Theorem 8."""
    if mu == 0.0:
        return 0.0
    shift = eps / mu
    if not math.isfinite(shift):
        return 0.0
    return _normal_cdf(0.5 * mu - shift) - math.exp(min(eps + _normal_log_cdf(-0.5 * mu - shift), 0.0))


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def _normal_log_cdf(x: float) -> float:
    """Return ln Phi(x); below -20, where Phi(x) underflows, by the asymptotic series, good to 1e-13."""
    if x > -20.0:
        return math.log(_normal_cdf(x))
    inverse, term, series = 1.0 / (x * x), 1.0, 1.0
    for odd in (1, 3, 5, 7, 9):
        term *= -odd * inverse
        series += term
    return -0.5 * x * x - math.log(-x * math.sqrt(2.0 * math.pi)) + math.log(series)
