"""Polynomials mod (x^n + 1, several primes) as rows of residues, with SEAL's number-theoretic transform.

Source of the transform: Longa, Naehrig, "Speeding up the Number Theoretic Transform" (2016), as in Microsoft SEAL: the
minimal primitive 2n-th root, powers in bit-reversed order. Running time does not depend on the values beyond the
conditional subtractions, which compile to selects; nothing stronger is claimed.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.hazmat import kernels
from fednode_crypto.hazmat.modular import bit_reversed, minimal_root
from fednode_crypto.hazmat.moduli import Moduli, constants, with_scaled, words

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Ring(Moduli):
    """Z_q[x] / (x^n + 1) for q the product of `primes`, n the `degree`: `Moduli` that can multiply polynomials."""

    roots: tuple[Words, Words] = field(repr=False)
    inverse_roots: tuple[Words, Words] = field(repr=False)

    def forward(self, a: Words) -> None:
        """Transform coefficients to values."""
        kernels.forward(self.rows(a), *self.roots, self.q)

    def inverse(self, a: Words) -> None:
        """Transform values to coefficients."""
        kernels.inverse(self.rows(a), *self.inverse_roots, self.q)

    def multiply(self, a: Words, b: Words) -> None:
        """Multiply a by b value by value; one polynomial b serves any number of polynomials a."""
        kernels.multiply(self.rows(a), self.rows(b), self.q, self.ratio, self.shift)

    def turns(self, a: Words, factor: int) -> NDArray[np.int64]:
        """Return factor * a / q mod 1 for each coefficient, centred, in units of 2^-64 (up to 2 r units low).

        `a` is (blocks, r, n), the result (blocks, n): by the Chinese remainder theorem a / q is the sum over the primes
        p of (a (q/p)^-1 mod p) / p.
        """
        product = prod(self.primes)
        weight = words([factor * pow(product // p, -1, p) % p for p in self.primes])
        found = kernels.fraction(self.rows(a), weight, self.q, self.ratio, self.shift)
        return np.asarray(found, dtype=np.uint64).view(np.int64)


def _table(root: int, prime: int, first: int, degree: int) -> list[int]:
    powers = [1] * degree
    for i in range(1, degree):
        powers[i] = powers[i - 1] * root % prime
    return [first, *(powers[i] for i in bit_reversed(degree)[1:])]


@lru_cache(maxsize=16)
def ring(degree: int, primes: tuple[int, ...]) -> Ring:
    """Return the ring of that degree (a power of two) and those primes (each below 2^61 and 1 mod 2 * degree)."""
    roots = [minimal_root(p, degree) for p in primes]
    return Ring(
        degree=degree,
        primes=primes,
        roots=with_scaled([_table(w, p, 1, degree) for w, p in zip(roots, primes, strict=True)], primes),
        inverse_roots=with_scaled(
            [_table(pow(w, -1, p), p, pow(degree, -1, p), degree) for w, p in zip(roots, primes, strict=True)], primes
        ),
        **constants(primes),
    )
