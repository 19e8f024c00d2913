"""Everything that follows from the parameters of scheme `ring`, computed once."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from fednode_crypto.hazmat.moduli import Moduli, moduli
from fednode_crypto.hazmat.ntt import Ring, ring
from fednode_crypto.hazmat.ring import LaneLayout, mask_keys
from fednode_crypto.ring.params import RingParams


@dataclass(frozen=True, slots=True)
class RingContext:
    """`data` is the ring of payloads, `layout` the place of each value in one; the others are vectors mod share_prime.

    `shares` are secrets and their sums; `masked` is what a client shares: a secret, then a mask for each row of the
    check; `rows` are one number for each row, `coefficients` the t `rows` of a whole check.
    """

    params: RingParams
    data: Ring
    shares: Moduli
    masked: Moduli
    rows: Moduli
    coefficients: Moduli
    layout: LaneLayout


@lru_cache(maxsize=16)
def ring_context(params: RingParams) -> RingContext:
    """Return what follows from `params`."""
    field = (params.share_prime,)
    return RingContext(
        params=params,
        data=ring(params.ring_degree, params.primes),
        shares=moduli(params.ring_degree, field),
        masked=moduli(params.ring_degree + params.check_rows, field),
        rows=moduli(params.check_rows, field),
        coefficients=moduli(params.threshold * params.check_rows, field),
        layout=LaneLayout(
            params.blocks, params.lanes, params.lane_bits, params.shift, params.value_bound, params.small
        ),
    )


def public_keys(params: RingParams, context: bytes) -> tuple[bytes, ...]:
    """Return the keys that `a` is expanded from. Everyone in the round derives them; nobody accepts them from others.

    ValueError for an empty context: rounds would share `a`, and an update could be moved from one round to another.
    """
    if not context:
        raise ValueError("scheme 'ring' needs the round's context, such as the digest of its spec: pass it")
    bound = hashlib.sha256(b"fednode/ring/round/1\n" + params.digest() + context).digest()
    return mask_keys(b"fednode/ring/a/1\n" + bound, params.primes)
