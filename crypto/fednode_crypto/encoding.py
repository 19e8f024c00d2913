"""Residues as bytes: bit-packed, of exact size, and checked before any other use."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.errors import Tampered
from fednode_crypto.hazmat import bits
from fednode_crypto.hazmat.moduli import Moduli

Words = NDArray[np.uint64]


def size_of(moduli: Moduli, lead: tuple[int, ...] = ()) -> int:
    """Return the exact size in bytes of polynomials of shape (*lead, r, degree)."""
    return 8 * prod(lead) * sum(-(-p.bit_length() * moduli.degree // 64) for p in moduli.primes)


def to_bytes(polynomials: Words, moduli: Moduli) -> bytes:
    """Return `polynomials`, (..., r, degree), row by row in whole words, a residue in as many bits as its prime."""
    packed: Words = bits.pack(moduli.rows(polynomials), moduli.bits)
    return packed.astype("<u8", copy=False).tobytes()


def from_bytes(data: bytes, moduli: Moduli, lead: tuple[int, ...] = (), what: str = "message") -> Words:
    """Return the polynomials, (*lead, r, degree), in `data`; `what` names them in an error.

    Raises Tampered unless the size is exact and every residue is below its prime.
    """
    packed = _checked(data, moduli, lead, what)
    found = np.empty((*lead, len(moduli.primes), moduli.degree), dtype=np.uint64)
    bits.unpack(packed, moduli.bits, moduli.rows(found))
    return found


def check_bytes(data: bytes, moduli: Moduli, lead: tuple[int, ...] = (), what: str = "message") -> None:
    """Return if `from_bytes` would accept `data`, else raise as it does; nothing is unpacked."""
    _checked(data, moduli, lead, what)


def add_bytes(total: Words, data: bytes, moduli: Moduli, what: str = "message") -> None:
    """Add the polynomials in `data` to `total`, (..., r, degree), in place.

    Raises as `from_bytes`, and then `total` has not changed.
    """
    packed = _checked(data, moduli, total.shape[:-2], what)
    bits.fold(moduli.rows(total), packed, moduli.bits, moduli.q)


def _checked(data: bytes, moduli: Moduli, lead: tuple[int, ...], what: str) -> Words:
    if not isinstance(data, bytes) or len(data) != size_of(moduli, lead):
        raise Tampered(f"the {what} has the wrong size: ask for it again")
    packed = np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)
    if not bits.in_range(packed, moduli.bits, moduli.q, moduli.degree):
        raise Tampered(f"the {what} holds numbers out of range: ask for it again")
    return packed
