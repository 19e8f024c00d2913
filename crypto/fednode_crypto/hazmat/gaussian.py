"""The discrete Gaussian over the integers by table inversion, with a proven distance from the ideal.

Narrow ones (standard deviation up to 512) come from one table. Wider ones are sums g1 + 2^k g2 of narrow ones:
Peikert, "An efficient and parallel Gaussian sampler for lattices" (2010), theorem 3.1; Micciancio and Walter,
"Gaussian sampling over the integers" (2017), section 4. `convolution_error` states the step that is used here.
Running time and memory access depend on the values drawn: no claim is made against an observer on the same machine.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.hazmat.kernels import compiled
from fednode_crypto.rng import Rng

SMALLEST_VARIANCE: Final = Fraction(1, 16)
LARGEST_VARIANCE: Final = Fraction(4**56)

_TABLE_VARIANCE: Final = 4**9
_STEP_BITS: Final = 7
_STEP_RATIO: Final = 5
"""Variance of the fine part of a sum over 4^k; 4.61 would bring the distance to 2^-130, 5 brings it to 2^-141."""

_FRACTION_BITS: Final = 320
_TAIL_BITS: Final = 140
_HEAD_BITS: Final = 64
_REST_BITS: Final = 128
_GUIDE_BITS: Final = 13
_CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The cumulative weights of one narrow discrete Gaussian on -B..B, rounded to 192 bits.

    Threshold i (0 <= i < 2B) is `heads[i]` 2^128 + `rests[i]`, the chance of a value of at most i - B in units of
    2^-192. `guide[g]` counts the heads below g 2^51.
    """

    heads: NDArray[np.uint64]
    rests: tuple[int, ...]
    guide: NDArray[np.int16]

    @property
    def bound(self) -> int:
        """B, the largest value."""
        return len(self.rests) // 2


@dataclass(frozen=True, slots=True)
class Part:
    """One summand of a draw: 2^`shift` times a narrow discrete Gaussian of this variance (in its own steps)."""

    variance: Fraction
    shift: int


@lru_cache(maxsize=64)
def parts(variance: Fraction) -> tuple[Part, ...]:
    """Return the summands of a draw, finest first; the sum of 4^shift times their variances is `variance` exactly."""
    shift, found = 0, []
    while variance > _TABLE_VARIANCE:
        k = next(k for k in range(1, _STEP_BITS + 1) if variance <= _TABLE_VARIANCE * 4**k or k == _STEP_BITS)
        found.append(Part(Fraction(_STEP_RATIO * 4**k), shift))
        variance = variance / 4**k - _STEP_RATIO
        shift += k
    return (*found, Part(variance, shift))


def draw(variance: Fraction, size: int, rng: Rng) -> NDArray[np.int64]:
    """Return `size` independent draws of N_Z(0, variance), each within `draw_error(variance)` of the ideal.

    Takes size words a part, in chunks of 65,536 draws, and two more for a word that ties with a threshold's head.
    """
    out = np.zeros(size, dtype=np.int64)
    plan = [(table(part.variance), part.shift) for part in parts(variance)]
    for start in range(0, size, _CHUNK):
        chunk = out[start : start + _CHUNK]
        for tab, shift in plan:
            words = rng.words(len(chunk))
            if _add_draws(words, tab.heads, tab.guide, 1 << shift, chunk):
                _add_ties(words, tab, rng, (chunk, shift))
    return out


def draw_error(variance: Fraction) -> float:
    """Return a bound on the statistical distance between one draw and N_Z(0, variance), given uniform words.

    Distances add up over a sum of independent parts, so this is one `table_error` a part and one `convolution_error`
    a sum. For every variance that is allowed it is below 2^-130.
    """
    *finer, last = parts(variance)
    rest, shift, total = last.variance, last.shift, table_error()
    for part in reversed(finer):
        total += table_error() + convolution_error(part.variance, shift - part.shift, rest)
        rest, shift = part.variance + 4 ** (shift - part.shift) * rest, part.shift
    return total


def table_error() -> float:
    """Return a bound on the statistical distance between a draw from any `table` and the ideal.

    - Tail: weights exp(-x^2 / 2v) end where they fall below 2^-140, at x > 13.9 sigma. From there on they fall at
      least geometrically with ratio exp(-x / v), and the weights sum to at least max(1, 2.5 sigma), so both tails hold
      less than 2.2 times 2^-140.
    - Rounding: at most 2^14 thresholds, each within 2^-193: less than 2^-179.
    - Arithmetic: see `_weights`; less than 2^-240.
    """
    return math.ldexp(1.0, 2 - _TAIL_BITS)


def convolution_error(fine: Fraction, k: int, coarse: Fraction) -> float:
    """Return a bound on the distance between g1 + 2^k g2 and N_Z(0, fine + 4^k coarse), g1 and g2 being ideal.

    With v = fine + 4^k coarse, the sum x has a chance proportional to exp(-x^2 / 2v) times the weight that a coset of
    2^k Z has under the Gaussian function of variance w 4^k, w = fine coarse / v. By Poisson summation every coset
    weighs the same up to a factor 1 +- e, e = 2 (exp(-2 pi^2 w) + exp(-8 pi^2 w) + ...): a distance of at most
    e / (1 - e).
    """
    width = fine * coarse / (fine + 4**k * coarse)
    leading = 2.0 * math.exp(-2.0 * math.pi**2 * float(width))
    # covers the later terms, 1 / (1 - e) and the rounding of these floats, as long as the leading term is small
    return leading * 1.001 if leading < 2.0**-20 else 1.0


@lru_cache(maxsize=32)
def table(variance: Fraction) -> Table:
    """Return the table for 1/16 <= variance <= 4^9, built from integers only; the last 32 are kept."""
    half = list(_weights(variance))
    whole = half[:0:-1] + half
    total, running, cuts = sum(whole), 0, []
    for weight in whole[:-1]:
        running += weight
        cuts.append(((running << (_HEAD_BITS + _REST_BITS + 1)) // total + 1) >> 1)
    heads = np.array([cut >> _REST_BITS for cut in cuts], dtype=np.uint64)
    cells = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(_HEAD_BITS - _GUIDE_BITS)
    guide = np.searchsorted(heads, cells).astype(np.int16)
    for array in (heads, guide):
        array.setflags(write=False)
    return Table(heads, tuple(cut & ((1 << _REST_BITS) - 1) for cut in cuts), guide)


def _weights(variance: Fraction) -> Iterator[int]:
    """Yield exp(-x^2 / 2v) for x = 0, 1, ... in units of 2^-320 until it is below 2^-140.

    A weight is the last one times exp(-(2x + 1) / 2v), and this ratio is the last ratio times exp(-1 / v). The two
    exponentials are within 2^32 units; an error of u units in them is at most x u after x ratios and x^2 u
    after x weights, x < 2^13: the sum of all weights is right to 2^-240.
    """
    ratio, decay = _exp_minus(1 / (2 * variance)), _exp_minus(1 / variance)
    weight = 1 << _FRACTION_BITS
    while weight >> (_FRACTION_BITS - _TAIL_BITS):
        yield weight
        weight = (weight * ratio) >> _FRACTION_BITS
        ratio = (ratio * decay) >> _FRACTION_BITS


def _exp_minus(exponent: Fraction) -> int:
    """Return exp(-exponent) in units of 2^-320, for 0 < exponent <= 16, to within 2^32 units.

    Taylor's series; each of fewer than 200 terms is cut by one unit, a cut grows at most by exp(16) on its way through
    the later terms, and what follows the first zero term alternates and shrinks.
    """
    term, total, n = 1 << _FRACTION_BITS, 0, 0
    while term:
        total += -term if n % 2 else term
        n += 1
        term = term * exponent.numerator // (exponent.denominator * n)
    return total


@compiled(nogil=True)
def _add_draws(
    words: NDArray[np.uint64], heads: NDArray[np.uint64], guide: NDArray[np.int16], scale: int, out: NDArray[np.int64]
) -> int:
    """Add scale times a draw to every element of `out`; leave out the words that equal a head, and count them."""
    ties, count = 0, heads.size
    for i in range(words.size):
        word = words[i]
        j = np.int64(guide[word >> np.uint64(_HEAD_BITS - _GUIDE_BITS)])
        while j < count and heads[j] <= word:
            j += 1
        if j > 0 and heads[j - 1] == word:
            ties += 1
        else:
            out[i] += scale * (j - count // 2)
    return ties


def _add_ties(words: NDArray[np.uint64], tab: Table, rng: Rng, target: tuple[NDArray[np.int64], int]) -> None:
    out, shift = target
    for i in np.flatnonzero(np.isin(words, tab.heads)):
        first = int(np.searchsorted(tab.heads, words[i], side="left"))
        after = int(np.searchsorted(tab.heads, words[i], side="right"))
        high, low = (int(word) for word in rng.words(2))
        passed = bisect_right(tab.rests, (high << _HEAD_BITS) | low, first, after)
        out[i] += (passed - tab.bound) << shift
