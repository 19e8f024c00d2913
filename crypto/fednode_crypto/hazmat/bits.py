"""Residues as bits end to end, least significant first: integers only, compiled by Numba, one thread.

Rows belong to primes as in `kernels`: row i of a (rows, n) array takes `bits[i mod r]` bits (1 to 63) a residue and
starts at a word of its own. `packed` are words, little-endian on the wire.
"""

from typing import Any

import numpy as np
from numba import njit

from fednode_crypto.hazmat.kernels import compiled

Words = Any  # NDArray[np.uint64] to the reader; Numba compiles these functions from their arguments

_0, _1, _6, _63, _64 = (np.uint64(n) for n in (0, 1, 6, 63, 64))


@njit(inline="always")
def _words_of(count: Any, bits: Any) -> Any:
    return (count * bits + 63) // 64


@njit(inline="always")
def _before_last(packed: Words, count: Any, bits: Any) -> Any:
    """How many of the residues do not begin in the last word."""
    return min(count, (64 * (packed.shape[0] - 1) + bits - 1) // bits)


@njit(inline="always")
def _read(packed: Words, after: Words, i: Any, bits: Any) -> Any:
    """The bits from residue i on, which must not begin in the last word; `after` is `packed` from its second word."""
    at = np.uint64(i) * np.uint64(bits)
    word, used = at >> _6, at & _63
    return (packed[word] >> used) | ((after[word] << _1) << (used ^ _63))


@njit(inline="always")
def _read_last(packed: Words, i: Any, bits: Any) -> Any:
    at = np.uint64(i) * np.uint64(bits)
    return packed[at >> _6] >> (at & _63)


@compiled(nogil=True)
def pack_row(row: Words, bits: Any, out: Words) -> None:
    """Write the residues of one row, each below 2^bits, over all words of `out`."""
    size = np.uint64(bits)
    used, at, word = _0, 0, _0
    for i in range(row.shape[0]):
        word |= row[i] << used
        used += size
        if used >= _64:
            out[at] = word
            at += 1
            used -= _64
            word = (row[i] >> _1) >> (size - used - _1)
    if used > _0:
        out[at] = word


@compiled(nogil=True)
def _unpack_row(packed: Words, bits: Any, out: Words) -> None:
    mask = (_1 << np.uint64(bits)) - _1
    after, most = packed[1:], _before_last(packed, out.shape[0], bits)
    for i in range(most):
        out[i] = _read(packed, after, i, bits) & mask
    for i in range(most, out.shape[0]):
        out[i] = _read_last(packed, i, bits) & mask


@compiled(nogil=True)
def _largest(packed: Words, count: Any, bits: Any) -> Any:
    mask, found = (_1 << np.uint64(bits)) - _1, _0
    after, most = packed[1:], _before_last(packed, count, bits)
    for i in range(most):
        found = max(found, _read(packed, after, i, bits) & mask)
    for i in range(most, count):
        found = max(found, _read_last(packed, i, bits) & mask)
    return found


@compiled(nogil=True)
def _add_row(total: Words, packed: Words, bits: Any, p: Any) -> None:
    mask = (_1 << np.uint64(bits)) - _1
    after, most = packed[1:], _before_last(packed, total.shape[0], bits)
    for i in range(most):
        s = total[i] + (_read(packed, after, i, bits) & mask)
        total[i] = min(s, s - p)
    for i in range(most, total.shape[0]):
        s = total[i] + (_read_last(packed, i, bits) & mask)
        total[i] = min(s, s - p)


@compiled(nogil=True)
def pack(rows: Words, bits: Any) -> Words:
    """Return all rows, packed."""
    count, r = rows.shape[1], bits.shape[0]
    sizes = np.array([_words_of(count, bits[i % r]) for i in range(rows.shape[0])], dtype=np.int64)
    out, at = np.zeros(sizes.sum(), dtype=np.uint64), 0
    for i in range(rows.shape[0]):
        pack_row(rows[i], bits[i % r], out[at : at + sizes[i]])
        at += sizes[i]
    return out


@compiled(nogil=True)
def unpack(packed: Words, bits: Any, out: Words) -> None:
    """Undo `pack` into the rows of `out`."""
    at = 0
    for i in range(out.shape[0]):
        size = bits[i % bits.shape[0]]
        end = at + _words_of(out.shape[1], size)
        _unpack_row(packed[at:end], size, out[i])
        at = end


@compiled(nogil=True)
def in_range(packed: Words, bits: Any, q: Words, count: Any) -> Any:
    """Return whether every residue of rows of `count` is below its prime."""
    at, i = 0, 0
    while at < packed.shape[0]:
        size = bits[i % bits.shape[0]]
        end = at + _words_of(count, size)
        if _largest(packed[at:end], count, size) >= q[i % q.shape[0]]:
            return False
        at, i = end, i + 1
    return True


@compiled(nogil=True)
def fold(total: Words, packed: Words, bits: Any, q: Words) -> None:
    """Add packed rows, every residue below its prime, to the rows of `total`."""
    at = 0
    for i in range(total.shape[0]):
        k = i % q.shape[0]
        end = at + _words_of(total.shape[1], bits[k])
        _add_row(total[i], packed[at:end], bits[k], q[k])
        at = end
