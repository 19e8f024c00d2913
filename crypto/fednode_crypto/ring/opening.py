"""Scheme `ring`: a holder's answer, and what the answers open.

Sums of Shamir shares are shares of the sum (Shamir 1979; Benaloh, "Secret sharing homomorphisms", 1986): t answers give
S, the sum of the clients' secrets, and c - a S is the sum of what they sealed. Everything is exact.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.encoding import add_bytes, check_bytes, from_bytes, to_bytes
from fednode_crypto.errors import NotEnoughShares, Overflow, Tampered
from fednode_crypto.hazmat.lagrange import lagrange
from fednode_crypto.hazmat.ring import Mask
from fednode_crypto.interfaces import WrongAnswer
from fednode_crypto.packing import checked_sum
from fednode_crypto.ring.context import Setting, public_keys, setting
from fednode_crypto.ring.params import RingParams
from fednode_crypto.ring.sealing import RingSealedSum

Words = NDArray[np.uint64]

_SHARE, _ANSWER = "share", "answer"


def check_share(params: RingParams, share: bytes) -> None:
    """Return if `share` has the exact size and every number in it is in the field; else raise Tampered."""
    from_bytes(share, setting(params).shares, what=_SHARE)


def answer(params: RingParams, shares: Iterable[bytes]) -> bytes:
    """Return the sum of one holder's shares, exactly `answer_bytes`: one of each client of one roster.

    Guarantee: fewer than t answers are independent of every client's secret; t or more tell the sum of the roster's
    secrets and nothing else. That holds for one roster a round: the sums of two rosters tell their difference.
    Raises Tampered for a malformed share, Overflow for more shares than were planned, ValueError for none.
    """
    field_ = setting(params).shares
    total, count = np.zeros((1, params.ring_degree), dtype=np.uint64), 0
    for share in shares:
        if count == params.summands:
            raise Overflow(f"the sum was planned for {params.summands} updates: this roster has more")
        add_bytes(total, share, field_, _SHARE)
        count += 1
    if count == 0:
        raise ValueError("a roster of nobody has nothing to open")
    return to_bytes(total, field_)


def check_answer(params: RingParams, answer: bytes) -> None:
    """Return if `answer` has the exact size and every number in it is in the field; else raise Tampered."""
    check_bytes(answer, setting(params).shares, what=_ANSWER)


def combine(
    params: RingParams, total: RingSealedSum, answers: Mapping[int, bytes], context: bytes
) -> NDArray[np.int64]:
    """Return the (dimension,) sum of all updates in `total`, exactly, from the answers of t or more holders.

    Checked before anything is returned: sizes and ranges; that S is as small as a sum of honest secrets; with more than
    t answers, that each lies on the same polynomial; that the error of every coefficient is small and nothing stands
    above its lanes; that every value is within the bound and unused room is 0.
    Raises NotEnoughShares; WrongAnswer (a Tampered), naming the holders to leave out when t others open the sum;
    ValueError for an empty sum, one of other parameters, and an empty context.
    Edge cases: a holder is named too when it answered rightly with a share that a client made unlike the others, or
    when liars whose lies cancel out agree without it: what is left opens exactly all the same. When all answers agree
    but do not open, they are for another roster or context than `total`, or a client's shares do not belong to its
    payload, or its payload is junk: that client cannot be told. With exactly t answers a wrong one is found because a
    random S passes with a chance below 2^-780 a block. A sum far beyond the bound wraps around and may land within it
    (the bound must hold the noise's tail).
    """
    if total.params != params or total.count == 0:
        raise ValueError("there is nothing to open under these parameters: add updates first")
    keys = public_keys(params, context)
    if len(answers) < params.threshold:
        raise NotEnoughShares(f"{params.threshold} answers open a sum: {len(answers)} came")
    read = {p: _read_answer(params, p, a) for p, a in sorted(answers.items())}
    return _Opening(setting(params), keys, total, read).result()


def _read_answer(params: RingParams, point: int, data: bytes) -> Words:
    if type(point) is not int or not 1 <= point <= params.holders:
        raise Tampered(f"an answer comes from nobody: points are 1 to {params.holders}")
    try:
        return from_bytes(data, setting(params).shares, what=f"answer of holder {point}")
    except Tampered as error:
        raise WrongAnswer(str(error), [point]) from None


@dataclass(frozen=True, slots=True)
class _Opening:
    known: Setting
    keys: tuple[bytes, ...]
    total: RingSealedSum
    answers: Mapping[int, Words] = field(repr=False)

    def result(self) -> NDArray[np.int64]:
        trusted = self.fitting()
        if trusted is None:
            raise WrongAnswer(self._why_nothing_fits())
        if wrong := self.contradicting(trusted):
            raise WrongAnswer(f"holder {', '.join(map(str, wrong))} answered what the others contradict", wrong)
        return self.values(self.mask(trusted))

    def fitting(self) -> tuple[int, ...] | None:
        """The first t answers that open the first block to what honest clients may have sealed."""
        subsets = combinations(self.answers, self.known.params.threshold)
        return next((s for s in subsets if self.is_small(s) and self.opens(s)), None)

    def secret(self, points: tuple[int, ...], at: int = 0) -> Words:
        """The value at `at` of the polynomial through the answers at `points`, (1, degree)."""
        p = self.known.params.share_prime
        found = np.zeros((1, self.known.params.ring_degree), dtype=np.uint64)
        for point, weight in zip(points, lagrange(points, at), strict=True):
            self.known.shares.add_scaled(found, self.answers[point], weight.numerator * pow(weight.denominator, -1, p))
        return found

    def centred(self, points: tuple[int, ...]) -> NDArray[np.int64]:
        """S, (degree,), when `points` answered rightly."""
        p = self.known.params.share_prime
        found: NDArray[np.int64] = self.secret(points)[0].astype(np.int64)
        found[found > p // 2] -= p
        return found

    def is_small(self, points: tuple[int, ...]) -> bool:
        return bool(np.abs(self.centred(points)).max() <= self.known.params.small)

    def opens(self, points: tuple[int, ...]) -> bool:
        room = np.empty((self.known.params.lanes, self.known.params.ring_degree), dtype=np.int64)
        return self._open(self.mask(points), 0, room)

    def contradicting(self, trusted: tuple[int, ...]) -> list[int]:
        others = [p for p in self.answers if p not in trusted]
        return [p for p in others if not np.array_equal(self.secret(trusted, p), self.answers[p])]

    def mask(self, points: tuple[int, ...]) -> Mask:
        return Mask.of(self.known.data, self.keys, self.centred(points))

    def values(self, mask: Mask) -> NDArray[np.int64]:
        params = self.known.params
        found = np.empty((params.lanes, params.blocks, params.ring_degree), dtype=np.int64)
        for block in range(params.blocks):
            if not self._open(mask, block, found[:, block]):
                raise Tampered(f"block {block} of the sum holds what no honest updates add up to: do not use it")
        return checked_sum(found.reshape(-1), params)

    def _open(self, mask: Mask, block: int, out: NDArray[np.int64]) -> bool:
        return mask.open(self.total.words[block], block, self.known.layout, out)

    def _why_nothing_fits(self) -> str:
        points = tuple(self.answers)
        if len(points) > self.known.params.threshold and not self.contradicting(points[: self.known.params.threshold]):
            return "the answers agree, but do not open this sum: they are for another roster, or a client cheated"
        return "the answers do not open this sum: ask more holders, to see whether one of them or a client is wrong"
