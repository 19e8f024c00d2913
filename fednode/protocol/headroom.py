"""Bounds on the integers of an update and of a sum: the planner provides this headroom, and each client insists on it.

Noised values are never clamped, so the headroom must exist. A client checks it before it touches its data: a refusal
afterwards would reveal something about them.
"""

import math

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


def signal(terms: Terms) -> int:
    """Return the largest coordinate of one client's rounded sum, in grid steps: all records at their clip in it."""
    return math.ceil(terms.max_records * terms.clip * (1 << terms.grid_bits)) + 1


def update_headroom(terms: Terms, dimension: int) -> int:
    """Return a bound on all coordinates of one noised update; it fails with a chance below 2^-128 in a whole task."""
    return signal(terms) + noise_tail(terms.local_variance, dimension * _TASK_ROUNDS)


def sum_headroom(terms: Terms, dimension: int, clients: int) -> int:
    """Return the same bound for a sum of `clients` updates; it also holds for each of them."""
    return clients * signal(terms) + noise_tail(clients * terms.local_variance, dimension * clients * _TASK_ROUNDS)


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
