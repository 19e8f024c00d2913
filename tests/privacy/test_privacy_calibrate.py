"""Calibration: the least noise of the next round, by its weight and by what is left; refusals say what to change."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.errors import BudgetExhausted, ConfigError
from fednode.optimiser import ServerOptimiser
from fednode.privacy import (
    NoiseRequest,
    coarsest_grid,
    epsilon,
    gaussian_mu,
    gaussian_mu_of_epsilon,
    local_variance,
    renyi_epsilon,
)

PLAN = NoiseRequest(
    epsilon=8.0,
    delta=1e-5,
    weights=ServerOptimiser(20).weights(),
    clip=1.0,
    grid_bits=16,
    dimension=20_500,
    contributors=15,
    failure=2.0**-110,
)


def planned(plan, honest=lambda step: PLAN.contributors):
    """What the rounds release, each planned after those before it, if `honest(step)` shares count."""
    events = []
    for step in range(len(plan.weights)):
        variance = local_variance(plan, events, step=step)
        events.append(replace(plan.event(variance), contributors=honest(step)))
    return events


@given(
    st.floats(0.1, 20.0),
    st.floats(1e-9, 1e-3),
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12).map(tuple),
    st.floats(0.1, 10.0),
    st.integers(12, 20),
    st.lists(st.integers(1, 40), min_size=12, max_size=12),
)
@settings(max_examples=25, deadline=None)
def test_every_planned_round_fits_whoever_survives(eps, delta, weights, clip, bits, honest):
    plan = NoiseRequest(eps, delta, weights, clip, bits, 5_000, min(honest), 0.0)
    events = planned(plan, lambda step: honest[step])
    assert epsilon(events, delta) <= eps
    # the last round takes all that is left, but for one part in 10^9: one grid step squared less does not fit
    whole = gaussian_mu_of_epsilon(eps, delta) ** 2
    left = whole - gaussian_mu(events[:-1]) ** 2
    last = replace(events[-1], contributors=plan.contributors)
    assert last.mu**2 <= left < replace(last, local_variance=last.local_variance - 1).mu ** 2 + 2e-9 * whole


def test_the_default_run_uses_the_budget():
    least = planned(PLAN)
    assert epsilon(least, 1e-5) == pytest.approx(8.0, abs=1e-6)
    assert renyi_epsilon(least, 1e-5) == pytest.approx(8.600, abs=1e-3)
    most = planned(replace(PLAN, contributors=14), lambda _: 19)
    assert 0.99 < (gaussian_mu(most) / gaussian_mu_of_epsilon(8.0, 1e-5)) ** 2 < 1.0


def test_the_variance_of_a_round_is_inverse_to_its_weight_and_the_last_model_has_the_least_noise():
    events = planned(PLAN)
    products = [event.stddev**2 * weight for event, weight in zip(events, PLAN.weights, strict=True)]
    assert max(products) == pytest.approx(min(products), rel=1e-6)
    noise = math.sqrt(sum((event.stddev * w) ** 2 for event, w in zip(events, PLAN.weights, strict=True)))
    assert noise == pytest.approx(sum(PLAN.weights) / gaussian_mu_of_epsilon(8.0, 1e-5), rel=1e-3)
    even = planned(replace(PLAN, weights=(1.0,) * 20))
    assert noise < 0.95 * math.sqrt(sum((event.stddev * w) ** 2 for event, w in zip(even, PLAN.weights, strict=True)))


def test_a_round_that_failed_leaves_its_part_to_the_rest():
    first, left = local_variance(PLAN), len(PLAN.weights)
    later = [local_variance(PLAN, left=left - failed) for failed in range(20)]
    assert later[0] == first and all(one > other for one, other in itertools.pairwise(later))
    assert epsilon([PLAN.event(later[-1])], 1e-5) == pytest.approx(8.0, abs=1e-6)


def test_survivors_above_the_fewest_leave_more_for_later_rounds():
    first = PLAN.event(local_variance(PLAN))
    more = replace(first, contributors=2 * PLAN.contributors)
    assert local_variance(PLAN, [more], step=1) < local_variance(PLAN, [first], step=1)


def test_a_spent_budget_is_refused():
    with pytest.raises(BudgetExhausted):
        local_variance(PLAN, [PLAN.event(1_000)], step=1)


def test_failure_asks_for_more_noise():
    assert local_variance(replace(PLAN, failure=1e-12)) > local_variance(PLAN)


def test_no_round_has_less_noise_than_the_floor():
    variance = local_variance(replace(PLAN, floor=3.0))
    assert PLAN.event(variance).noise_multiplier >= 3.0 > PLAN.event(variance - 1).noise_multiplier
    assert local_variance(replace(PLAN, floor=0.5)) == local_variance(PLAN)


def test_a_coarse_grid_is_refused_and_later_rounds_keep_the_least_noise():
    coarse = replace(PLAN, grid_bits=3, dimension=1, contributors=1000)
    with pytest.raises(ConfigError, match="grid_bits"):
        local_variance(coarse)
    assert local_variance(coarse, [coarse.event(2**60)], step=19, left=1) == 4
    assert local_variance(replace(coarse, contributors=15), [coarse.event(2**60)], step=19, left=1) == 67


@pytest.mark.parametrize("dimension", [1, 25_625, 10**7])
@pytest.mark.parametrize("clip", [1e-3, 1.0, 50.0])
def test_the_chosen_grid_is_the_coarsest_that_costs_under_half_a_percent(dimension, clip):
    plan = replace(PLAN, dimension=dimension, clip=clip)
    bits = coarsest_grid(plan)
    fine, coarse = (replace(plan, grid_bits=each).event(100) for each in (bits, bits - 1))
    assert fine.sensitivity.l2 * fine.grid < 1.005 * clip <= coarse.sensitivity.l2 * coarse.grid
    assert local_variance(replace(plan, grid_bits=bits)) >= 67


def test_many_small_shares_ask_for_a_finer_grid():
    plan = replace(PLAN, dimension=1, epsilon=50.0, contributors=90_000, weights=(1.0,))
    bits = coarsest_grid(plan)
    assert bits > coarsest_grid(replace(plan, contributors=10))
    assert local_variance(replace(plan, grid_bits=bits)) >= 4
    with pytest.raises(ConfigError, match="grid_bits"):
        local_variance(replace(plan, grid_bits=bits - 1))


def test_a_clip_below_every_grid_is_refused():
    with pytest.raises(ConfigError, match="clip"):
        coarsest_grid(replace(PLAN, clip=1e-11))


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
        {"weights": ()},
        {"weights": (1.0, 0.0)},
        {"floor": -1.0},
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
