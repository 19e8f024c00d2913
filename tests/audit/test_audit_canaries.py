"""Canaries hide none of each other, and the bound from guesses is that of its authors' code."""

import numpy as np
import pytest
from kit.crypto.insecure import InsecureRng
from scipy.stats import binom

from fednode.audit.canaries import Canaries, bound_of_guesses, one_run_bound


@pytest.mark.parametrize("dimension", [200, 1_001, 20_000])
def test_a_canary_is_seen_at_its_clip_and_no_other(dimension):
    canaries = Canaries.draw("record", (dimension, 7), 500, InsecureRng(1))
    total = sum(canaries.sum_of(client, 2.5).vector for client in range(7))
    assert len(canaries.inside) == min(500, dimension // 2)
    assert np.allclose(canaries.scores(total), 2.5 * canaries.inside, rtol=1e-5)
    assert np.linalg.norm(total) == pytest.approx(2.5 * canaries.inside.sum() ** 0.5, rel=1e-5)


def test_each_is_in_by_a_coin_and_the_clients_have_equal_parts():
    canaries = Canaries.draw("record", (30_000, 20), 5_000, InsecureRng(2))
    assert abs(canaries.inside.mean() - 0.5) < 3 * (0.25 / 5_000) ** 0.5
    assert set(np.bincount(canaries.owners)) == {250}
    assert abs(np.corrcoef(canaries.inside[:-1], canaries.inside[1:])[0, 1]) < 0.05


def test_without_canaries_clients_send_zeros():
    canaries = Canaries.draw("client", (100, 3), 0, InsecureRng(3))
    assert not canaries.sum_of(1, 1.0).vector.any() and len(canaries.inside) == 0


@pytest.mark.parametrize(
    ("guesses", "delta", "epsilon"),
    [
        ((1_000, 100, 90), 0.0, 1.6308),
        ((1_000, 100, 90), 1e-5, 1.6261),
        ((1_000, 200, 150), 0.0, 0.8214),
        ((1_000, 200, 150), 1e-5, 0.8200),
        ((100, 50, 50), 0.0, 2.7847),
        ((100, 50, 50), 1e-5, 2.7819),
        ((100, 50, 20), 1e-5, 0.0),
    ],
)
def test_the_bound_from_guesses(guesses, delta, epsilon):
    assert bound_of_guesses(guesses, delta, 0.05) == pytest.approx(epsilon, abs=1e-4)


def test_without_delta_it_is_the_bound_of_clopper_and_pearson():
    epsilon = bound_of_guesses((5_000, 400, 300), 0.0, 0.05)
    assert binom.sf(299, 400, 1 / (1 + np.exp(-epsilon))) == pytest.approx(0.05, rel=1e-6)


def test_the_bound_lies_below_the_truth_and_not_far_below():
    rng = np.random.default_rng(4)
    inside = rng.integers(0, 2, 5_000).astype(bool)
    # mu 1.43: epsilon 6.66 at delta 1e-5
    bounds = [one_run_bound(1.43 * inside + rng.normal(size=5_000), inside, 1e-5) for _ in range(20)]
    assert min(bounds) > 2.0 and max(bounds) < 6.66
