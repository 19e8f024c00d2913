"""Uniform residues and ternary secrets, by rejection: exact, no modulo bias."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.rng import Rng

Words = NDArray[np.uint64]


def uniform_rows(primes: Sequence[int], shape: tuple[int, ...], rng: Rng) -> Words:
    """Return uniform residues of shape (*shape[:-1], r, shape[-1]), row i below primes[i]."""
    count = int(np.prod(shape))
    rows = np.stack([_below(p, count, rng).reshape(shape) for p in primes], axis=-2)
    return np.ascontiguousarray(rows)


def _below(prime: int, count: int, rng: Rng) -> Words:
    shift = np.uint64(64 - prime.bit_length())
    found: list[Words] = []
    missing = count
    while missing > 0:
        drawn = rng.words(missing + missing // 8 + 16) >> shift
        kept = drawn[drawn < prime][:missing]
        found.append(kept)
        missing -= kept.size
    return np.concatenate(found) if found else np.empty(0, dtype=np.uint64)


def ternary(count: int, rng: Rng) -> NDArray[np.int64]:
    """Return `count` independent values, each -1, 0 or 1 with chance 1/3."""
    # 2^64 - 1 is a multiple of 3: only the largest word is refused
    found: list[Words] = []
    missing = count
    while missing > 0:
        drawn = rng.words(missing)
        kept = drawn[drawn != np.uint64(0xFFFFFFFFFFFFFFFF)]
        found.append(kept)
        missing -= kept.size
    words = np.concatenate(found) if found else np.empty(0, dtype=np.uint64)
    return (words % np.uint64(3)).astype(np.int64) - 1


def public_polynomial(primes: Sequence[int], degree: int, label: bytes) -> Words:
    """Return the (r, degree) uniform residues that SHAKE-256 yields for `label`: the same for everyone, no trapdoor.

    Prime i has its own stream, SHAKE-256(label | i as one byte), read as little-endian words whose low bits (as many
    as the prime has) are kept when they are below the prime.
    """
    return np.stack([_expanded(p, degree, label + bytes([i])) for i, p in enumerate(primes)])


def _expanded(prime: int, degree: int, label: bytes) -> Words:
    mask = np.uint64((1 << prime.bit_length()) - 1)
    drawn = 2 * degree
    while True:
        words = np.frombuffer(hashlib.shake_256(label).digest(8 * drawn), dtype="<u8").astype(np.uint64) & mask
        kept = words[words < prime]
        if kept.size >= degree:
            return np.ascontiguousarray(kept[:degree])
        drawn *= 2
