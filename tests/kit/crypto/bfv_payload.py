"""What a payload of scheme `bfv` is, written out: textbook BFV encryption that a seed repeats. Never outside tests.

SEAL draws its own randomness, so its payloads cannot stand in a vector; these open in the same way.
"""

from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import NDArray

from fednode_crypto import Rng
from fednode_crypto.bfv.context import bfv_context, common_polynomial
from fednode_crypto.bfv.keys import BfvKey
from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.bfv.slots import to_slots
from fednode_crypto.encoding import to_bytes
from fednode_crypto.hazmat.modular import bit_reversed
from fednode_crypto.hazmat.uniform import ternary
from fednode_crypto.noise import discrete_gaussian

WIDTH = Fraction(1024, 100)


def slot_places(degree: int) -> list[int]:
    """Where each slot stands in the transform (as SEAL's batch encoder has it: powers of 3, then their negatives)."""
    reversed_, powers = bit_reversed(degree), [pow(3, i, 2 * degree) for i in range(degree // 2)]
    return [reversed_[(p - 1) // 2] for p in powers] + [reversed_[(2 * degree - p - 1) // 2] for p in powers]


def insecure_payload(params: BfvParams, key: BfvKey, values: NDArray[np.int64], rng: Rng) -> bytes:
    """Draws, for each block: u (ternary), e0, e1 (width 3.2). c0 = b u + e0 + round(q m / t), c1 = a u + e1."""
    known, pair = bfv_context(params), np.stack([key.words, common_polynomial(params, key.task)])[:, :-1]
    q, t = prod(known.data.primes), params.plain_modulus
    blocks = []
    for slots in to_slots(values, params):
        message = np.zeros((1, params.ring_degree), dtype=np.uint64)
        message[0, slot_places(params.ring_degree)] = np.mod(slots, t).astype(np.uint64)
        known.slots.inverse(message)
        scaled = [(2 * q * int(m) + t) // (2 * t) for m in message[0]]
        u = known.data.residues(ternary(params.ring_degree, rng))
        known.data.forward(u)
        block = np.stack([u, u])
        for half, public in zip(block, pair, strict=True):
            known.data.multiply(half, np.ascontiguousarray(public))
            known.data.inverse(half)
            known.data.add(half, known.data.residues(discrete_gaussian(WIDTH, params.ring_degree, rng)))
        rows = [np.array([m % p for m in scaled], dtype=np.uint64) for p in known.data.primes]
        known.data.add(block[0], np.stack(rows))
        blocks.append(block)
    return to_bytes(np.stack(blocks), known.data)
