"""Scheme `bfv`: sealing an update, and the sum of sealed ones."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.bfv.context import bfv_context, common_polynomial
from fednode_crypto.bfv.keys import BfvKey
from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.bfv.slots import to_slots
from fednode_crypto.encoding import to_bytes
from fednode_crypto.hazmat.moduli import Moduli
from fednode_crypto.hazmat.tenseal_bfv import PublicContext, public_context
from fednode_crypto.params import SumParams
from fednode_crypto.residue_sum import ResidueSum
from fednode_crypto.rng import Rng
from fednode_crypto.secret import Sealing


@dataclass(frozen=True, slots=True)
class BfvSealer:
    """Seals updates under one joint key."""

    params: BfvParams
    _context: PublicContext = field(repr=False)

    @classmethod
    def under(cls, params: BfvParams, key: BfvKey) -> Self:
        """Return a sealer; takes about 50 ms, so keep it for the task. ValueError for a key of other parameters."""
        if key.params != params:
            raise ValueError("this joint key belongs to other parameters: take the key of this task")
        pair = np.stack([key.words, common_polynomial(params, key.task)])
        return cls(params, public_context(bfv_context(params).shape, pair))

    def seal(self, values: NDArray[np.int64], rng: Rng, context: bytes = b"") -> Sealing:
        """Return exactly `payload_bytes` that hide `values`, int64 (dimension,), from fewer than t holders together.

        `rng` and `context` are not used: SEAL draws its own randomness, seeded by the operating system for each seal.
        Raises Overflow for a value out of bound, ValueError for another type or shape.
        """
        del rng, context
        slots = to_slots(values, self.params)
        sealed = np.stack([self._context.encrypt(block) for block in slots])
        return Sealing(to_bytes(sealed, bfv_context(self.params).data))


class BfvSealedSum(ResidueSum):
    """A sum of BFV ciphertexts: two polynomials a block."""

    __slots__ = ()

    @staticmethod
    def shape(params: SumParams) -> tuple[Moduli, tuple[int, ...]]:
        """Return the data ring and (blocks, 2)."""
        return bfv_context(BfvParams.of(params)).data, (params.blocks, 2)

    def _request(self) -> bytes:
        """Return the second half of every ciphertext."""
        return to_bytes(np.ascontiguousarray(self.words[:, 1]), self.shape(self.params)[0])
