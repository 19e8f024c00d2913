import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from fednode.allocation import allocate, block_of, block_weights, outsiders_epsilon
from fednode.assemble.planning import plan_task
from fednode.assemble.study import Workload
from fednode.privacy.accountant import epsilon, gaussian_epsilon_of_mu
from fednode.protocol.model import Layout
from fednode.settings import RunSettings
from fednode_crypto import SystemRng

NAMES = tuple(f"client-{n:04d}" for n in range(2000))


class Fixed:
    """Words of a seeded generator."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def words(self, count):
        return self._rng.integers(0, 2**64, count, dtype=np.uint64)


@pytest.mark.parametrize(("rounds", "each"), [(20, 5), (7, 3), (10, 1), (4, 4)])
def test_each_client_takes_part_once_in_each_block(rounds, each):
    drawn = allocate(NAMES, rounds, each, SystemRng())
    assert len(drawn) == rounds
    for name in NAMES[:50]:
        mine = [block_of(number, rounds, each) for number, names in enumerate(drawn, start=1) if name in names]
        assert mine == list(range(each))


def test_blocks_are_as_equal_as_can_be_and_in_order():
    blocks = [block_of(number, 7, 3) for number in range(1, 8)]
    assert blocks == sorted(blocks)
    assert sorted(blocks.count(block) for block in range(3)) == [2, 2, 3]


def test_all_rounds_of_a_block_weigh_the_same_and_together_what_they_did():
    assert block_weights((7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0), 3) == (6.0, 3.5, 1.5)
    assert block_weights((3.0, 2.0), 2) == (3.0, 2.0)


def test_the_draws_are_uniform_and_independent_of_each_other():
    drawn = allocate(NAMES, 20, 5, Fixed(1))
    sizes = np.array([len(names) for names in drawn])
    # binomial(2000, 1/4): four standard deviations are 77
    assert np.abs(sizes - 500).max() < 77
    assert len({len(names) for names in drawn}) > 1
    both = len(drawn[0] & drawn[4])
    # two blocks: an eighth of 1/16 of 2,000 would be an artefact; four standard deviations are 43
    assert abs(both - 125) < 43


@pytest.mark.parametrize("each", [0, 5])
def test_a_client_cannot_take_part_more_often_than_there_are_rounds(each):
    with pytest.raises(ValueError, match="4 rounds"):
        allocate(NAMES, 4, each, SystemRng())


def test_outsiders_learn_less_than_those_who_know_the_draws_and_no_less_than_the_truth():
    mu = 0.4
    knowing = gaussian_epsilon_of_mu(mu * math.sqrt(5), 1e-5)
    outside = outsiders_epsilon(mu, 20, 5, 1e-5)
    poisson = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
    poisson.compose(PoissonSampledDpEvent(0.25, GaussianDpEvent(1 / mu)), 20)
    assert outside == pytest.approx(poisson.get_epsilon(1e-5), rel=0.15)
    assert outside < 0.7 * knowing
    # who takes part in every round hides nothing: the bound is the Gaussian's, up to its tenth
    assert knowing <= outsiders_epsilon(mu, 5, 5, 1e-5) <= 1.1 * knowing


def test_a_plan_never_says_that_outsiders_learn_more_than_those_who_know_the_draws():
    workload = Workload(layout=Layout(("w",), ((50,),)), records=200, max_records=20)
    for each in (3, 6):
        plan = plan_task(RunSettings(clients=12, rounds=6, rounds_per_client=each), workload)
        knowing = epsilon(plan.events(plan.settings.min_survivors), 1e-5)
        assert plan.outsiders() <= knowing and (each < 6 or plan.outsiders() == knowing)


def test_one_of_two_rounds_is_bounded_as_the_exact_mixture():
    # one of two Gaussians: remove direction, delta(eps) = E_P[1 - e^eps Q/P]+ with P the mixture, by Monte Carlo
    mu, delta = 1.0, 0.05
    epsilon = outsiders_epsilon(mu, 2, 1, delta)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400_000, 2))
    x[:, 0] += mu
    loss = np.log(np.exp(mu * x - mu * mu / 2).mean(axis=1))
    assert np.maximum(0.0, 1.0 - np.exp(epsilon - loss)).mean() <= delta
    assert np.maximum(0.0, 1.0 - np.exp(0.85 * epsilon - loss)).mean() > delta
