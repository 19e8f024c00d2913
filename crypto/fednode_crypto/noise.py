"""Integer noise: draws of the discrete Gaussian N_Z(0, variance), and the distance of one draw from the ideal."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.hazmat import gaussian
from fednode_crypto.rng import Rng


def discrete_gaussian(variance: Fraction | int, size: int, rng: Rng) -> NDArray[np.int64]:
    """Return `size` independent draws whose chance of a value x is proportional to exp(-x^2 / (2 variance)).

    `variance` is in grid steps squared, from 1/16 to 2^112 (standard deviation 0.25 to 2^56); the variance of the
    discrete Gaussian itself is a little smaller below one step and the same to 2^-100 from two steps on.

    Guarantees: each draw is within `sampler_error(variance)` of the ideal in statistical distance, given uniform words
    (`SystemRng`: given that AES-256 is pseudo-random); nothing is clamped; no value exceeds 2^60.
    Edge cases: size 0 gives an empty array; equal variances (2 and Fraction(4, 2)) give equal draws.
    Raises ValueError for a variance outside the range, one that is not an int or a Fraction, and a negative size.
    Source: see `fednode_crypto.hazmat.gaussian`.
    """
    if size < 0:
        raise ValueError("cannot draw a negative number of noise values: ask for 0 or more")
    return gaussian.draw(_checked(variance), size, rng)


def sampler_error(variance: Fraction | int) -> float:
    """Return a proven bound on the statistical distance of ONE draw of `discrete_gaussian` from N_Z(0, variance).

    It covers the cut tail, rounded thresholds and the sum of narrow draws, and is below 2^-130 for every variance.
    For d coordinates from n clients over T rounds, d n T times this joins delta.
    Raises ValueError as `discrete_gaussian` does.
    """
    return gaussian.draw_error(_checked(variance))


def _checked(variance: Fraction | int) -> Fraction:
    if isinstance(variance, bool) or not isinstance(variance, int | Fraction):
        raise ValueError(
            f"give the variance as an int or a Fraction, not as {type(variance).__name__}: it must be exact"
        )
    if not gaussian.SMALLEST_VARIANCE <= variance <= gaussian.LARGEST_VARIANCE:
        raise ValueError(
            "the variance must lie between 1/16 and 2^112 grid steps squared: choose another grid or noise"
        )
    return Fraction(variance)
