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
    """`data` is the ring of payloads, `shares` the field of shares, `layout` the place of each value in a payload."""

    params: RingParams
    data: Ring
    shares: Moduli
    layout: LaneLayout


@lru_cache(maxsize=16)
def ring_context(params: RingParams) -> RingContext:
    """Return what follows from `params`."""
    return RingContext(
        params=params,
        data=ring(params.ring_degree, params.primes),
        shares=moduli(params.ring_degree, (params.share_prime,)),
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
