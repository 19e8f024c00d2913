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
    random = [uniform_rows(moduli.primes, (moduli.degree,), rng) for _ in range(threshold - 1)]
    shares = {}
    for point in points:
        value = np.zeros_like(secret)
        for power, coefficients in enumerate([secret, *random]):
            moduli.add_scaled(value, coefficients, point**power)
        shares[point] = value
    return shares
