"""Rows of residues modulo several primes, without any transform: enough for sums, shares and encodings."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.hazmat import kernels

Words = NDArray[np.uint64]


def words(values: list[int]) -> Words:
    """Return the numbers, each below 2^64, as words."""
    return np.array(values, dtype=np.uint64)


def with_scaled(rows: list[list[int]], primes: tuple[int, ...]) -> tuple[Words, Words]:
    """Return a row of numbers w for each prime p, and floor(w 2^64 / p), which speeds up multiplying by w."""
    scaled = [[(w << 64) // p for w in row] for row, p in zip(rows, primes, strict=True)]
    return np.array(rows, dtype=np.uint64), np.array(scaled, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Moduli:
    """Vectors mod q, q the product of `primes` (each below 2^61): (..., r, n) residues, row i of prime i.

    Operations take C-contiguous uint64 arrays of residues and change their first argument in place. `bits` are the
    sizes of the primes.
    """

    degree: int
    primes: tuple[int, ...]
    q: Words = field(repr=False)
    bits: NDArray[np.int64] = field(repr=False)
    ratio: Words = field(repr=False)
    shift: Words = field(repr=False)

    def rows(self, a: Words) -> Words:
        """Return `a` as one row for each prime and vector. ValueError for a wrong shape or a non-contiguous array."""
        if not a.flags.c_contiguous or a.shape[-2:] != (len(self.primes), self.degree):
            raise ValueError(f"a polynomial needs {len(self.primes)} contiguous rows of {self.degree}: got {a.shape}")
        return a.reshape(-1, self.degree)

    def add(self, a: Words, b: Words) -> None:
        """Add b to a."""
        kernels.add(self.rows(a), self.rows(b), self.q)

    def subtract(self, a: Words, b: Words) -> None:
        """Subtract b from a."""
        kernels.subtract(self.rows(a), self.rows(b), self.q)

    def add_scaled(self, a: Words, b: Words, weight: int) -> None:
        """Add weight * b to a, for any integer weight."""
        weights = [weight % p for p in self.primes]
        scaled = [(w << 64) // p for w, p in zip(weights, self.primes, strict=True)]
        kernels.scale_add(self.rows(a), self.rows(b), words(weights), words(scaled), self.q)

    def scaled(self, a: Words) -> Words:
        """Return floor(a 2^64 / p) for each residue, or one less: it speeds up multiplying by `a`."""
        return np.asarray(kernels.scaled(self.rows(a), self.q, self.ratio, self.shift)).reshape(a.shape)

    def residues(self, integers: NDArray[np.int64]) -> Words:
        """Return the residues, (..., r, n), of signed integers (..., n)."""
        return np.mod(integers[..., None, :], self.q.astype(np.int64)[:, None]).astype(np.uint64)


def constants(primes: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of `Moduli` that follow from the primes."""
    bits = [p.bit_length() for p in primes]
    return {
        "q": words(list(primes)),
        "bits": np.array(bits, dtype=np.int64),
        "ratio": words([(1 << (64 + b)) // p - (1 << 64) for p, b in zip(primes, bits, strict=True)]),
        "shift": words([64 - b for b in bits]),
    }


@lru_cache(maxsize=32)
def moduli(degree: int, primes: tuple[int, ...]) -> Moduli:
    """Return the vectors of that length modulo those primes."""
    return Moduli(degree=degree, primes=primes, **constants(primes))
