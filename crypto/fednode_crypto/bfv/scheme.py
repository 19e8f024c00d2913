"""Scheme `bfv`: exact sums by TenSEAL's BFV under a joint key of k holders, any t of whom open.

Guarantee: a node and fewer than t holders that follow the protocol, and look, learn the opened sum and nothing else
about the honest clients' values, under ring-LWE of 128 bits (HomomorphicEncryption.org table). Out of scope: a node
that lies to holders about what they open. Edge case: a well-formed payload of junk is found only when a sum is opened.
"""

from collections.abc import Mapping
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.bfv import opening
from fednode_crypto.bfv.context import bfv_context
from fednode_crypto.bfv.keys import BfvContribution, BfvKey, BfvShare
from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.bfv.sealing import BfvSealedSum, BfvSealer
from fednode_crypto.encoding import check_bytes
from fednode_crypto.interfaces import HolderShare, JointKey, KeyedScheme, SealedSum
from fednode_crypto.params import SumParams
from fednode_crypto.rng import Rng


def _foreign(what: str) -> ValueError:
    return ValueError(f"this {what} belongs to another scheme: use one that scheme 'bfv' made")


class Bfv:
    """The verbs of scheme `bfv`; the interface says what each returns and raises. It has no state."""

    name: Final = "bfv"
    boxed: Literal[False] = False

    def contribute(self, params: SumParams, task: bytes, point: int, rng: Rng) -> BfvContribution:
        """Return a fresh part of the joint key for the holder at `point`. ValueError unless `point` is 1 to k."""
        return BfvContribution.fresh(BfvParams.of(params), task, point, rng)

    def restore_contribution(self, params: SumParams, task: bytes, private: bytes) -> BfvContribution:
        """Return the contribution that a holder kept."""
        return BfvContribution.restore(BfvParams.of(params), task, private)

    def joint_key(
        self, params: SumParams, task: bytes, reveals: Mapping[int, bytes], commitments: Mapping[int, bytes]
    ) -> BfvKey:
        """Return the key that the holders revealed."""
        return BfvKey.joined(BfvParams.of(params), task, reveals, commitments)

    def join(self, params: SumParams, task: bytes, shares: Mapping[int, bytes]) -> BfvShare:
        """Return the sum of the shares that one holder received."""
        return BfvShare.joined(BfvParams.of(params), task, shares)

    def restore_share(self, params: SumParams, task: bytes, private: bytes) -> BfvShare:
        """Return the share that a holder kept."""
        return BfvShare.restore(BfvParams.of(params), task, private)

    def sealer(self, params: SumParams, key: JointKey | None = None) -> BfvSealer:
        """Return what a client seals with under `key`. ValueError without one."""
        if not isinstance(key, BfvKey):
            raise _foreign("joint key")
        return BfvSealer.under(BfvParams.of(params), key)

    def zero(self, params: SumParams) -> BfvSealedSum:
        """Return the empty sum."""
        return BfvSealedSum.zero(BfvParams.of(params))

    def restore_sum(self, params: SumParams, data: bytes) -> BfvSealedSum:
        """Return the sum in a checkpoint."""
        return BfvSealedSum.from_bytes(BfvParams.of(params), data)

    def answer(self, params: SumParams, share: HolderShare, request: bytes, rng: Rng) -> bytes:
        """Return one holder's part of the opening; guarantee as `bfv.opening.answer`."""
        if not isinstance(share, BfvShare):
            raise _foreign("share")
        return opening.answer(BfvParams.of(params), share, request, rng)

    def check_answer(self, params: SumParams, answer: bytes) -> None:
        """Return if `answer` can be a holder's: the exact size, every number below its prime."""
        check_bytes(answer, bfv_context(BfvParams.of(params)).data, (params.blocks,), "answer")

    def combine(
        self, params: SumParams, total: SealedSum, answers: Mapping[int, bytes], context: bytes = b""
    ) -> NDArray[np.int64]:
        """Return the exact sum from t or more answers; `context` is not used. Checks as `bfv.opening.combine`."""
        del context
        if not isinstance(total, BfvSealedSum):
            raise _foreign("sum")
        return opening.combine(BfvParams.of(params), total, answers)


SCHEME: Final[KeyedScheme] = Bfv()
