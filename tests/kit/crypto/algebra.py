"""What an attacker computes from residues: signed numbers, interpolation, and what a guessed secret opens."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fednode_crypto import SealedSum
from fednode_crypto.hazmat.lagrange import lagrange
from fednode_crypto.hazmat.ntt import Ring
from fednode_crypto.hazmat.ring import Mask
from fednode_crypto.ring.context import public_keys, ring_context

Words = NDArray[np.uint64]


def centred(values: NDArray[Any], modulus: int) -> NDArray[Any]:
    """The signed numbers nearest to 0: int64, or Python ints for an array of those."""
    residues = (values if values.dtype == object else values.astype(np.int64)) % modulus
    return np.where(residues > modulus // 2, residues - modulus, residues)


def interpolated(values: Mapping[int, Words], field: Ring, at: int = 0) -> Words:
    """The polynomial of least degree through these (r, n) residues by point, at `at`."""
    points = tuple(sorted(values))
    found = np.zeros_like(values[points[0]])
    for point, weight in zip(points, lagrange(points, at), strict=True):
        for row, p in enumerate(field.primes):
            factor = weight.numerator * pow(weight.denominator, -1, p) % p
            found[row] = (values[point][row].astype(object) * factor + found[row].astype(object)) % p
    return found


def unmasked(total: SealedSum, context: bytes, secret: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The values (d,) that this secret opens a sum of `ring` to; None if it opens nothing."""
    known = ring_context(total.params)
    mask = Mask.of(known.data, public_keys(total.params, context), secret)
    room = np.empty((total.params.lanes, total.params.ring_degree), dtype=np.int64)
    return room.reshape(-1)[: total.params.dimension] if mask.open(total.words[0], 0, known.layout, room) else None
