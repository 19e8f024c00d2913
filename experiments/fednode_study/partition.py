"""Who holds which record: every record goes to exactly one client, and no client is left empty.

`iid` deals a shuffled deck. `dirichlet` draws for each label how its records are shared out over the clients, from a
Dirichlet distribution with all parameters alpha (Hsu, Qi, Brown 2019, arXiv:1909.06335, in the per-label form of
Yurochkin et al. 2019, arXiv:1905.12022): alpha 100 is close to IID, alpha 0.1 leaves most clients with a few labels. A
client that would be left with nothing gets one record of the client that holds most. The same seed gives the same
shares for one version of numpy.
"""

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError

Shares = tuple[NDArray[np.int64], ...]


def iid(count: int, clients: int, seed: int) -> Shares:
    """Deal `count` records to `clients` at random; sizes differ by one at most."""
    _check(count, clients)
    deck = np.random.default_rng(seed).permutation(count).astype(np.int64)
    return tuple(np.sort(deck[client::clients]) for client in range(clients))


def dirichlet(labels: NDArray[np.int64], clients: int, alpha: float, seed: int) -> Shares:
    """Share each label's records out by its own Dirichlet(alpha) draw; see the module for the rule on empty clients."""
    _check(len(labels), clients)
    rng = np.random.default_rng(seed)
    hands: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        weights = rng.dirichlet(np.full(clients, _positive(alpha)))
        cuts = np.floor(np.cumsum(weights)[:-1] * len(rows) + 0.5).astype(np.int64)
        for hand, part in zip(hands, np.split(rows, np.clip(cuts, 0, len(rows))), strict=True):
            hand.extend(part.tolist())
    for hand in hands:
        if not hand:
            hand.append(max(hands, key=len).pop())
    return tuple(np.sort(np.array(hand, dtype=np.int64)) for hand in hands)


def _positive(alpha: float) -> float:
    if not 0 < alpha < np.inf:
        raise ConfigError(f"Dirichlet alpha is {alpha}; give a positive number such as 0.5")
    return alpha


def _check(count: int, clients: int) -> None:
    if clients < 1:
        raise ConfigError(f"{clients} clients cannot hold data; give 1 or more")
    if count < clients:
        raise ConfigError(f"{count} records cannot be shared by {clients} clients; use fewer clients or more data")
