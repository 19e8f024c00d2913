"""The integers that put t-of-k shares together again. Public numbers, exact.

Lagrange coefficients at points 1..k are rationals; what is put together here is noisy, so they are cleared to integers
(Boneh et al., "Threshold Cryptosystems from Threshold Fully Homomorphic Encryption", 2018, section 5).
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import lcm


@lru_cache(maxsize=1024)
def lagrange(points: tuple[int, ...], at: int = 0) -> tuple[Fraction, ...]:
    """Return the weights by which values at `points` give the value at `at` of a polynomial of degree < len(points)."""
    weights = []
    for j in points:
        weight = Fraction(1)
        for i in points:
            if i != j:
                weight *= Fraction(i - at, i - j)
        weights.append(weight)
    return tuple(weights)


def cleared(weights: Sequence[Fraction]) -> tuple[int, tuple[int, ...]]:
    """Return the least D >= 1 that makes every D * weight an integer, and these integers."""
    least = lcm(*(w.denominator for w in weights))
    return least, tuple(int(w * least) for w in weights)


@lru_cache(maxsize=1024)
def dependency(points: tuple[int, ...]) -> tuple[int, ...]:
    """Return integers by which values at `points` of any polynomial of degree < len(points) - 1 add up to 0."""
    weights = []
    for j in points:
        weight = Fraction(1)
        for i in points:
            if i != j:
                weight /= j - i
        weights.append(weight)
    return cleared(weights)[1]


@lru_cache(maxsize=64)
def lift(holders: int, threshold: int) -> int:
    """Return the factor M by which a holder multiplies what it opens.

    M is the least integer that every M / (Lagrange weight) divides evenly. With it an honest answer is a function of
    the opened message and of the other shares, plus M / weight times the ciphertext's noise, plus smudging: an integer
    that smudging hides. Without it, the noise would be visible modulo the weight's numerator.
    """
    return lcm(*(abs(w.numerator) for s in _subsets(holders, threshold) for w in lagrange(s)))


@lru_cache(maxsize=64)
def amplification(holders: int, threshold: int) -> int:
    """Return the largest |M / (Lagrange weight)|: how much of the ciphertext's noise one answer shows."""
    factor = lift(holders, threshold)
    return max(int(factor / abs(w)) for s in _subsets(holders, threshold) for w in lagrange(s))


def _subsets(holders: int, threshold: int) -> Iterable[tuple[int, ...]]:
    return combinations(range(1, holders + 1), threshold)


@lru_cache(maxsize=64)
def opening_growth(holders: int, threshold: int) -> tuple[int, int]:
    """Return the largest D * M and the largest sum of (D * weight)^2 over all sets of `threshold` holders."""
    ways = [cleared(lagrange(s)) for s in _subsets(holders, threshold)]
    factor = lift(holders, threshold)
    return max(d for d, _ in ways) * factor, max(sum(w * w for w in weights) for _, weights in ways)
