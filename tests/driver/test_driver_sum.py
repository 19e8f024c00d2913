"""The opened sum is the plain integer sum, whoever is missing, and whoever opens."""

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.cohort import FakeCohort, Size, last_asked, opened_sum, silent

from fednode.members import least_threshold
from fednode.protocol.headroom import unrotate
from fednode.protocol.requests import read_spec
from fednode_crypto import scheme

VECTORS = st.sampled_from(["zero", "tiny", "some", "full"])


def vector_of(kind: str, dimension: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=dimension)
    length = {"zero": 0.0, "tiny": 1e-9, "some": 1.0, "full": 8.0}[kind]
    return drawn / np.linalg.norm(drawn) * length


@st.composite
def cases(draw):
    clients, holders = draw(st.integers(3, 6)), draw(st.integers(1, 5))
    threshold = draw(st.integers(least_threshold(holders), holders))
    least = draw(st.integers(3, clients))
    size = Size(clients, holders, threshold, draw(st.integers(1, 9)), min_survivors=least)
    lost = draw(st.sets(st.sampled_from(size.client_names), max_size=clients - least))
    dead = draw(st.sets(st.sampled_from(size.holder_names), max_size=holders - threshold))
    return size, lost, dead, draw(VECTORS)


@given(cases(), st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
@pytest.mark.thorough
def test_any_sizes_in_the_clear(tmp_path_factory, case, seed):
    size, lost, dead, kind = case
    cohort = FakeCohort(tmp_path_factory.mktemp("cohort"), size)
    cohort.learned = {name: vector_of(kind, size.dimension, seed + i) for i, name in enumerate(size.client_names)}
    for name in lost:
        cohort.tell(name, silent)
    for name in dead:
        cohort.tell(name, silent, "open", {1})
    outcome = cohort.begun().run_round(1)
    assert outcome.cause == "" and set(outcome.survivors) == set(size.client_names) - lost
    assert outcome.lost == tuple(sorted(lost)) and {name for name, _ in outcome.silent} == dead
    assert np.array_equal(opened_sum(outcome.release.mean, size.terms()), cohort.sum_of(outcome.survivors))


@pytest.fixture(scope="module")
def sealed_cohort(tmp_path_factory):
    cohort = FakeCohort(tmp_path_factory.mktemp("sealed"), Size(5, 3, 2, 40), scheme("bfv"))
    return cohort, cohort.begun(), count(1)


@given(
    lost=st.sets(st.integers(0, 4), max_size=2),
    dead=st.sets(st.integers(0, 2), max_size=1),
    kind=VECTORS,
    seed=st.integers(0, 2**32),
)
@settings(max_examples=8, deadline=None)
def test_any_dropouts_and_holders_under_bfv(sealed_cohort, lost, dead, kind, seed):
    cohort, driver, rounds = sealed_cohort
    names, number = cohort.size.client_names, next(rounds)
    cohort.forgive()
    cohort.learned = {name: vector_of(kind, cohort.size.dimension, seed + i) for i, name in enumerate(names)}
    for index in lost:
        cohort.tell(names[index], silent)
    for index in dead:
        cohort.tell(cohort.size.holder_names[index], silent, "open")
    before = driver.parameters()
    outcome = driver.run_round(number)
    assert set(outcome.survivors) == {name for index, name in enumerate(names) if index not in lost}
    assert np.array_equal(opened_sum(outcome.release.mean, cohort.size.terms()), cohort.sum_of(outcome.survivors))
    rate = cohort.task().optimiser.rate(number - 1)
    assert np.array_equal(driver.parameters(), before - rate * outcome.release.mean)


def test_more_than_one_block_under_bfv(tmp_path):
    size = Size(3, 2, 2, 50_000, records=2)
    assert size.sum_params().blocks > 1
    cohort = FakeCohort(tmp_path, size, scheme("bfv"))
    outcome = cohort.begun().run_round(1)
    assert np.array_equal(opened_sum(outcome.release.mean, size.terms()), cohort.sum_of(outcome.survivors))
    assert outcome.bytes_up > size.sum_params().payload_bytes > 0


def test_a_rotated_spike_is_nowhere_large_on_the_way_and_comes_back_in_its_place(tmp_path):
    cohort = FakeCohort(tmp_path, Size(dimension=5_000, rotated=True))
    spike = np.eye(1, 5_000, 4_321)[0] * 8.0
    cohort.learned = dict.fromkeys(cohort.size.client_names, spike)
    outcome = cohort.begun().run_round(1)
    steps, mean = cohort.sum_of(outcome.survivors) * 2.0**-8, outcome.release.mean
    # four spikes of 8 and noise of 2 in each coordinate
    assert np.abs(steps).max() < 14 < 18 < mean[4_321] < 46
    assert np.abs(np.delete(mean, 4_321)).max() < 14
    assert np.linalg.norm(steps) == pytest.approx(np.linalg.norm(mean))


def test_an_adaptive_clip_follows_the_bits_of_those_who_arrive_and_the_mean_is_in_model_units(tmp_path):
    size = Size(clients=7, dimension=300, rotated=True, records=1, min_survivors=3, adaptive_clip=100.0)
    cohort = FakeCohort(tmp_path, size)
    cohort.learned = dict.fromkeys(size.client_names, np.eye(1, 300, 123)[0] * 90.0)
    cohort.tell("client-2", silent, rounds={1})
    driver, clip, share = cohort.begun(), 100.0, 0.14
    for number, survivors in ((1, 6), (2, 7)):
        outcome = driver.run_round(number)
        assert len(outcome.survivors) == survivors and outcome.clip == pytest.approx(clip)
        spec, _ = read_spec("open", last_asked(cohort, "open"))
        total = unrotate(cohort.sum_of(outcome.survivors) * 2.0**-8, spec.digest())
        assert total.shape == (301,)
        # of clip 1 in all, sqrt(1 - s^2) is the update's part
        assert np.allclose(outcome.release.mean, total[:-1] * clip / np.sqrt(1 - share**2))
        within = (total[-1] / (share * survivors) + 1) / 2
        # the default task has 8 rounds: 12 / 8
        clip *= np.exp(-1.5 * (np.clip(within, 0, 1) - 0.5))
        assert outcome.release.next_clip == pytest.approx(clip)


def test_a_round_that_fails_leaves_an_adaptive_clip_as_it_is(tmp_path):
    cohort = FakeCohort(tmp_path, Size(records=1, adaptive_clip=3.0))
    cohort.learned = dict.fromkeys(cohort.size.client_names, np.zeros(5))
    driver = cohort.begun()
    for name in ("client-1", "client-2"):
        cohort.tell(name, silent, rounds={1})
    first, second = driver.run_round(1), driver.run_round(2)
    assert first.cause == "too-few-survivors" and first.clip == second.clip == 3.0 != second.release.next_clip
