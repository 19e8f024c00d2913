"""Scheme `bfv`: a holder's answer, and what the answers open.

Source: Boneh et al., "Threshold Cryptosystems from Threshold Fully Homomorphic Encryption" (2018), with smudging of
2^40 standard deviations (Gaussian; by Renyi divergence an answer tells less than 2^-80 a coefficient about the noise).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.answers import check_openable, contradicted, read_answers
from fednode_crypto.bfv.context import BfvContext, bfv_context
from fednode_crypto.bfv.keys import BfvShare
from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.bfv.planner import SMUDGING_STEP_BITS
from fednode_crypto.bfv.sealing import BfvSealedSum
from fednode_crypto.bfv.slots import from_slots
from fednode_crypto.encoding import from_bytes, to_bytes
from fednode_crypto.errors import Tampered, WrongAnswer
from fednode_crypto.hazmat.lagrange import cleared, dependency, lagrange
from fednode_crypto.hazmat.tenseal_bfv import toolbox
from fednode_crypto.noise import discrete_gaussian
from fednode_crypto.rng import Rng
from fednode_crypto.tail_bounds import TASK_DRAWS, noise_tail

Words = NDArray[np.uint64]

_FINE_RATIO: Final = 5
"""Variance of the fine part in steps of the coarse one: smooth over them to 2^-141 (Micciancio, Walter, "Gaussian
sampling over the integers", 2017, section 4)."""


def answer(params: BfvParams, share: BfvShare, request: bytes, rng: Rng) -> bytes:
    """Return one holder's part of the opening, exactly `answer_bytes`: lift * c1 * S_j + smudging.

    Guarantee: with the answers of other holders it reveals the opened sum and, but for 2^-80 a coefficient, nothing
    else, if `request` is the second half of a sum of honest payloads. Answer each request once.
    Raises Tampered for a request of wrong size or range, ValueError for a share of other parameters.
    """
    ctx = bfv_context(params)
    part = from_bytes(request, ctx.data, (params.blocks,), "request")
    secret = np.zeros((params.data_primes, params.ring_degree), dtype=np.uint64)
    ctx.data.add_scaled(secret, share.words(params), ctx.lift)
    ctx.data.forward(part)
    ctx.data.multiply(part, secret)
    ctx.data.inverse(part)
    _smudge(part, ctx, rng)
    return to_bytes(part, ctx.data)


def _smudge(part: Words, ctx: BfvContext, rng: Rng) -> None:
    blocks, _, degree = part.shape
    step = SMUDGING_STEP_BITS
    coarse = discrete_gaussian((ctx.noise.smudging >> (2 * step)) - _FINE_RATIO, blocks * degree, rng)
    fine = discrete_gaussian(_FINE_RATIO << (2 * step), blocks * degree, rng)
    ctx.data.add_scaled(part, ctx.data.residues(coarse.reshape(blocks, degree)), 1 << step)
    ctx.data.add(part, ctx.data.residues(fine.reshape(blocks, degree)))


def combine(params: BfvParams, total: BfvSealedSum, answers: Mapping[int, bytes]) -> NDArray[np.int64]:
    """Return the exact (dimension,) sum of all updates in `total`, from the answers of t or more holders.

    Checked before anything is returned: sizes and ranges; the opened residual is small, which only answers to this very
    request achieve; with more than t answers, each fits the others; every value is within the bound and unused lanes
    are 0. Raises NotEnoughShares; WrongAnswer (a Tampered), naming the holders to leave out if the other answers show
    who is wrong; ValueError for an empty sum or one of other parameters.
    Edge cases: an answer that is off by less than its smudging opens the same sum and passes (its signature covers the
    rest). A sum far beyond the bound wraps around and may land within it, so the bound must hold the tail of the noise.
    """
    check_openable(params, total, answers)
    ctx = bfv_context(params)
    return BfvOpening(ctx, total, read_answers(params, answers, ctx.data, (params.blocks,))).result()


@dataclass(frozen=True, slots=True)
class BfvOpening:
    """The opening of one sum: finds t answers that fit, checks the others against them, and decodes."""

    ctx: BfvContext
    total: BfvSealedSum
    answers: Mapping[int, Words]

    def result(self) -> NDArray[np.int64]:
        """Return the opened sum, or raise WrongAnswer or Tampered as `combine` says."""
        trusted = next(self._fitting(), None)
        if trusted is None:
            raise WrongAnswer("the answers do not open this sum: ask the holders again")
        values = from_slots(self._slots(trusted), self.ctx.params)
        wrong = [p for p in self.answers if p not in trusted and not self._agrees(trusted, p)]
        if not wrong:
            return values
        self._require_unique(values)
        raise contradicted(wrong)

    def _fitting(self) -> Iterator[tuple[int, ...]]:
        """Yield every set of t points whose answers leave a small residual."""
        subsets = combinations(self.answers, self.ctx.params.threshold)
        return (s for s in subsets if self.residual_is_small(s))

    def _require_unique(self, values: NDArray[np.int64]) -> None:
        """Raise WrongAnswer, naming nobody, if another set of t answers opens to other values.

        A holder that adds multiples of q / t to its answer leaves the residual small. The answers then contradict each
        other without showing who is wrong.
        """
        for points in self._fitting():
            try:
                same = np.array_equal(from_slots(self._slots(points), self.ctx.params), values)
            except Tampered:
                same = False
            if not same:
                raise WrongAnswer(
                    "the answers contradict each other and do not show who is wrong: ask the holders again"
                )

    def _phase(self, points: tuple[int, ...]) -> tuple[int, Words]:
        """Return the scale D * M, and D M (c0 + c1 s) + noise, (blocks, r, degree)."""
        ring = self.ctx.data
        least, weights = cleared(lagrange(points))
        scale = least * self.ctx.lift
        phase = np.zeros_like(next(iter(self.answers.values())))
        ring.add_scaled(phase, np.ascontiguousarray(self.total.words[:, 0]), scale)
        for point, weight in zip(points, weights, strict=True):
            ring.add_scaled(phase, self.answers[point], weight)
        return scale, phase

    def residual_is_small(self, points: tuple[int, ...]) -> bool:
        """Return whether the phase is as near to a multiple of q / t as honest noise leaves it."""
        plain = self.ctx.params.plain_modulus
        return self._within(self._phase(points)[1], plain, plain * self.ctx.noise.residual)

    def _agrees(self, trusted: tuple[int, ...], point: int) -> bool:
        """Return whether the answer at `point` lies, up to smudging, on the polynomial through the trusted ones."""
        points = (*trusted, point)
        weights = dependency(points)
        rest = np.zeros_like(self.answers[point])
        for p, weight in zip(points, weights, strict=True):
            self.ctx.data.add_scaled(rest, self.answers[p], weight)
        bound = noise_tail(self.ctx.noise.smudging * sum(w * w for w in weights), TASK_DRAWS)
        return self._within(rest, 1, bound)

    def _within(self, a: Words, factor: int, bound: int) -> bool:
        ring = self.ctx.data
        limit = (bound << 64) // prod(ring.primes) + 2 * len(ring.primes) + 1
        turns = ring.turns(a, factor)
        return bool((turns >= -limit).all() and (turns <= limit).all())

    def _slots(self, points: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the slots of the sum, (blocks, degree): what SEAL decodes, divided by the scale mod t."""
        scale, phase = self._phase(points)
        tools, t = toolbox(self.ctx.shape), self.ctx.params.plain_modulus
        scaled = self.ctx.slots.residues(np.stack([tools.decode(block) for block in phase]))
        found = np.zeros_like(scaled)
        self.ctx.slots.add_scaled(found, scaled, pow(scale, -1, t))
        centred = found[:, 0].astype(np.int64)
        return np.where(centred > t // 2, centred - t, centred)
