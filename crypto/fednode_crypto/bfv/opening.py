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

from fednode_crypto.bfv.context import Setting, setting
from fednode_crypto.bfv.keys import BfvShare
from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.bfv.planner import SMUDGING_STEP_BITS
from fednode_crypto.bfv.sealing import BfvSealedSum
from fednode_crypto.encoding import check_bytes, from_bytes, to_bytes
from fednode_crypto.errors import NotEnoughShares, Tampered
from fednode_crypto.hazmat.lagrange import cleared, dependency, lagrange
from fednode_crypto.hazmat.tenseal_bfv import toolbox
from fednode_crypto.interfaces import WrongAnswer
from fednode_crypto.noise import discrete_gaussian
from fednode_crypto.packing import from_slots
from fednode_crypto.rng import Rng
from fednode_crypto.tail_bounds import TASK_DRAWS, noise_tail

Words = NDArray[np.uint64]

_FINE_RATIO: Final = 5
"""Variance of the fine part in steps of the coarse one: smooth over them to 2^-141 (Micciancio, Walter, "Gaussian
sampling over the integers", 2017, section 4)."""


def answer(params: BfvParams, share: BfvShare, request: bytes, rng: Rng) -> bytes:
    """Return one holder's part of the opening, exactly `answer_bytes`: lift * c1 * S_j + smudging.

    Guarantee: with the answers of other holders it tells the opened sum and, but for 2^-80 a coefficient, nothing else,
    provided that `request` is the second half of a sum of honest payloads. Answer a request once.
    Raises Tampered for a request of wrong size or range, ValueError when the share is of other parameters.
    """
    known = setting(params)
    part = from_bytes(request, known.data, (params.blocks,), "request")
    secret = np.zeros((params.data_primes, params.ring_degree), dtype=np.uint64)
    known.data.add_scaled(secret, share.words(params), known.lift)
    known.data.forward(part)
    known.data.multiply(part, secret)
    known.data.inverse(part)
    _smudge(part, known, rng)
    return to_bytes(part, known.data)


def _smudge(part: Words, known: Setting, rng: Rng) -> None:
    blocks, _, degree = part.shape
    step = SMUDGING_STEP_BITS
    coarse = discrete_gaussian((known.noise.smudging >> (2 * step)) - _FINE_RATIO, blocks * degree, rng)
    fine = discrete_gaussian(_FINE_RATIO << (2 * step), blocks * degree, rng)
    known.data.add_scaled(part, known.data.residues(coarse.reshape(blocks, degree)), 1 << step)
    known.data.add(part, known.data.residues(fine.reshape(blocks, degree)))


def check_answer(params: BfvParams, answer: bytes) -> None:
    """Return if `answer` has the exact size and every number in it is below its prime; else raise Tampered."""
    check_bytes(answer, setting(params).data, (params.blocks,), "answer")


def combine(params: BfvParams, total: BfvSealedSum, answers: Mapping[int, bytes]) -> NDArray[np.int64]:
    """Return the (dimension,) sum of all updates in `total`, exactly, from the answers of t or more holders.

    Checked before anything is returned: sizes and ranges; that the opened residual is as small as only answers to this
    very request make it; with more than t answers, that each fits the others; that every value is within the bound and
    unused room is 0. Raises NotEnoughShares; WrongAnswer (a Tampered), naming the holders to leave out when the other
    answers show who is wrong; ValueError for an empty sum or one of other parameters.
    Edge cases: an answer that is off by less than its smudging opens the same sum and passes (signatures are for the
    rest); a sum far beyond the bound wraps around and may land within it (the bound must hold the noise's tail).
    """
    if total.params != params or total.count == 0:
        raise ValueError("there is nothing to open under these parameters: add updates first")
    if len(answers) < params.threshold:
        raise NotEnoughShares(f"{params.threshold} answers open a sum: {len(answers)} came")
    opening = _Opening(setting(params), total, {p: _read_answer(params, p, a) for p, a in sorted(answers.items())})
    return opening.result()


def _read_answer(params: BfvParams, point: int, data: bytes) -> Words:
    if type(point) is not int or not 1 <= point <= params.holders:
        raise Tampered(f"an answer comes from nobody: points are 1 to {params.holders}")
    try:
        return from_bytes(data, setting(params).data, (params.blocks,), f"answer of holder {point}")
    except Tampered as error:
        raise WrongAnswer(str(error), [point]) from None


@dataclass(frozen=True, slots=True)
class _Opening:
    known: Setting
    total: BfvSealedSum
    answers: Mapping[int, Words]

    def result(self) -> NDArray[np.int64]:
        trusted = next(self.fitting(), None)
        if trusted is None:
            raise WrongAnswer("the answers do not open this sum: ask the holders again")
        values = from_slots(self.slots(trusted), self.known.params)
        wrong = [p for p in self.answers if p not in trusted and not self.agrees(trusted, p)]
        if not wrong:
            return values
        self._require_one_reading(values)
        raise WrongAnswer(f"holder {', '.join(map(str, wrong))} answered what the others contradict", wrong)

    def fitting(self) -> Iterator[tuple[int, ...]]:
        """Each t answers whose residual is small."""
        subsets = combinations(self.answers, self.known.params.threshold)
        return (s for s in subsets if self.residual_is_small(s))

    def _require_one_reading(self, values: NDArray[np.int64]) -> None:
        """Raise WrongAnswer, naming nobody, if other t answers open something else just as well.

        A holder that adds multiples of q / t to its answer leaves the residual small: then the answers contradict each
        other, and who is wrong cannot be told from them.
        """
        for points in self.fitting():
            try:
                same = np.array_equal(from_slots(self.slots(points), self.known.params), values)
            except Tampered:
                same = False
            if not same:
                raise WrongAnswer("the answers contradict each other, and who is wrong cannot be told")

    def phase(self, points: tuple[int, ...]) -> tuple[int, Words]:
        """Scale D * M and D M (c0 + c1 s) + noise, (blocks, r, degree)."""
        ring = self.known.data
        least, weights = cleared(lagrange(points))
        scale = least * self.known.lift
        phase = np.zeros_like(next(iter(self.answers.values())))
        ring.add_scaled(phase, np.ascontiguousarray(self.total.words[:, 0]), scale)
        for point, weight in zip(points, weights, strict=True):
            ring.add_scaled(phase, self.answers[point], weight)
        return scale, phase

    def residual_is_small(self, points: tuple[int, ...]) -> bool:
        """Whether the phase is as near to a multiple of q / t as honest noise leaves it."""
        plain = self.known.params.plain_modulus
        return self._within(self.phase(points)[1], plain, plain * self.known.noise.residual)

    def agrees(self, trusted: tuple[int, ...], point: int) -> bool:
        """Whether the answer at `point` lies on the polynomial through the trusted ones, but for smudging."""
        points = (*trusted, point)
        weights = dependency(points)
        rest = np.zeros_like(self.answers[point])
        for p, weight in zip(points, weights, strict=True):
            self.known.data.add_scaled(rest, self.answers[p], weight)
        bound = noise_tail(self.known.noise.smudging * sum(w * w for w in weights), TASK_DRAWS)
        return self._within(rest, 1, bound)

    def _within(self, a: Words, factor: int, bound: int) -> bool:
        ring = self.known.data
        limit = (bound << 64) // prod(ring.primes) + 2 * len(ring.primes) + 1
        turns = ring.turns(a, factor)
        return bool((turns >= -limit).all() and (turns <= limit).all())

    def slots(self, points: tuple[int, ...]) -> NDArray[np.int64]:
        """The slots of the sum, (blocks, degree): what SEAL decodes, divided by the scale mod t."""
        scale, phase = self.phase(points)
        tools, t = toolbox(self.known.shape), self.known.params.plain_modulus
        scaled = self.known.slots.residues(np.stack([tools.decode(block) for block in phase]))
        found = np.zeros_like(scaled)
        self.known.slots.add_scaled(found, scaled, pow(scale, -1, t))
        centred = found[:, 0].astype(np.int64)
        return np.where(centred > t // 2, centred - t, centred)
