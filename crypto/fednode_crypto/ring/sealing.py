"""Scheme `ring`: sealing an update, and the sum of sealed ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.encoding import to_bytes
from fednode_crypto.hazmat.moduli import Moduli
from fednode_crypto.hazmat.ring import Mask
from fednode_crypto.hazmat.shamir import random_polynomial, value_at
from fednode_crypto.hazmat.uniform import uniform_rows
from fednode_crypto.noise import discrete_gaussian
from fednode_crypto.packing import checked_values
from fednode_crypto.params import SumParams
from fednode_crypto.residue_sum import ResidueSum
from fednode_crypto.ring.context import public_keys, ring_context
from fednode_crypto.ring.params import MASK_VARIANCE, RingParams
from fednode_crypto.ring.share_check import SharedPolynomial
from fednode_crypto.rng import Rng
from fednode_crypto.secret import Sealing


@dataclass(frozen=True, slots=True)
class RingSealer:
    """Seals updates, each under a fresh mask. It holds no secret."""

    params: RingParams

    def seal(self, values: NDArray[np.int64], rng: Rng, context: bytes = b"") -> Sealing:
        """Return c = a s + e + D m for all blocks, a share of s for each holder's point, and the check of the shares.

        Guarantee: the payload and fewer than t shares look uniform, under ring-LWE, to everyone who does not know s,
        also beside the check; a later opening reveals the sums of s, e and m over the roster only (see
        `fednode_crypto.ring.scheme`).
        Drawn in this order: s (degree), e (blocks * degree), the masks of the check, the t - 1 upper coefficients of
        the sharing, each of s and then of the masks.
        Raises Overflow for a value out of bound, ValueError for another type or shape and for an empty context.
        """
        ctx, params = ring_context(self.params), self.params
        keys = public_keys(params, context)
        values = np.ascontiguousarray(checked_values(values, params))
        secret = discrete_gaussian(MASK_VARIANCE, params.ring_degree, rng)
        error = discrete_gaussian(MASK_VARIANCE, params.blocks * params.ring_degree, rng)
        payload = Mask.of(ctx.data, keys, secret).seal(values, error.reshape(params.blocks, -1), ctx.layout)
        masks = uniform_rows(ctx.rows.primes, (params.check_rows,), rng)
        shared = np.concatenate([ctx.shares.residues(secret), masks], axis=-1)
        polynomial = random_polynomial(shared, ctx.masked, params.threshold, rng)
        points = range(1, params.holders + 1)
        shares = {point: to_bytes(value_at(polynomial, ctx.masked, point), ctx.masked) for point in points}
        return Sealing(payload, shares, SharedPolynomial(params, polynomial).check)


class RingSealedSum(ResidueSum):
    """A sum of masked updates: one polynomial a block."""

    __slots__ = ()

    @staticmethod
    def shape(params: SumParams) -> tuple[Moduli, tuple[int, ...]]:
        """Return the ring and (blocks,)."""
        return ring_context(RingParams.of(params)).data, (params.blocks,)

    def _request(self) -> bytes:
        return b""  # holders need the roster, and nothing of the sum
