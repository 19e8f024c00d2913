"""A repeated or scalar mask: one number, or one mask, that hides many coordinates, clients or rounds.

Attacker: an honest but curious node that knows some updates (all are 0 here, which leaves only the mask). Success: a
statistic tells a payload from uniform numbers, or relates coordinates, clients or rounds. It fails for both schemes.
Control: the same statistics catch a mask of one scalar, one for two clients or two rounds, and a short repeated one.
"""

from itertools import combinations

import numpy as np
import pytest
from kit.crypto.committee import keyed
from numpy.typing import NDArray

from fednode_crypto import Demand, SystemRng, plan, scheme
from fednode_crypto.bfv.context import bfv_context
from fednode_crypto.encoding import from_bytes
from fednode_crypto.ring.context import ring_context

CLIENTS, ROUNDS, BINS = 4, 3, 64
RING_PARAMS = plan("ring", Demand(dimension=5_000, summands=4, value_bound=9_000, holders=3, threshold=2))
BFV_PARAMS = plan("bfv", Demand(dimension=50, summands=4, value_bound=1_000, holders=3, threshold=2))

Residues = NDArray[np.uint64]


def ring_residues() -> tuple[Residues, int]:
    """(clients, rounds, coefficients) of payloads of zeros, modulo the first prime, and that prime."""
    known, values = ring_context(RING_PARAMS).data, np.zeros(RING_PARAMS.dimension, dtype=np.int64)
    sealer, rngs = scheme("ring").sealer(RING_PARAMS), [SystemRng() for _ in range(CLIENTS)]
    rows = [[sealer.seal(values, rng, b"round %d" % number).payload for number in range(ROUNDS)] for rng in rngs]
    return stacked(rows, lambda data: from_bytes(data, known, (RING_PARAMS.blocks,))[:, 0]), known.primes[0]


def bfv_residues() -> tuple[Residues, int]:
    known, values = bfv_context(BFV_PARAMS).data, np.zeros(BFV_PARAMS.dimension, dtype=np.int64)
    sealer = keyed(scheme("bfv"), BFV_PARAMS).sealer
    rows = [[sealer.seal(values, SystemRng()).payload for _ in range(ROUNDS)] for _ in range(CLIENTS)]
    return stacked(rows, lambda data: from_bytes(data, known, (BFV_PARAMS.blocks, 2))[:, :, 0]), known.primes[0]


def stacked(rows, read) -> Residues:
    return np.array([[read(data).reshape(-1) for data in row] for row in rows])


def faults(residues: Residues, prime: int) -> set[str]:
    """What these residues show that uniform, independent ones would not (a chance below 2^-20 each)."""
    found = set()
    if any(not is_even(payload, prime) for payload in residues.reshape(-1, residues.shape[-1])):
        found.add("uneven")
    if any(repeats(payload) for payload in residues.reshape(-1, residues.shape[-1])):
        found.add("coordinates")
    for number in range(residues.shape[1]):
        if any(related(a, b, prime) for a, b in combinations(residues[:, number], 2)):
            found.add("clients")
    for client in residues:
        if any(related(a, b, prime) for a, b in combinations(client, 2)):
            found.add("rounds")
    return found


def is_even(values: Residues, prime: int) -> bool:
    """Chi-square of the leading and of the trailing six bits."""
    for part in (values // np.uint64(prime // BINS + 1), values % np.uint64(BINS)):
        counts = np.bincount(part.astype(np.int64), minlength=BINS)
        expected = values.size / BINS
        if ((counts - expected) ** 2 / expected).sum() - (BINS - 1) > 8 * np.sqrt(2 * (BINS - 1)):
            return False
    return True


def repeats(values: Residues) -> bool:
    """Whether a coordinate comes twice, or neighbours, or coordinates a power of two apart, go together."""
    if np.unique(values).size < values.size - 1:
        return True
    return any(correlated(values[:-lag], values[lag:]) for lag in (1, 2, 16, 256, 1024))


def related(a: Residues, b: Residues, prime: int) -> bool:
    """Whether two payloads, their difference, or their sum have anything in common."""
    q = np.uint64(prime)
    difference, total = (a + (q - b)) % q, (a + b) % q
    both = np.unique(np.concatenate([a, b])).size < 2 * a.size - 2
    return both or correlated(a, b) or not is_even(difference, prime) or not is_even(total, prime)


def correlated(a: Residues, b: Residues) -> bool:
    x, y = a.astype(np.float64), b.astype(np.float64)
    return bool(abs(np.corrcoef(x, y)[0, 1]) > 6 / np.sqrt(x.size)) if x.std() and y.std() else True


@pytest.mark.parametrize("residues", [ring_residues, bfv_residues])
def test_payloads_of_zeros_are_uniform_and_unrelated(residues):
    found, prime = residues()
    assert found.shape[:2] == (CLIENTS, ROUNDS) and found.shape[2] >= 4096
    assert faults(found, prime) == set()


# --- controls


@pytest.fixture
def uniform():
    prime = ring_context(RING_PARAMS).data.primes[0]
    drawn = np.random.default_rng(5).integers(0, prime, (CLIENTS, ROUNDS, 4096), dtype=np.uint64)
    return drawn, prime


def test_control_uniform_numbers_pass(uniform):
    assert faults(*uniform) == set()


def test_control_a_mask_of_one_scalar_is_caught(uniform):
    residues, prime = uniform
    small = np.random.default_rng(6).integers(0, 1000, residues.shape, dtype=np.uint64)
    scalar = residues[:, :, :1] + small
    assert {"uneven", "coordinates"} <= faults(scalar % np.uint64(prime), prime)


def test_control_a_scalar_times_a_public_vector_is_caught_across_clients():
    """Each payload by itself looks uniform; the sums and differences of two do not, for small multipliers."""
    prime = ring_context(RING_PARAMS).data.primes[0]
    rng = np.random.default_rng(7)
    public = rng.integers(0, prime, 4096, dtype=np.uint64)
    twice = np.stack([public, public + rng.integers(0, 9, 4096, dtype=np.uint64)]) % np.uint64(prime)
    assert "clients" in faults(twice[:, None, :], prime)


def test_control_one_mask_for_two_clients_or_two_rounds_is_caught(uniform):
    residues, prime = uniform
    error = np.random.default_rng(8).integers(0, 50, 4096, dtype=np.uint64)
    clients, rounds = residues.copy(), residues.copy()
    clients[1, 2] = (clients[0, 2] + error) % np.uint64(prime)
    rounds[3, 1] = (rounds[3, 0] + error) % np.uint64(prime)
    assert faults(clients, prime) == {"clients"} and faults(rounds, prime) == {"rounds"}


def test_control_a_short_mask_that_repeats_is_caught(uniform):
    residues, prime = uniform
    assert "coordinates" in faults(np.tile(residues[:, :, :1024], 4), prime)


def test_control_the_negative_of_anothers_mask_is_caught(uniform):
    residues, prime = uniform
    residues[2, 0] = (np.uint64(prime) - residues[1, 0]) % np.uint64(prime)
    assert "clients" in faults(residues, prime)
