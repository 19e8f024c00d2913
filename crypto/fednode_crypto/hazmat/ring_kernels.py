"""The loops of scheme `ring` over one block: integers only, compiled by Numba, one thread, nothing else allocated.

Conventions as in `kernels`. Primes are below 2^56, so that a word holds the sum of over a hundred residues.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fednode_crypto.hazmat.bits import pack_row
from fednode_crypto.hazmat.kernels import compiled, high, inverse_row, lazy

Words = Any  # NDArray[np.uint64] to the reader; Numba compiles these functions from their arguments

_0, _1, _6, _63 = (np.uint64(n) for n in (0, 1, 6, 63))
_LIMBS = 4


class SealTables(NamedTuple):
    """Constants of `cover`: row i of `weight` (with floor(weight 2^64 / p)) has one factor for each word of lanes."""

    q: Words
    bits: Words
    unit: Words
    offset: Words
    weight: Words
    weight_scaled: Words


class OpenTables(NamedTuple):
    """Constants of `uncover`: `inverse[i, j]` is 1 / primes[j] mod primes[i], `radix[i]` the product of primes[:i]."""

    q: Words
    added: Words
    inverse: Words
    inverse_scaled: Words
    radix: Words


@compiled(nogil=True)
def keep_below(row: Words, p: Any, mask: Any) -> Any:
    """Mask `row`, move the words below p to its front, and return how many there are."""
    largest = _0
    for i in range(row.shape[0]):
        row[i] &= mask
        largest = max(largest, row[i])
    if largest < p:
        return row.shape[0]
    kept = 0
    for i in range(row.shape[0]):
        w = row[i]
        row[kept] = w
        kept += w < p
    return kept


@compiled(nogil=True)
def product(a: Words, secret: Any, roots: Any, q: Words) -> None:
    """Replace a by the coefficients of a s; both are in NTT form, `secret` with its floor(s 2^64 / p)."""
    for k in range(q.shape[0]):
        x, s, s_scaled = a[k], secret[0][k], secret[1][k]
        for i in range(x.shape[0]):
            x[i] = lazy(x[i], s[i], s_scaled[i], q[k])
        inverse_row(x, roots[0][k], roots[1][k], q[k])


@compiled(nogil=True)
def lane_words(values: Any, start: Any, count: Any, place: Any) -> Words:
    """Return the lanes of coefficients start .. start + count, as many in one word as fit, non-negative.

    `place` is (lanes, lane bits, what is added to every value, values in one lane of all blocks).
    """
    lanes, bits, bias, room = place
    a_word = 64 // bits
    out = np.zeros(((lanes + a_word - 1) // a_word, count), dtype=np.uint64)
    for lane in range(lanes):
        row, at = out[lane // a_word], np.uint64(bits * (lane % a_word))
        first = lane * room + start
        there = values[min(first, values.shape[0]) : min(first + count, values.shape[0])]
        for i in range(there.shape[0]):
            row[i] |= np.uint64(there[i] + bias) << at
        for i in range(there.shape[0], count):
            row[i] |= np.uint64(bias) << at
    return out


@compiled(nogil=True)
def cover(out: Words, product_of: Words, lanes: Words, error: Any, t: SealTables) -> None:
    """Write a s + e + D m, bit-packed, from a s, the words of lanes and the errors."""
    at = 0
    for k in range(t.q.shape[0]):
        p, unit, x = t.q[k], t.unit[k], product_of[k]
        for i in range(x.shape[0]):
            x[i] += t.offset[k] + np.uint64(error[i])
        for g in range(lanes.shape[0]):
            w, w_scaled, row = t.weight[k, g], t.weight_scaled[k, g], lanes[g]
            for i in range(x.shape[0]):
                x[i] += lazy(row[i], w, w_scaled, p)
        for i in range(x.shape[0]):
            r = x[i] - high(x[i], unit) * p
            x[i] = min(r, r - p)
        end = at + (x.shape[0] * t.bits[k] + 63) // 64
        pack_row(x, t.bits[k], out[at:end])
        at = end


@njit(inline="always")
def _add_multiple(number: Words, x: Any, radix: Words) -> None:
    """Add x radix to a number of four words."""
    carry = _0
    for k in range(_LIMBS):
        low = x * radix[k]
        s = number[k] + low
        over = np.uint64(s < low)
        s += carry
        over += np.uint64(s < carry)
        number[k] = s
        carry = high(x, radix[k]) + over


@njit(inline="always")
def _join(number: Words, residues: Words, i: Any, digits: Words, t: OpenTables) -> None:
    """Set `number` to the one in [0, q) whose residues are column i of `residues`, plus `added`."""
    number[:] = _0
    for k in range(t.q.shape[0]):
        p = t.q[k]
        x = residues[k, i] + t.added[k]
        x = min(x, x - p)
        for j in range(k):
            # digits are below 2^56 and p above 2^53
            x = lazy(x + (p << np.uint64(3)) - digits[j], t.inverse[k, j], t.inverse_scaled[k, j], p)
            x = min(x, x - p)
        digits[k] = x
        _add_multiple(number, x, t.radix[k])


@njit(inline="always")
def _field(number: Words, at: Any, mask: Any) -> Any:
    word, used = at >> _6, at & _63
    return ((number[word] >> used) | ((number[word + _1] << _1) << (used ^ _63))) & mask


@njit(inline="always")
def _above(number: Words, at: Any) -> Any:
    """All bits from `at` on, or-ed into one word."""
    found = number[at >> _6] >> (at & _63)
    for k in range(np.int64(at >> _6) + 1, _LIMBS):
        found |= number[k]
    return found


@compiled(nogil=True)
def uncover(out: Any, total: Words, product_of: Words, t: OpenTables, place: Any) -> Any:
    """Write the lanes of total - a s to `out` (lanes, n), and return whether all of it is within bounds.

    `place` is (shift, lanes, lane bits, largest value, largest error). `product_of` is overwritten.
    """
    shift, lanes, bits, largest, small = place
    for k in range(t.q.shape[0]):
        x, c, p = product_of[k], total[k], t.q[k]
        for i in range(x.shape[0]):
            d = c[i] - x[i]
            x[i] = min(d, d + p)
    number, digits = np.zeros(_LIMBS + 1, dtype=np.uint64), np.zeros(t.q.shape[0], dtype=np.uint64)
    below, lane_mask = (_1 << np.uint64(shift)) - _1, (_1 << np.uint64(bits)) - _1
    most_error, most_value = np.uint64(2 * small), np.uint64(2 * largest)
    within = True
    for i in range(total.shape[1]):
        _join(number, product_of, i, digits, t)
        within &= (number[0] & below) <= most_error
        for lane in range(lanes):
            field = _field(number, np.uint64(shift + bits * lane), lane_mask)
            within &= field <= most_value
            out[lane, i] = np.int64(field) - largest
        within &= _above(number, np.uint64(shift + bits * lanes)) == _0
    return within
