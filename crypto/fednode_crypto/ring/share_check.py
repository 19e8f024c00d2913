"""Scheme `ring`: shows every holder, before anything is opened, that a client's shares lie on one polynomial.

The client shares two vectors by polynomials of degree < t over F_p: f, of its secret (f(0) = s, N coordinates), and
g, of L uniform masks. Holder j gets f(j) and g(j) in its box. A challenge that depends on all boxes is expanded to R,
an L x N matrix, and the client publishes the polynomial h = R f + g. Holder j checks R f(j) + g(j) = h(j).

Soundness: let the shares of f that honest holders have lie on no polynomial of degree < t. Then weights c_j, orthogonal
to all such polynomials, give d = sum c_j f(j) that is not 0. If all of them pass, R d + sum c_j g(j) = sum c_j h(j) = 0
whatever h is; R was drawn after the shares were fixed, so the chance is p^-L. L is the least with p^L >= 2^128: a
client that tries Q challenges (other boxes, each time) passes with chance <= Q 2^-128. With p = 2039 (100 clients) L is
12 and p^-L 2^-131.9.

Zero knowledge: fewer than t shares and h are independent of s. Given these shares, g is uniform among the polynomials
through those of g, and so h = R f + g among those through the points R f(j) + g(j), which whoever has the shares knows.
This holds for one h: two of them, with R and R', differ by (R - R') f, and so a sealing answers one challenge.

Edge cases: that s is small, or belongs to the payload, is not shown; opening finds it. A corrupt holder's share need
not lie on the polynomial. `docs/crypto.md` has the argument in full.

Sources: Shamir (1979); Cascudo, David, "SCRAPE: scalable randomness attested by public entities" (2017), for testing
shares against the dual code; Bellare, Garay, Rabin, "Fast batch verification for modular exponentiation and digital
signatures" (1998), for random linear combinations; Fiat, Shamir, "How to prove yourself" (1986), for the challenge.
"""

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.encoding import from_bytes, size_of, to_bytes
from fednode_crypto.errors import Tampered
from fednode_crypto.hazmat.moduli import Moduli
from fednode_crypto.hazmat.ring import mask_block
from fednode_crypto.hazmat.shamir import value_at
from fednode_crypto.ring.context import ring_context
from fednode_crypto.ring.params import RingParams
from fednode_crypto.secret import Secret

Words = NDArray[np.uint64]


class SharedPolynomial(Secret):
    """The polynomial (t, 1, N + L) that one client shared: its secret, and behind it the masks of the check."""

    __slots__ = ("_answered", "_params", "_polynomial")

    def __init__(self, params: RingParams, polynomial: Words) -> None:
        self._params, self._polynomial = params, polynomial
        self._answered: tuple[bytes, bytes] | None = None

    def check(self, challenge: bytes) -> bytes:
        """Return the coefficients of R f + g, exactly `check_bytes`, and forget the polynomial.

        ValueError unless the challenge has 32 bytes, and for a second one: two answers reveal the secret.
        """
        if self._answered is None:
            numbers = _combined(self._params, challenge, self._polynomial).reshape(1, -1)
            packed = to_bytes(numbers, ring_context(self._params).coefficients)
            self._answered = challenge, packed[: self._params.check_bytes]
            self._polynomial = np.empty(0, dtype=np.uint64)
        if self._answered[0] != challenge:
            raise ValueError("these shares have answered another challenge: seal the update again")
        return self._answered[1]


def check_share(params: RingParams, share: bytes, point: int, challenge: bytes, check: bytes) -> None:
    """Return if R f(j) + g(j) = h(j), for the share f(j), g(j) of the holder at `point`, and h in `check`.

    Guarantee: as the module says. Raises Tampered for another result, size or range, and for a spare bit that is set.
    """
    ctx, shape = ring_context(params), (params.threshold, 1, params.check_rows)
    found = _combined(params, challenge, _unpacked(share, ctx.masked, params.share_bytes, "share"))
    answer = _unpacked(check, ctx.coefficients, params.check_bytes, "check")
    if not np.array_equal(found, value_at(answer.reshape(shape), ctx.rows, point)):
        raise Tampered("the share does not belong to the client's check: exclude the client")


def _combined(params: RingParams, challenge: bytes, vectors: Words) -> Words:
    """Return R f + g for vectors (..., N + L): f, then g. Row i of R is what `mask_block` expands for block i."""
    degree, field = params.ring_degree, ring_context(params).shares
    matrix = np.concatenate([mask_block((challenge,), row, field) for row in range(params.check_rows)])
    # no word overflows: N p^2 < 2^50 for the largest cohort
    return np.asarray((vectors[..., :degree] @ matrix.T + vectors[..., degree:]) % field.q[0])


def _unpacked(data: bytes, field: Moduli, size: int, what: str) -> Words:
    """Return the (1, n) numbers in exactly `size` bytes, which may end before the last word does."""
    if not isinstance(data, bytes) or len(data) != size:
        raise Tampered(f"the {what} has the wrong size: exclude the client")
    numbers = from_bytes(data.ljust(size_of(field), b"\0"), field, what=what)
    if to_bytes(numbers, field)[:size] != data:
        raise Tampered(f"the {what} has bits that mean nothing: exclude the client")
    return numbers
