"""Scheme `bfv`: sealing an update, and the sum of sealed ones."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.bfv.context import common_polynomial, setting
from fednode_crypto.bfv.keys import BfvKey
from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.encoding import to_bytes
from fednode_crypto.errors import WrongParameters
from fednode_crypto.hazmat.moduli import Moduli
from fednode_crypto.hazmat.tenseal_bfv import PublicContext, public_context
from fednode_crypto.interfaces import Sealing
from fednode_crypto.packing import to_slots
from fednode_crypto.params import SumParams
from fednode_crypto.residue_sum import ResidueSum
from fednode_crypto.rng import Rng


def ours(params: SumParams) -> BfvParams:
    """Return `params` when they are of this scheme, else raise WrongParameters."""
    if not isinstance(params, BfvParams):
        raise WrongParameters(f"these are parameters of scheme '{params.scheme}': use that scheme")
    return params


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
        return cls(params, public_context(setting(params).shape, pair))

    def seal(self, values: NDArray[np.int64], rng: Rng, context: bytes = b"") -> Sealing:
        """Return exactly `payload_bytes` that hide `values`, int64 (dimension,), from all but t holders together.

        `rng` is not used: the randomness is SEAL's own, seeded by the operating system for each seal. Nor is `context`.
        Raises Overflow when a value is out of bound, ValueError for another type or shape.
        """
        del rng, context
        slots = to_slots(values, self.params)
        sealed = np.stack([self._context.encrypt(block) for block in slots])
        return Sealing(to_bytes(sealed, setting(self.params).data))


class BfvSealedSum(ResidueSum):
    """A sum of BFV ciphertexts: two polynomials a block."""

    __slots__ = ()

    @staticmethod
    def shape(params: SumParams) -> tuple[Moduli, tuple[int, ...]]:
        """Return the data ring and (blocks, 2)."""
        return setting(ours(params)).data, (params.blocks, 2)

    def request(self) -> bytes:
        """Return the second half of every ciphertext, exactly `request_bytes`. ValueError when nothing was added."""
        if self.count == 0:
            raise ValueError("nothing was added yet: there is nothing to open")
        return to_bytes(np.ascontiguousarray(self.words[:, 1]), self.shape(self.params)[0])
