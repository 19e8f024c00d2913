"""Bounds on the integers of an update and of a sum: the planner provides this headroom, and each client insists on it.

Noised values are never clamped, so the headroom must exist. A client checks it before it touches its data: a refusal
afterwards would reveal something about them.

A rotated sum needs less: Kairouz, Liu, Steinke 2021 (arXiv 2102.06387), section 4.2, in blocks: H D / sqrt(size), with
public random signs D, on all whole blocks, then on the last `size` coordinates again, so that no vector needs padding.
Each pass is orthogonal. Floats move the result by less than a part of 2^-48 of its length.
"""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from fednode.protocol.spec import Terms
from fednode_crypto import noise_tail

SAMPLER_DISTANCE = 2.0**-130
"""No draw of the discrete Gaussian is further than this from the ideal one, in total variation
(`fednode_crypto.noise`)."""

OVERFLOW_CHANCE = 2.0**-128

_TASK_ROUNDS = 1 << 20


def release_failure(dimension: int, clients: int) -> float:
    """Return the delta that one release costs beside its noise, as node and members count it: sampler and overflow."""
    return dimension * clients * SAMPLER_DISTANCE + OVERFLOW_CHANCE


def coordinate_limit(terms: Terms, dimension: int) -> float:
    """Return the largest coordinate of one client's sum, in model units: all records at their clip in it.

    A rotated sum is limited to less. It passes that limit with a chance below 2^-40 before (Hoeffding: a coordinate is
    a sum of at most a block of terms with random signs, of the whole norm over the root of the block).
    """
    most = terms.max_records * terms.clip
    likely = math.sqrt(2.0 * math.log(2.0**41 * dimension) / block_size(dimension))
    return most * min(1.0, likely) if terms.rotated else most


def signal(terms: Terms, dimension: int) -> int:
    """Return the largest coordinate of one client's rounded sum, in grid steps."""
    return math.ceil(coordinate_limit(terms, dimension) * (1 << terms.grid_bits)) + 1


def update_headroom(terms: Terms, dimension: int) -> int:
    """Return a bound on all coordinates of one noised update; it fails with a chance below 2^-128 in a whole task."""
    return signal(terms, dimension) + noise_tail(terms.local_variance, dimension * _TASK_ROUNDS)


def sum_headroom(terms: Terms, dimension: int, clients: int) -> int:
    """Return the same bound for a sum of `clients` updates; it also holds for each of them."""
    tail = noise_tail(clients * terms.local_variance, dimension * clients * _TASK_ROUNDS)
    return clients * signal(terms, dimension) + tail


def norm_headroom(terms: Terms, dimension: int, clients: int) -> float:
    """Return a bound on the L2 norm of a sum of `clients` honest updates, in grid steps.

    It is n (R C + sqrt(d)) + sigma (sqrt(d) + 14), with n clients, R records of clip C steps each, d coordinates and
    sigma^2 = n local_variance: rounding moves a coordinate by less than one step, and the noise is longer than its part
    with a chance below e^-98 < 2^-141. Its coordinates are sub-Gaussian (Canonne, Kamath, Steinke 2020), so the chi^2
    tail of Laurent and Massart 2000 holds for it.

    What remains: the sum alone is bounded. One client may still use what the others leave, and make it about
    n + sigma sqrt(d) / (R C) times as long as an honest update; without this check it is up to sqrt(d) times.
    """
    root = math.sqrt(dimension)
    clipped = clients * (terms.max_records * terms.clip * 2.0**terms.grid_bits + root)
    return clipped + math.sqrt(clients * terms.local_variance) * (root + 14.0)


def block_size(dimension: int) -> int:
    """Return the coordinates over which each coordinate is spread: a power of two."""
    return min(4096, 1 << (dimension.bit_length() - 1))


def rotate(vector: NDArray[np.float64], seed: bytes) -> NDArray[np.float64]:
    """Return the vector, rotated as the public `seed` says."""
    for part, signs in _passes(turned := vector.copy(), seed):
        hadamard(np.multiply(part, signs, out=part), block_size(len(vector)))
    return turned


def unrotate(vector: NDArray[np.float64], seed: bytes) -> NDArray[np.float64]:
    """Return what `rotate` made this vector of."""
    for part, signs in reversed(_passes(turned := vector.copy(), seed)):
        hadamard(part, block_size(len(vector)))
        np.multiply(part, signs, out=part)
    return turned


def hadamard(values: NDArray[np.float64], size: int) -> None:
    """Transform each block of `size` of the values in place; a second time gives them back."""
    for half in (1 << bit for bit in range(size.bit_length() - 1)):
        low, high = values.reshape(-1, 2, half).swapaxes(0, 1)
        low[...], high[...] = low + high, low - high
    values *= size**-0.5


def _passes(vector: NDArray[np.float64], seed: bytes) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    size = block_size(len(vector))
    whole = len(vector) // size * size
    octets = hashlib.shake_256(b"fednode/rotation/1\n" + seed).digest(-(-(whole + size) // 8))
    signs = 1.0 - 2.0 * np.unpackbits(np.frombuffer(octets, np.uint8)).astype(np.float64)
    return [(vector[:whole], signs[:whole]), (vector[-size:], signs[whole : whole + size])]
