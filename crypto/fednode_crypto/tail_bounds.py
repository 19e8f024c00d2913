"""Bounds on sums of small random integers, computed in integers so that all parties get the same bound."""

from fractions import Fraction
from math import isqrt
from typing import Final

FAILURE_BITS: Final = 128

TASK_DRAWS: Final = 1 << 48
"""The most coefficients that one task can open: 2^28 coordinates in 2^20 rounds."""


def noise_tail(variance_of_sum: Fraction | int, draws: int) -> int:
    """Return a bound that the largest of `draws` magnitudes exceeds with a chance below 2^-128.

    Each draw is a sum of independent sub-Gaussian integers (discrete Gaussians, bounded roundings) whose variance
    parameters add up to `variance_of_sum`: 2 draws exp(-b^2 / (2 variance)) <= 2^-128. ValueError for a negative
    variance or `draws` below 1.
    """
    variance = Fraction(variance_of_sum)
    if variance < 0 or draws < 1:
        raise ValueError("a tail needs a variance of at least 0 and at least one draw")
    nats = Fraction((FAILURE_BITS + 1 + draws.bit_length()) * 693_148, 1_000_000)
    square = 2 * variance * nats
    return isqrt(-(-square.numerator // square.denominator)) + 1
