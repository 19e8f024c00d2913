"""The bulk of scheme `ring`, block by block: c = a s + e + D m over Z_q[x] / (x^n + 1), and back. Checks little.

`a` is expanded by AES-256-CTR, each prime's residues of each block from a stream of their own, in NTT form: a uniform
polynomial stays uniform under the transform. m packs several values a coefficient, value i of all in lane
i // (blocks * n). Integers only; the loops are in `ring_kernels`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.hazmat import ring_kernels
from fednode_crypto.hazmat.moduli import Moduli, with_scaled, words
from fednode_crypto.hazmat.ntt import Ring
from fednode_crypto.hazmat.stream import ZEROS, aes_ctr
from fednode_crypto.secret import Secret

Words = NDArray[np.uint64]

_LIMBS = 4


@dataclass(frozen=True, slots=True)
class LaneLayout:
    """The place of values in a block: `lanes` of `lane_bits` bits a coefficient, above `shift` bits for the error.

    `largest` and `small` bound the values and the error of a sum; with these added, both are non-negative.
    """

    blocks: int
    lanes: int
    lane_bits: int
    shift: int
    largest: int
    small: int

    @property
    def lanes_a_word(self) -> int:
        """How many lanes fit 64 bits."""
        return 64 // self.lane_bits

    @property
    def bias(self) -> int:
        """D times the packed `largest` values; adding it makes all lanes non-negative."""
        return sum(self.largest << (self.lane_bits * lane) for lane in range(self.lanes)) << self.shift


def mask_keys(context: bytes, primes: Sequence[int]) -> tuple[bytes, ...]:
    """Return, for each prime, the AES-256 key whose streams are `a`: SHA-256(context | i as one byte)."""
    return tuple(hashlib.sha256(context + bytes([i])).digest() for i in range(len(primes)))


def mask_block(keys: Sequence[bytes], block: int, ring: Moduli) -> Words:
    """Return (r, n) uniform residues that the keys and the number of the block fix: `a` of one block, in NTT form.

    Row i is read from AES-256-CTR under keys[i], the counter beginning at block * 2^64 (big-endian): little-endian
    words, whose low bits, as many as the prime has, are kept when they are below the prime.
    """
    rows = np.empty((len(keys), ring.degree), dtype="<u8")
    for row, key, p in zip(rows, keys, ring.primes, strict=True):
        stream, kept = aes_ctr(key, block.to_bytes(8, "big") + bytes(8)), 0
        while kept < ring.degree:
            missing = row[kept:].view(np.uint8)
            stream.update_into(ZEROS[: missing.size], missing.data)
            kept += ring_kernels.keep_below(row[kept:], np.uint64(p), np.uint64((1 << p.bit_length()) - 1))
    return rows.astype(np.uint64, copy=False)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Mask(Secret):
    """One secret s, ready to mask blocks under one `a`."""

    ring: Ring
    keys: Sequence[bytes]
    secret: tuple[Words, Words]

    @classmethod
    def of(cls, ring: Ring, keys: Sequence[bytes], secret: NDArray[np.int64]) -> "Mask":
        """Return the mask of the (n,) coefficients `secret`."""
        rows = ring.residues(secret)
        ring.forward(rows)
        return cls(ring, keys, (rows, ring.scaled(rows)))

    def seal(self, values: NDArray[np.int64], error: NDArray[np.int64], layout: LaneLayout) -> bytes:
        """Return all blocks, bit-packed: `values` (dimension,) within their lanes, `error` (blocks, n)."""
        ring = self.ring
        packed = np.empty((layout.blocks, int(ring.bits.sum()) * ring.degree // 64), dtype=np.uint64)
        tables = _seal_tables(ring.primes, layout)
        place = (layout.lanes, layout.lane_bits, layout.largest, layout.blocks * ring.degree)
        for block in range(layout.blocks):
            a = mask_block(self.keys, block, ring)
            self._product(a)
            lanes = ring_kernels.lane_words(values, block * ring.degree, ring.degree, place)
            ring_kernels.cover(packed[block], a, lanes, error[block], tables)
        return packed.astype("<u8", copy=False).tobytes()

    def open(self, total: Words, block: int, layout: LaneLayout, out: NDArray[np.int64]) -> bool:
        """Write the values of one block of a sum, `total` (r, n), to `out` (lanes, n), if s is the sum of its secrets.

        Return whether every error and value is within its bound and nothing stands above the lanes.
        """
        a = mask_block(self.keys, block, self.ring)
        self._product(a)
        place = (layout.shift, layout.lanes, layout.lane_bits, layout.largest, layout.small)
        return bool(ring_kernels.uncover(out, total, a, _open_tables(self.ring.primes, layout), place))

    def _product(self, a: Words) -> None:
        """Replace `a`, in NTT form, by the coefficients of a s."""
        ring_kernels.product(a, self.secret, self.ring.inverse_roots, self.ring.q)


@lru_cache(maxsize=16)
def _seal_tables(primes: tuple[int, ...], layout: LaneLayout) -> ring_kernels.SealTables:
    """Return the constants of `cover`: for each prime D times the place of each word of lanes, and 2 p - the bias."""
    step = layout.lane_bits * layout.lanes_a_word
    count = -(-layout.lanes // layout.lanes_a_word)
    weights = [[pow(2, layout.shift + step * g, p) for g in range(count)] for p in primes]
    weight, weight_scaled = with_scaled(weights, primes)
    return ring_kernels.SealTables(
        q=words(list(primes)),
        bits=np.array([p.bit_length() for p in primes], dtype=np.int64),
        unit=words([(1 << 64) // p for p in primes]),
        offset=words([2 * p - layout.bias % p for p in primes]),
        weight=weight,
        weight_scaled=weight_scaled,
    )


@lru_cache(maxsize=16)
def _open_tables(primes: tuple[int, ...], layout: LaneLayout) -> ring_kernels.OpenTables:
    """Return the constants of `uncover`: the Chinese remainder theorem in mixed radix (Garner 1959), and the offset.

    The sum of an honest round, with the bias and the largest error added, is a number from 0 to q - 1.
    """
    added = layout.bias + layout.small
    inverses = [[pow(primes[j], -1, p) if j < i else 0 for j in range(len(primes))] for i, p in enumerate(primes)]
    inverse, inverse_scaled = with_scaled(inverses, primes)
    radix = [prod(primes[:i]) for i in range(len(primes))]
    return ring_kernels.OpenTables(
        q=words(list(primes)),
        added=words([added % p for p in primes]),
        inverse=inverse,
        inverse_scaled=inverse_scaled,
        radix=np.array([[(m >> (64 * k)) & (2**64 - 1) for k in range(_LIMBS)] for m in radix], dtype=np.uint64),
    )
