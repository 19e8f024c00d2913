"""Scheme `ring`: a holder's answer, and what the answers open.

Sums of Shamir shares are shares of the sum (Shamir 1979; Benaloh, "Secret sharing homomorphisms", 1986): t answers give
S, the sum of the clients' secrets, and c - a S is the sum of what they sealed. Everything is exact.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.answers import check_openable, contradicted, read_answers
from fednode_crypto.encoding import add_bytes, check_bytes, to_bytes
from fednode_crypto.errors import Overflow, Tampered, WrongAnswer
from fednode_crypto.hazmat.lagrange import lagrange
from fednode_crypto.hazmat.ring import Mask
from fednode_crypto.packing import checked_sum
from fednode_crypto.ring.context import RingContext, public_keys, ring_context
from fednode_crypto.ring.params import RingParams
from fednode_crypto.ring.sealing import RingSealedSum

Words = NDArray[np.uint64]


def answer(params: RingParams, shares: Iterable[bytes]) -> bytes:
    """Return the sum of one holder's shares, exactly `answer_bytes`: one share of each client of one roster.

    Guarantee: fewer than t answers are independent of every client's secret; t or more reveal the sum of the roster's
    secrets and nothing else. This holds for one roster a round: the sums of two rosters reveal their difference.
    Raises Tampered for a malformed share, Overflow for more shares than were planned, ValueError for none.
    """
    ctx = ring_context(params)
    total, count = np.zeros((1, params.ring_degree), dtype=np.uint64), 0
    for share in shares:
        if count == params.summands:
            raise Overflow(f"the sum was planned for {params.summands} updates: this roster has more")
        check_bytes(share, ctx.masked, what="share")
        add_bytes(total, share[: params.answer_bytes], ctx.shares)
        count += 1
    if count == 0:
        raise ValueError("an empty roster cannot be opened")
    return to_bytes(total, ctx.shares)


def combine(
    params: RingParams, total: RingSealedSum, answers: Mapping[int, bytes], context: bytes
) -> NDArray[np.int64]:
    """Return the exact (dimension,) sum of all updates in `total`, from the answers of t or more holders.

    Checked before anything is returned: sizes and ranges; S is as small as a sum of honest secrets; with more than t
    answers, all lie on one polynomial; the error of every coefficient is small and nothing stands above its lanes;
    every value is within the bound and unused lanes are 0.
    Raises NotEnoughShares; WrongAnswer (a Tampered), naming the holders to leave out if t others open the sum;
    ValueError for an empty sum, one of other parameters, and an empty context.
    Edge cases: a holder is also named if it answered correctly with a share that its client made inconsistent, or if
    the lies of several holders cancel out; the remaining answers still open the sum exactly. If all answers agree but
    do not open the sum, they are for another roster or context, or one client's shares do not match its payload, or
    its payload is junk; that client cannot be identified. With exactly t answers a wrong one is detected because a
    random S passes with a chance below 2^-780 a block. A sum far beyond the bound wraps around and may land within it,
    so the bound must hold the tail of the noise.
    """
    check_openable(params, total, answers)
    keys, ctx = public_keys(params, context), ring_context(params)
    return RingOpening(ctx, keys, total, read_answers(params, answers, ctx.shares)).result()


@dataclass(frozen=True, slots=True)
class RingOpening:
    """The opening of one sum: finds t answers that fit, checks the others against them, and unmasks every block."""

    ctx: RingContext
    keys: tuple[bytes, ...]
    total: RingSealedSum
    answers: Mapping[int, Words] = field(repr=False)

    def result(self) -> NDArray[np.int64]:
        """Return the opened sum, or raise WrongAnswer or Tampered as `combine` says."""
        trusted = self._fitting()
        if trusted is None:
            raise WrongAnswer(self._why_nothing_fits())
        if wrong := self._contradicting(trusted):
            raise contradicted(wrong)
        return self._values(self._mask(trusted))

    def centred(self, points: tuple[int, ...]) -> NDArray[np.int64]:
        """Return S, (degree,), if the answers at `points` are correct."""
        p = self.ctx.params.share_prime
        found: NDArray[np.int64] = self._interpolated(points)[0].astype(np.int64)
        found[found > p // 2] -= p
        return found

    def _fitting(self) -> tuple[int, ...] | None:
        """Return the first t points whose answers open the first block to what honest clients can have sealed."""
        subsets = combinations(self.answers, self.ctx.params.threshold)
        return next((s for s in subsets if self._is_small(s) and self._opens(s)), None)

    def _interpolated(self, points: tuple[int, ...], at: int = 0) -> Words:
        """Return the value at `at` of the polynomial through the answers at `points`, (1, degree)."""
        p = self.ctx.params.share_prime
        found = np.zeros((1, self.ctx.params.ring_degree), dtype=np.uint64)
        for point, weight in zip(points, lagrange(points, at), strict=True):
            self.ctx.shares.add_scaled(found, self.answers[point], weight.numerator * pow(weight.denominator, -1, p))
        return found

    def _is_small(self, points: tuple[int, ...]) -> bool:
        return bool(np.abs(self.centred(points)).max() <= self.ctx.params.small)

    def _opens(self, points: tuple[int, ...]) -> bool:
        block = np.empty((self.ctx.params.lanes, self.ctx.params.ring_degree), dtype=np.int64)
        return self._open(self._mask(points), 0, block)

    def _contradicting(self, trusted: tuple[int, ...]) -> list[int]:
        others = [p for p in self.answers if p not in trusted]
        return [p for p in others if not np.array_equal(self._interpolated(trusted, p), self.answers[p])]

    def _mask(self, points: tuple[int, ...]) -> Mask:
        return Mask.of(self.ctx.data, self.keys, self.centred(points))

    def _values(self, mask: Mask) -> NDArray[np.int64]:
        params = self.ctx.params
        found = np.empty((params.lanes, params.blocks, params.ring_degree), dtype=np.int64)
        for block in range(params.blocks):
            if not self._open(mask, block, found[:, block]):
                raise Tampered(f"block {block} of the sum holds values that honest updates cannot add up to")
        return checked_sum(found.reshape(-1), params)

    def _open(self, mask: Mask, block: int, out: NDArray[np.int64]) -> bool:
        return mask.open(self.total.words[block], block, self.ctx.layout, out)

    def _why_nothing_fits(self) -> str:
        points, threshold = tuple(self.answers), self.ctx.params.threshold
        if len(points) > threshold and not self._contradicting(points[:threshold]):
            return "the answers agree, but do not open this sum: they are for another roster, or a client cheated"
        return "the answers do not open this sum: ask more holders, to see whether one of them or a client is wrong"
