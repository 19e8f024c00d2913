"""Scheme `bfv`: exact sums by TenSEAL's BFV under a joint key of k holders, any t of whom open.

Guarantee: a node and fewer than t holders that follow the protocol, and look, learn the opened sum and nothing else
about the honest clients' values, under ring-LWE of 128 bits (HomomorphicEncryption.org table). Out of scope: a node
that lies to holders about what they open. Edge case: a well-formed payload of junk is found only when a sum is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.bfv import opening as bfv_opening
from fednode_crypto.bfv.keys import BfvContribution, BfvKey, BfvShare
from fednode_crypto.bfv.sealing import BfvSealedSum, BfvSealer, ours
from fednode_crypto.interfaces import HolderShare, JointKey, SealedSum
from fednode_crypto.params import SumParams
from fednode_crypto.rng import Rng


def _foreign(what: str) -> ValueError:
    return ValueError(f"this {what} belongs to another scheme: use one that scheme 'bfv' made")


@dataclass(frozen=True, slots=True)
class Bfv:
    """The `KeyedScheme` of that name; it has no state."""

    @property
    def name(self) -> str:
        """The scheme's name in `SumParams`."""
        return "bfv"

    @property
    def boxed(self) -> Literal[False]:
        """False: there is a joint key, and no boxes."""
        return False

    def contribute(self, params: SumParams, task: bytes, point: int, rng: Rng) -> BfvContribution:
        """Return a fresh part of the joint key for the holder at `point`. ValueError for a point that is not 1 to k."""
        return BfvContribution.fresh(ours(params), task, point, rng)

    def restore_contribution(self, params: SumParams, task: bytes, private: bytes) -> BfvContribution:
        """Undo `private_bytes`. Raises Tampered for damaged bytes, or another task's."""
        return BfvContribution.restore(ours(params), task, private)

    def joint_key(
        self, params: SumParams, task: bytes, reveals: Mapping[int, bytes], commitments: Mapping[int, bytes]
    ) -> BfvKey:
        """Return the key that the holders revealed. Raises NotEnoughShares or Tampered, as `BfvKey.joined`."""
        return BfvKey.joined(ours(params), task, reveals, commitments)

    def restore_key(self, params: SumParams, task: bytes, data: bytes) -> BfvKey:
        """Undo `to_bytes`; compare the digest before use. Raises Tampered for damaged bytes."""
        return BfvKey.restore(ours(params), task, data)

    def join(self, params: SumParams, task: bytes, shares: Mapping[int, bytes]) -> BfvShare:
        """Return the sum of the shares one holder got. Raises NotEnoughShares or Tampered, as `BfvShare.joined`."""
        return BfvShare.joined(ours(params), task, shares)

    def restore_share(self, params: SumParams, task: bytes, private: bytes) -> BfvShare:
        """Undo `private_bytes`. Raises Tampered for damaged bytes, or another task's."""
        return BfvShare.restore(ours(params), task, private)

    def sealer(self, params: SumParams, key: JointKey | None = None) -> BfvSealer:
        """Return what a client seals with under `key`. ValueError without one."""
        if not isinstance(key, BfvKey):
            raise _foreign("joint key")
        return BfvSealer.under(ours(params), key)

    def zero(self, params: SumParams) -> BfvSealedSum:
        """Return the empty sum."""
        return BfvSealedSum.zero(ours(params))

    def restore_sum(self, params: SumParams, data: bytes) -> BfvSealedSum:
        """Undo `to_bytes`. Raises Tampered for damaged bytes, or a sum under other parameters."""
        return BfvSealedSum.from_bytes(ours(params), data)

    def answer(self, params: SumParams, share: HolderShare, request: bytes, rng: Rng) -> bytes:
        """Return one holder's part of the opening; guarantee and errors as `bfv_opening.answer`."""
        if not isinstance(share, BfvShare):
            raise _foreign("share")
        return bfv_opening.answer(ours(params), share, request, rng)

    def check_answer(self, params: SumParams, answer: bytes) -> None:
        """Return if `answer` can be a holder's; guarantee and errors as `bfv_opening.check_answer`."""
        bfv_opening.check_answer(ours(params), answer)

    def combine(
        self, params: SumParams, total: SealedSum, answers: Mapping[int, bytes], context: bytes = b""
    ) -> NDArray[np.int64]:
        """Return the exact sum from t or more answers; `context` is not used. Errors as `bfv_opening.combine`."""
        del context
        if not isinstance(total, BfvSealedSum):
            raise _foreign("sum")
        return bfv_opening.combine(ours(params), total, answers)
