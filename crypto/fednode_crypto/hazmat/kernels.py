"""Loops over residues: integers only, compiled by Numba, one thread. Import this late: Numba takes half a second.

Every array is C-contiguous uint64. Rows belong to primes: row i of a (rows, n) array is reduced by prime i mod r, whose
constants stand in `q`, `ratio` (floor(2^(64+bits) / q) - 2^64) and `shift` (64 - bits). Residues are below q < 2^61.
"""

import os
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

Words = Any  # NDArray[np.uint64] to the reader; Numba compiles these functions from their arguments

_Function = TypeVar("_Function", bound=Callable[..., Any])

_64 = np.uint64(64)


def compiled(*, nogil: bool = False) -> Callable[[_Function], _Function]:
    """Compile a function when it is first called. The code is kept on disk only where nobody else can change it.

    Numba looks in `NUMBA_CACHE_DIR`, beside the source and in the user's cache, and runs what it finds. Where others
    could put code there, every process compiles anew.
    """

    def wrapped(function: _Function) -> _Function:
        kept = njit(cache=True, nogil=nogil)(function)
        made: _Function = kept if is_ours(kept.stats.cache_path) else njit(nogil=nogil)(function)
        return made

    return wrapped


@cache
def is_ours(folder: str) -> bool:
    """Whether only this user, root and the owner of this source can write into `folder` or put another in its place."""
    place = Path(folder).resolve()
    return _closed(place.stat()) and all(_closed(above.stat(), stat.S_ISVTX) for above in place.parents)


def _closed(found: os.stat_result, sticky: int = 0) -> bool:
    others = 0o002 if found.st_gid == os.getegid() else 0o022
    return found.st_uid in (0, os.geteuid(), Path(__file__).stat().st_uid) and bool(
        found.st_mode & sticky or not found.st_mode & others
    )


@intrinsic
def high(_typing: Any, a: Any, b: Any) -> Any:  # noqa: ARG001 - Numba reads the parameters by name
    """Upper half of the 128-bit product of two words."""

    def build(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), build


@njit(inline="always")
def _scaled(y: Any, ratio: Any, shift: Any) -> Any:
    """floor(y 2^64 / q) for y < q, or one less."""
    product = y * ratio
    return (y << shift) + ((high(y, ratio) << shift) | (product >> (_64 - shift)))


@njit(inline="always")
def _times(a: Any, w: Any, w_scaled: Any, q: Any) -> Any:
    """a w mod q (Shoup), for a below 2 q < 2^62 and w_scaled = floor(w 2^64 / q) or one less."""
    # the quotient is short by less than 1 + 2 a / 2^64 < 1.5
    r = a * w - high(a, w_scaled) * q
    return r - q if r >= q else r


@compiled()
def multiply(a: Words, b: Words, q: Words, ratio: Words, shift: Words) -> None:
    """Replace a by a * b, residue by residue; b has as many rows as there are primes, or as a has."""
    for i in range(a.shape[0]):
        p, k = i % q.shape[0], i % b.shape[0]
        for j in range(a.shape[1]):
            w = b[k, j]
            a[i, j] = _times(a[i, j], w, _scaled(w, ratio[p], shift[p]), q[p])


@compiled()
def scale_add(total: Words, a: Words, weight: Words, weight_scaled: Words, q: Words) -> None:
    """Add weight * a to total; one weight for each prime, with its floor(weight 2^64 / q)."""
    for i in range(a.shape[0]):
        p = i % q.shape[0]
        for j in range(a.shape[1]):
            s = total[i, j] + _times(a[i, j], weight[p], weight_scaled[p], q[p])
            total[i, j] = s - q[p] if s >= q[p] else s


@compiled()
def add(total: Words, a: Words, q: Words) -> None:
    """Add a to total."""
    for i in range(a.shape[0]):
        p = q[i % q.shape[0]]
        for j in range(a.shape[1]):
            s = total[i, j] + a[i, j]
            total[i, j] = s - p if s >= p else s


@compiled()
def subtract(total: Words, a: Words, q: Words) -> None:
    """Subtract a from total."""
    for i in range(a.shape[0]):
        p = q[i % q.shape[0]]
        for j in range(a.shape[1]):
            s = total[i, j] + p - a[i, j]
            total[i, j] = s - p if s >= p else s


@compiled()
def forward(a: Words, roots: Words, roots_scaled: Words, q: Words) -> None:
    """Negacyclic NTT of each row in place (Cooley-Tukey, roots and result in bit-reversed order)."""
    n = a.shape[1]
    for row in range(a.shape[0]):
        k = row % q.shape[0]
        p = q[k]
        gap, m = n >> 1, 1
        while m < n:
            for i in range(m):
                w, ws = roots[k, m + i], roots_scaled[k, m + i]
                for j in range(2 * i * gap, 2 * i * gap + gap):
                    u, v = a[row, j], _times(a[row, j + gap], w, ws, p)
                    s, d = u + v, u + p - v
                    a[row, j] = s - p if s >= p else s
                    a[row, j + gap] = d - p if d >= p else d
            gap, m = gap >> 1, m << 1


@njit(inline="always")
def lazy(a: Any, w: Any, w_scaled: Any, q: Any) -> Any:
    """a w mod q or q more (Shoup, Harvey 2014), for any word a and w_scaled = floor(w 2^64 / q); or one less, a < q."""
    return a * w - high(a, w_scaled) * q


@njit(inline="always")
def _quad(x: Words, i: Any, at: Any, tables: Any) -> None:
    """The first two levels of `inverse_row` for entries i to i + 3; `at` are where their three roots stand."""
    roots, scaled, p = tables
    twice = p + p
    a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
    first, second = a + b, c + d
    first, second = min(first, first - twice), min(second, second - twice)
    third = lazy(a + twice - b, roots[at[0]], scaled[at[0]], p)
    fourth = lazy(c + twice - d, roots[at[0] + 1], scaled[at[0] + 1], p)
    low, high = first + second, third + fourth
    x[i], x[i + 1] = min(low, low - twice), min(high, high - twice)
    w, ws = roots[at[1]], scaled[at[1]]
    x[i + 2], x[i + 3] = lazy(first + twice - second, w, ws, p), lazy(third + twice - fourth, w, ws, p)


@compiled(nogil=True)
def inverse_row(x: Words, roots: Words, scaled: Words, p: Any) -> None:
    """`inverse` for one row, whose entries may be up to 2 p; they stay below that on the way (Harvey 2014)."""
    n = x.shape[0]
    twice = p + p
    gap, m = 1, n >> 1
    if n >= 4:
        for i in range(n >> 2):
            _quad(x, 4 * i, (m + 2 * i, (m >> 1) + i), (roots, scaled, p))
        gap, m = 4, n >> 3
    while m >= 1:
        for i in range(m):
            w, ws = roots[m + i], scaled[m + i]
            low, high = x[2 * i * gap : 2 * i * gap + gap], x[2 * i * gap + gap : 2 * i * gap + 2 * gap]
            for j in range(gap):
                u, v = low[j], high[j]
                s = u + v
                low[j] = min(s, s - twice)
                high[j] = lazy(u + twice - v, w, ws, p)
        gap, m = gap << 1, m >> 1
    for j in range(n):
        s = lazy(x[j], roots[0], scaled[0], p)
        x[j] = min(s, s - p)


@compiled()
def inverse(a: Words, roots: Words, roots_scaled: Words, q: Words) -> None:
    """Undo `forward` in place (Gentleman-Sande); entry 0 of the tables, otherwise unused, holds 1 / n."""
    for row in range(a.shape[0]):
        k = row % q.shape[0]
        inverse_row(a[row], roots[k], roots_scaled[k], q[k])


@compiled()
def scaled(a: Words, q: Words, ratio: Words, shift: Words) -> Words:
    """Return floor(a 2^64 / q), or one less, residue by residue."""
    out = np.empty_like(a)
    for i in range(a.shape[0]):
        k = i % q.shape[0]
        for j in range(a.shape[1]):
            out[i, j] = _scaled(a[i, j], ratio[k], shift[k])
    return out


@compiled()
def fraction(a: Words, weight: Words, q: Words, ratio: Words, shift: Words) -> Words:
    """Return sum over the r primes of (a weight mod q) / q, as 64-bit fractions of one turn; a is (blocks * r, n).

    Each prime's part is rounded down, by less than two units: the result is up to 2 r units low.
    """
    r = q.shape[0]
    out = np.zeros((a.shape[0] // r, a.shape[1]), dtype=np.uint64)
    for i in range(a.shape[0]):
        p = i % r
        ws = _scaled(weight[p], ratio[p], shift[p])
        for j in range(a.shape[1]):
            out[i // r, j] += _scaled(_times(a[i, j], weight[p], ws, q[p]), ratio[p], shift[p])
    return out
