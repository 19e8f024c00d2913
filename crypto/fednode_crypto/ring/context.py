"""Everything that follows from the parameters of scheme `ring`, computed once."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from fednode_crypto.errors import WrongParameters
from fednode_crypto.hazmat.moduli import Moduli, moduli
from fednode_crypto.hazmat.ntt import Ring, ring
from fednode_crypto.hazmat.ring import Layout, mask_keys
from fednode_crypto.params import SumParams
from fednode_crypto.ring.params import RingParams


@dataclass(frozen=True, slots=True)
class Setting:
    """`data` is the ring of payloads, `shares` the field of shares, `layout` how values stand in a payload."""

    params: RingParams
    data: Ring
    shares: Moduli
    layout: Layout


@lru_cache(maxsize=16)
def setting(params: RingParams) -> Setting:
    """Return what follows from `params`."""
    return Setting(
        params=params,
        data=ring(params.ring_degree, params.primes),
        shares=moduli(params.ring_degree, (params.share_prime,)),
        layout=Layout(params.blocks, params.lanes, params.lane_bits, params.shift, params.value_bound, params.small),
    )


def ours(params: SumParams) -> RingParams:
    """Return `params` when they are of this scheme, else raise WrongParameters."""
    if not isinstance(params, RingParams):
        raise WrongParameters(f"these are parameters of scheme '{params.scheme}': use that scheme")
    return params


def public_keys(params: RingParams, context: bytes) -> tuple[bytes, ...]:
    """Return what `a` is expanded from: everyone in the round derives it alike, nobody takes it from another.

    ValueError for an empty context: rounds would share their `a`, and updates could be moved from one to the other.
    """
    if not context:
        raise ValueError("scheme 'ring' needs the round's context, such as the digest of its spec: pass it")
    bound = hashlib.sha256(b"fednode/ring/round/1\n" + params.digest() + context).digest()
    return mask_keys(b"fednode/ring/a/1\n" + bound, params.primes)
