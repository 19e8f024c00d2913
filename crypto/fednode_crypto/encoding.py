"""Residues as bytes: bit-packed, of exact size, and checked before anything else looks at them."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.errors import Tampered
from fednode_crypto.hazmat import kernels
from fednode_crypto.hazmat.ntt import Ring

Words = NDArray[np.uint64]


def size_of(ring: Ring, lead: tuple[int, ...] = ()) -> int:
    """Return the exact bytes of polynomials of shape (*lead, r, degree)."""
    return prod(lead) * sum(p.bit_length() for p in ring.primes) * ring.degree // 8


def to_bytes(polynomials: Words, ring: Ring) -> bytes:
    """Return `polynomials`, (..., r, degree), row by row, each residue in as many bits as its prime."""
    rows = polynomials.reshape(-1, len(ring.primes), ring.degree)
    if len({p.bit_length() for p in ring.primes}) == 1:
        return _packed(rows.reshape(-1), ring.primes[0])
    return b"".join(_packed(row, p) for rows_of_one in rows for row, p in zip(rows_of_one, ring.primes, strict=True))


def from_bytes(data: bytes, ring: Ring, lead: tuple[int, ...] = (), what: str = "message") -> Words:
    """Return the polynomials, (*lead, r, degree), in `data`; `what` names them in an error.

    Raises Tampered unless the size is exact and every residue is below its prime.
    """
    if not isinstance(data, bytes) or len(data) != size_of(ring, lead):
        raise Tampered(f"the {what} has not the size it must have: ask for it again")
    words = np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)
    found = _unpacked(words, ring, prod(lead)).reshape(*lead, len(ring.primes), ring.degree)
    if not ring.valid(found):
        raise Tampered(f"the {what} holds numbers that are out of range: ask for it again")
    return found


def _packed(words: Words, prime: int) -> bytes:
    packed: Words = kernels.pack(np.ascontiguousarray(words), np.uint64(prime.bit_length()))
    return packed.astype("<u8", copy=False).tobytes()


def _unpacked(words: Words, ring: Ring, count: int) -> Words:
    sizes = [p.bit_length() for p in ring.primes]
    if len(set(sizes)) == 1:
        return np.asarray(kernels.unpack(words, count * len(sizes) * ring.degree, np.uint64(sizes[0])))
    rows, at = [], 0
    for size in sizes * count:
        length = size * ring.degree // 64
        rows.append(kernels.unpack(words[at : at + length], ring.degree, np.uint64(size)))
        at += length
    return np.concatenate(rows)
