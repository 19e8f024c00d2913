"""t-of-k Shamir sharing of polynomials, residue by residue.

Source: Shamir, "How to share a secret" (1979). Points are 1..k, far below every prime, so that each prime's residues
are shared over a field.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.hazmat.moduli import Moduli
from fednode_crypto.hazmat.uniform import uniform_rows
from fednode_crypto.rng import Rng

Words = NDArray[np.uint64]


def share(secret: Words, moduli: Moduli, threshold: int, points: Iterable[int], rng: Rng) -> dict[int, Words]:
    """Return a share of `secret`, one polynomial (r, n), for each point.

    Guarantee: fewer than `threshold` shares are independent of the secret; any `threshold` determine it.
    """
    polynomial = random_polynomial(secret, moduli, threshold, rng)
    return {point: value_at(polynomial, moduli, point) for point in points}


def random_polynomial(secret: Words, moduli: Moduli, threshold: int, rng: Rng) -> Words:
    """Return the coefficients, (threshold, r, n), of a polynomial that is `secret` at 0; the upper ones are uniform."""
    upper = [uniform_rows(moduli.primes, (moduli.degree,), rng) for _ in range(threshold - 1)]
    return np.stack([secret, *upper])


def value_at(polynomial: Words, moduli: Moduli, point: int) -> Words:
    """Return the value, (r, n), of a polynomial (t, r, n) at `point`."""
    value: Words = np.zeros_like(polynomial[0])
    for power, coefficients in enumerate(polynomial):
        moduli.add_scaled(value, coefficients, point**power)
    return value
