"""Calibration: the least noise that holds the plan, and refusals that say what to change."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.errors import ConfigError
from fednode.privacy import NoiseRequest, epsilon, gaussian_epsilon_of_mu, gaussian_mu, local_variance, renyi_epsilon

PLAN = NoiseRequest(
    epsilon=8.0, delta=1e-5, rounds=20, clip=1.0, grid_bits=16, dimension=20_500, contributors=15, failure=2.0**-110
)


def spent(plan: NoiseRequest, variance: int) -> float:
    return epsilon([plan.event(variance)] * plan.rounds, plan.delta)


@given(
    st.floats(0.1, 20.0),
    st.floats(1e-9, 1e-3),
    st.integers(1, 60),
    st.floats(0.1, 10.0),
    st.integers(12, 20),
    st.integers(1, 40),
)
@settings(max_examples=25, deadline=None)
def test_one_grid_step_squared_less_does_not_fit(eps, delta, rounds, clip, bits, contributors):
    plan = NoiseRequest(eps, delta, rounds, clip, bits, 5_000, contributors, 0.0)
    variance = local_variance(plan)
    assert spent(plan, variance) <= eps < spent(plan, variance - 1)


def test_the_default_run():
    variance = local_variance(PLAN)
    assert spent(PLAN, variance) <= 8.0 < spent(PLAN, variance - 1)
    assert spent(PLAN, variance) == pytest.approx(8.0, abs=1e-6)
    events = [PLAN.event(variance)] * 20
    assert gaussian_epsilon_of_mu(gaussian_mu(events), 1e-5) == pytest.approx(8.0, abs=1e-6)
    assert renyi_epsilon(events, 1e-5) == pytest.approx(8.600, abs=1e-3)


def test_failure_asks_for_more_noise():
    assert local_variance(replace(PLAN, failure=1e-12)) > local_variance(PLAN)


def test_a_coarse_grid_is_refused():
    with pytest.raises(ConfigError, match="grid_bits"):
        local_variance(replace(PLAN, grid_bits=0, clip=1.0, dimension=1, contributors=1000))


def test_two_grid_steps_are_allowed():
    plan = replace(PLAN, grid_bits=1, clip=1.0, dimension=1, contributors=10, rounds=2)
    assert local_variance(replace(plan, epsilon=spent(plan, 4))) == 4
    with pytest.raises(ConfigError, match="grid_bits"):
        local_variance(replace(plan, epsilon=spent(plan, 3)))


def test_failures_that_delta_cannot_hold_are_refused():
    with pytest.raises(ConfigError, match="epsilon"):
        local_variance(replace(PLAN, failure=1e-6))


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"epsilon": float("nan")},
        {"epsilon": float("inf")},
        {"delta": 0.0},
        {"delta": 1.0},
        {"rounds": 0},
        {"rounds": 2.0},
        {"clip": -1.0},
        {"clip": float("nan")},
        {"grid_bits": 99},
        {"dimension": 0},
        {"contributors": 0},
        {"failure": float("nan")},
        {"failure": -0.1},
    ],
    ids=str,
)
def test_bad_plans_are_refused(change):
    with pytest.raises(ConfigError):
        replace(PLAN, **change)
