"""How large integers can get: what the planner makes room for, and what a client insists on before it rounds anything.

Nothing clamps a noised value, so the room has to be there. If it were not, a client would have to refuse after it had
seen its own data, and the refusal itself would tell something: so each client checks the room first.
"""

import math

from fednode.protocol.spec import Terms
from fednode_crypto import noise_tail

_TASK_ROUNDS = 1 << 20


def signal(terms: Terms) -> int:
    """The largest coordinate of one client's rounded sum, in grid steps: every record at its clip in one coordinate."""
    return math.ceil(terms.max_records * terms.clip * (1 << terms.grid_bits)) + 1


def update_headroom(terms: Terms, dimension: int) -> int:
    """A bound on every coordinate of one noised update that fails with a chance below 2^-128 in a whole task."""
    return signal(terms) + noise_tail(terms.local_variance, dimension * _TASK_ROUNDS)


def sum_headroom(terms: Terms, dimension: int, clients: int) -> int:
    """The same for a sum of `clients` updates; it also holds for each of them."""
    return clients * signal(terms) + noise_tail(clients * terms.local_variance, dimension * clients * _TASK_ROUNDS)
