"""Bounds on the integers of an update and of a sum: the planner provides this headroom, and each client insists on it.

Noised values are never clamped, so the headroom must exist. A client checks it before it touches its data: a refusal
afterwards would reveal something about them.
"""

import math

from fednode.protocol.spec import Terms
from fednode_crypto import noise_tail

_TASK_ROUNDS = 1 << 20


def signal(terms: Terms) -> int:
    """Return the largest coordinate of one client's rounded sum, in grid steps: all records at their clip in it."""
    return math.ceil(terms.max_records * terms.clip * (1 << terms.grid_bits)) + 1


def update_headroom(terms: Terms, dimension: int) -> int:
    """Return a bound on all coordinates of one noised update; it fails with a chance below 2^-128 in a whole task."""
    return signal(terms) + noise_tail(terms.local_variance, dimension * _TASK_ROUNDS)


def sum_headroom(terms: Terms, dimension: int, clients: int) -> int:
    """Return the same bound for a sum of `clients` updates; it also holds for each of them."""
    return clients * signal(terms) + noise_tail(clients * terms.local_variance, dimension * clients * _TASK_ROUNDS)
