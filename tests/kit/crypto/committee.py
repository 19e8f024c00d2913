"""Everybody of one task in one place, under either kind of scheme: what no real process ever holds."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from kit.crypto.insecure import InsecureRng
from numpy.typing import NDArray

from fednode_crypto import BoxedScheme, KeyedScheme, SealedSum, Sealing, SumParams, SumScheme
from fednode_crypto.interfaces import Contribution, HolderShare, JointKey, Sealer

TASK = b"task 7, cohort 1f"
CONTEXT = b"task 7, round 3"
CHALLENGE = bytes(range(100, 132))


@dataclass(frozen=True)
class Committee(ABC):
    scheme: SumScheme
    params: SumParams

    @cached_property
    @abstractmethod
    def sealer(self) -> Sealer: ...

    @abstractmethod
    def answers(self, total: SealedSum, sealings: Sequence[Sealing]) -> dict[int, bytes]:
        """Every holder's answer for a sum of these sealings."""

    def sealed(self, updates: Sequence[NDArray[np.int64]]) -> list[Sealing]:
        return [self.sealer.seal(u, InsecureRng(i), CONTEXT) for i, u in enumerate(updates)]

    def summed(self, sealings: Sequence[Sealing]) -> SealedSum:
        total = self.scheme.zero(self.params)
        for sealing in sealings:
            total.absorb(sealing.payload)
        return total

    def combine(self, total: SealedSum, answers: Mapping[int, bytes]) -> NDArray[np.int64]:
        return self.scheme.combine(self.params, total, answers, CONTEXT)

    def opened(self, sealings: Sequence[Sealing]) -> NDArray[np.int64]:
        total = self.summed(sealings)
        return self.combine(total, self.answers(total, sealings))


@dataclass(frozen=True)
class KeyedCommittee(Committee):
    scheme: KeyedScheme
    contributions: Mapping[int, Contribution]

    @cached_property
    def key(self) -> JointKey:
        reveals = {p: c.reveal() for p, c in self.contributions.items()}
        commitments = {p: c.commitment for p, c in self.contributions.items()}
        return self.scheme.joint_key(self.params, TASK, reveals, commitments)

    @cached_property
    def sealer(self) -> Sealer:
        return self.scheme.sealer(self.params, self.key)

    @cached_property
    def shares(self) -> Mapping[int, HolderShare]:
        return {
            p: self.scheme.join(self.params, TASK, {j: c.shares()[p] for j, c in self.contributions.items()})
            for p in self.contributions
        }

    def answers(self, total: SealedSum, sealings: Sequence[Sealing]) -> dict[int, bytes]:
        request = total.request()
        return {p: self.scheme.answer(self.params, s, request, InsecureRng(p)) for p, s in self.shares.items()}


@dataclass(frozen=True)
class BoxedCommittee(Committee):
    scheme: BoxedScheme

    @cached_property
    def sealer(self) -> Sealer:
        return self.scheme.sealer(self.params)

    def answers(self, total: SealedSum, sealings: Sequence[Sealing]) -> dict[int, bytes]:
        points = range(1, self.params.holders + 1)
        return {p: self.scheme.answer(self.params, [s.shares[p] for s in sealings]) for p in points}


@lru_cache(maxsize=32)
def keyed(scheme: KeyedScheme, params: SumParams, seed: int = 1) -> KeyedCommittee:
    points = range(1, params.holders + 1)
    made = {p: scheme.contribute(params, TASK, p, InsecureRng(100 * seed + p)) for p in points}
    return KeyedCommittee(scheme, params, made)


def committee(scheme: SumScheme, params: SumParams) -> Committee:
    return BoxedCommittee(scheme, params) if scheme.boxed else keyed(scheme, params)


def updates_for(params: SumParams, clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Updates whose sum stays within the bound; a tenth of the coordinates reach as far as they may."""
    rng = np.random.default_rng(seed)
    limit = params.value_bound // clients
    drawn = rng.integers(-limit, limit + 1, (clients, params.dimension))
    extreme = np.where(rng.random(params.dimension) < 0.5, limit, -limit)
    return list(np.where(rng.random(params.dimension) < 0.1, extreme, drawn).astype(np.int64))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)
