"""Everything that follows from the parameters of scheme `bfv`, computed once."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.bfv.planner import NoiseBounds, noise_bounds
from fednode_crypto.hazmat.lagrange import lift
from fednode_crypto.hazmat.ntt import Ring, ring
from fednode_crypto.hazmat.tenseal_bfv import Shape
from fednode_crypto.hazmat.uniform import public_polynomial

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class BfvContext:
    """`data` is the ring of ciphertexts, `key` the ring of public keys (one more prime), `slots` the ring mod t.

    `lift` is the factor by which a holder multiplies its answer.
    """

    params: BfvParams
    data: Ring
    key: Ring
    slots: Ring
    shape: Shape
    noise: NoiseBounds
    lift: int


@lru_cache(maxsize=16)
def bfv_context(params: BfvParams) -> BfvContext:
    """Return what follows from `params`. Raises WrongParameters if they leave no headroom for the noise."""
    noise = noise_bounds(params)
    return BfvContext(
        params=params,
        data=ring(params.ring_degree, params.primes[:-1]),
        key=ring(params.ring_degree, params.primes),
        slots=ring(params.ring_degree, (params.plain_modulus,)),
        shape=Shape(params.ring_degree, params.prime_bits, params.plain_modulus),
        noise=noise,
        lift=lift(params.holders, params.threshold),
    )


def binding(params: BfvParams, task: bytes) -> bytes:
    """Return 32 bytes that identify these parameters in this task."""
    return hashlib.sha256(b"fednode/bfv/task/1\n" + params.digest() + task).digest()


def common_polynomial(params: BfvParams, task: bytes) -> Words:
    """Return `a`, the uniform half of the joint key in NTT form, (R, degree), which everyone derives."""
    return public_polynomial(params.primes, params.ring_degree, b"fednode/bfv/a/1\n" + binding(params, task))
