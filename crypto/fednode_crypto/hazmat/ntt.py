"""Polynomials mod (x^n + 1, several primes) as rows of residues, with SEAL's number-theoretic transform.

Source of the transform: Longa, Naehrig, "Speeding up the Number Theoretic Transform" (2016), as in Microsoft SEAL: the
minimal primitive 2n-th root, powers in bit-reversed order. Running time does not depend on the values beyond the
conditional subtractions, which compile to selects; nothing stronger is claimed.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.hazmat import kernels
from fednode_crypto.hazmat.modular import bit_reversed, minimal_root

Words = NDArray[np.uint64]


def _words(values: list[int]) -> Words:
    return np.array(values, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Ring:
    """Z_q[x] / (x^n + 1) for q the product of `primes`: a polynomial is (..., r, n) residues, row i of prime i.

    Operations take C-contiguous uint64 arrays of residues and change their first argument in place.
    """

    degree: int
    primes: tuple[int, ...]
    q: Words = field(repr=False)
    ratio: Words = field(repr=False)
    shift: Words = field(repr=False)
    roots: tuple[Words, Words] = field(repr=False)
    inverse_roots: tuple[Words, Words] = field(repr=False)

    def _rows(self, a: Words) -> Words:
        if not a.flags.c_contiguous or a.shape[-2:] != (len(self.primes), self.degree):
            raise ValueError(f"a polynomial needs {len(self.primes)} contiguous rows of {self.degree}: got {a.shape}")
        return a.reshape(-1, self.degree)

    def forward(self, a: Words) -> None:
        """Transform coefficients to values."""
        kernels.forward(self._rows(a), *self.roots, self.q)

    def inverse(self, a: Words) -> None:
        """Transform values to coefficients."""
        kernels.inverse(self._rows(a), *self.inverse_roots, self.q)

    def multiply(self, a: Words, b: Words) -> None:
        """Multiply a by b value by value; one polynomial b serves any number of polynomials a."""
        kernels.multiply(self._rows(a), self._rows(b), self.q, self.ratio, self.shift)

    def add(self, a: Words, b: Words) -> None:
        """Add b to a."""
        kernels.add(self._rows(a), self._rows(b), self.q)

    def subtract(self, a: Words, b: Words) -> None:
        """Subtract b from a."""
        kernels.subtract(self._rows(a), self._rows(b), self.q)

    def add_scaled(self, a: Words, b: Words, weight: int) -> None:
        """Add weight * b to a, for any integer weight."""
        weights = [weight % p for p in self.primes]
        scaled = [(w << 64) // p for w, p in zip(weights, self.primes, strict=True)]
        kernels.scale_add(self._rows(a), self._rows(b), _words(weights), _words(scaled), self.q)

    def residues(self, integers: NDArray[np.int64]) -> Words:
        """Return the residues, (..., r, n), of signed integers (..., n)."""
        return np.mod(integers[..., None, :], self.q.astype(np.int64)[:, None]).astype(np.uint64)

    def valid(self, a: Words) -> bool:
        """Return whether every entry of a, (..., r, n), is a residue of its prime."""
        return bool(np.all(a < self.q[:, None]))

    def turns(self, a: Words, factor: int) -> NDArray[np.int64]:
        """Return factor * a / q mod 1 for each coefficient, centred, in units of 2^-64 (up to 2 r units low).

        `a` is (blocks, r, n), the result (blocks, n): by the Chinese remainder theorem a / q is the sum over the primes
        p of (a (q/p)^-1 mod p) / p.
        """
        product = 1
        for p in self.primes:
            product *= p
        weight = _words([factor * pow(product // p, -1, p) % p for p in self.primes])
        found = kernels.fraction(self._rows(a), weight, self.q, self.ratio, self.shift)
        return np.asarray(found, dtype=np.uint64).view(np.int64)


def _table(root: int, prime: int, first: int, degree: int) -> list[int]:
    powers = [1] * degree
    for i in range(1, degree):
        powers[i] = powers[i - 1] * root % prime
    return [first, *(powers[i] for i in bit_reversed(degree)[1:])]


def _scaled(table: list[list[int]], primes: tuple[int, ...]) -> tuple[Words, Words]:
    scaled = [[(w << 64) // p for w in row] for row, p in zip(table, primes, strict=True)]
    return np.array(table, dtype=np.uint64), np.array(scaled, dtype=np.uint64)


@lru_cache(maxsize=16)
def ring(degree: int, primes: tuple[int, ...]) -> Ring:
    """Return the ring of that degree (a power of two) and those primes (each below 2^61 and 1 mod 2 * degree)."""
    roots = [minimal_root(p, degree) for p in primes]
    bits = [p.bit_length() for p in primes]
    return Ring(
        degree=degree,
        primes=primes,
        q=_words(list(primes)),
        ratio=_words([(1 << (64 + b)) // p - (1 << 64) for p, b in zip(primes, bits, strict=True)]),
        shift=_words([64 - b for b in bits]),
        roots=_scaled([_table(w, p, 1, degree) for w, p in zip(roots, primes, strict=True)], primes),
        inverse_roots=_scaled(
            [_table(pow(w, -1, p), p, pow(degree, -1, p), degree) for w, p in zip(roots, primes, strict=True)], primes
        ),
    )
