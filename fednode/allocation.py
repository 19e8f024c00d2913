"""Which clients take part in which rounds, where each takes part in a few only: drawn at random by the node.

The T rounds are cut into k blocks of consecutive rounds, as equal as can be. Each client takes part in one round of
each block, drawn uniformly, and independently of all other clients: k times one of T / k, the scheme to which Feldman
and Shenfeld 2025 (arXiv:2502.08202) reduce k of T. The node, the holders and whoever reads the ledger or the report
know the draws; to them a client costs its k rounds. `outsiders_epsilon` holds against those who do not.
"""

import math
from collections.abc import Sequence

from fednode_crypto import Rng

Allocation = tuple[frozenset[str], ...]
"""The clients of each round, beginning with round 1."""


def block_of(number: int, rounds: int, each: int) -> int:
    """The block of round `number`, which counts from 1: 0 .. each - 1."""
    return (number - 1) * each // rounds


def block_weights(weights: Sequence[float], each: int) -> tuple[float, ...]:
    """The mean weight of the rounds of each block: rounds of a block are planned alike, whichever a client draws."""
    blocks: list[list[float]] = [[] for _ in range(each)]
    for number, weight in enumerate(weights, start=1):
        blocks[block_of(number, len(weights), each)].append(weight)
    return tuple(math.fsum(block) / len(block) for block in blocks)


def allocate(clients: Sequence[str], rounds: int, each: int, rng: Rng) -> Allocation:
    """Draw for every client one round of each of `each` blocks. ValueError unless `each` is 1 .. `rounds`."""
    if not 1 <= each <= rounds:
        raise ValueError(f"no client can take part in {each} of {rounds} rounds")
    blocks: list[list[int]] = [[] for _ in range(each)]
    for number in range(1, rounds + 1):
        blocks[block_of(number, rounds, each)].append(number - 1)
    taking_part: list[set[str]] = [set() for _ in range(rounds)]
    for block in blocks:
        # 64 bits modulo the size of a block: uniform but for 2^-47 at 100,000 rounds
        for client, word in zip(clients, rng.words(len(clients)).tolist(), strict=True):
            taking_part[block[word % len(block)]].add(client)
    return tuple(frozenset(names) for names in taking_part)


def outsiders_epsilon(mu: float, rounds: int, each: int, delta: float) -> float:
    """Return epsilon of a client against those who see every model, but not who took part in which round.

    `mu` is that of the Gaussian mechanism of the round with the least noise. The bound is numerical and never too
    small, and at most a tenth too large: privacy loss distributions by Feldman and Shenfeld 2026 (arXiv:2602.17284), by
    their package PLD_accounting.
    """
    from PLD_accounting import gaussian_allocation_epsilon_range

    upper, _ = gaussian_allocation_epsilon_range(delta=delta, sigma=1.0 / mu, num_steps=rounds, num_selected=each)
    return float(upper)
