"""The exact rational discrete Gaussian: slow, and right by construction. The reference for the fast one.

Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy" (2020), algorithms 1 to 3.
"""

import math
from fractions import Fraction

from fednode_crypto.rng import Rng


def exact_gaussian(variance: Fraction | int, size: int, rng: Rng) -> list[int]:
    """Algorithm 3: discrete Laplace of scale t = floor(sigma) + 1, kept with probability exp(-(|y| - v/t)^2 / 2v)."""
    variance = Fraction(variance)
    t = math.isqrt(math.floor(variance)) + 1
    out: list[int] = []
    while len(out) < size:
        y = _laplace(t, rng)
        if _bernoulli_exp((abs(y) - variance / t) ** 2 / (2 * variance), rng):
            out.append(y)
    return out


def _laplace(t: int, rng: Rng) -> int:
    while True:
        u = _below(t, rng)
        if not _bernoulli_exp(Fraction(u, t), rng):
            continue
        whole = 0
        while _bernoulli_exp(Fraction(1), rng):
            whole += 1
        size, negative = u + t * whole, _below(2, rng)
        if size or not negative:
            return -size if negative else size


def _bernoulli_exp(exponent: Fraction, rng: Rng) -> bool:
    while exponent > 1:
        if not _bernoulli_exp(Fraction(1), rng):
            return False
        exponent -= 1
    k = 1
    while _below(exponent.denominator * k, rng) < exponent.numerator:
        k += 1
    return k % 2 == 1


def _below(bound: int, rng: Rng) -> int:
    bits = (bound - 1).bit_length()
    while True:
        value = int.from_bytes(rng.bytes(-(-bits // 8)), "little") & ((1 << bits) - 1)
        if value < bound:
            return value
