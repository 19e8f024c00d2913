"""The accountant against published figures, against dp-accounting, and against brute force on small cases."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.privacy import (
    DiscreteGaussianSum,
    NoiseRequest,
    attack_advantage,
    attack_tpr,
    epsilon,
    gaussian_epsilon_of_mu,
    gaussian_mu,
    gaussian_mu_of_epsilon,
    group_epsilon,
    local_variance,
    member_epsilon,
    renyi_epsilon,
    rounds_left,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "accountant.json").read_text())
DELTA = 1e-5


def fine_event(z: float, share_of: int = 100, contributors: int | None = None) -> DiscreteGaussianSum:
    """An event on a grid so fine that rounding costs nothing: `share_of` shares make noise multiplier z."""
    variance = round((z * 2**40) ** 2 / share_of)
    return DiscreteGaussianSum(1.0, 40, 1, variance, share_of if contributors is None else contributors, 0.0)


EVENTS = st.builds(
    DiscreteGaussianSum,
    clip=st.floats(0.01, 100.0),
    grid_bits=st.integers(4, 24),
    dimension=st.integers(1, 1_000_000),
    local_variance=st.integers(1, 2**60),
    contributors=st.integers(1, 500),
    failure=st.just(0.0),
)


@pytest.mark.parametrize("row", VECTORS["gaussian"], ids=str)
def test_gaussian_table(row):
    events = [fine_event(row["z"])] * row["rounds"]
    assert epsilon(events, DELTA) == pytest.approx(row["exact"], abs=1e-3)
    assert renyi_epsilon(events, DELTA) == pytest.approx(row["renyi_any_order"], abs=2e-4)
    assert row["exact"] < renyi_epsilon(events, DELTA) <= row["renyi_few_orders"] + 1e-3


def test_gaussian_by_delta():
    table = VECTORS["gaussian_by_delta"]
    events = [fine_event(table["z"])] * table["rounds"]
    for delta, expected in table["rows"]:
        assert epsilon(events, delta) == pytest.approx(expected, abs=0.006)
    deltas = [delta for delta, _ in table["rows"]]
    profile = [epsilon(events, delta) for delta in deltas]
    assert profile == sorted(profile)


def test_rounds_that_a_budget_buys():
    table = VECTORS["rounds_bought"]
    one = fine_event(table["z"])
    assert epsilon([one] * table["rounds"], DELTA) == pytest.approx(table["at"], abs=1e-4)
    assert epsilon([one] * (table["rounds"] + 1), DELTA) == pytest.approx(table["beyond"], abs=1e-4)
    assert table["at"] < table["epsilon"] < table["beyond"]


def test_dropouts_and_colluders_cost_what_the_tables_say():
    table = VECTORS["dropouts"]
    for row in table["rows"]:
        for survivors, expected in zip(row["survivors"], row["epsilon"], strict=True):
            mu = gaussian_mu([fine_event(row["z"], table["planned"], survivors)] * table["rounds"])
            assert gaussian_epsilon_of_mu(mu, DELTA) == pytest.approx(expected, abs=row["within"])
    table = VECTORS["colluders"]
    for colluders, expected in table["rows"]:
        events = [fine_event(table["z"], 20, table["survivors"] - colluders)] * table["rounds"]
        assert epsilon(events, DELTA) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(("share_of", "key"), [(20, "shares_of_20"), (14, "shares_of_14")])
def test_a_pattern_of_dropouts(share_of, key):
    table = VECTORS["dropout_pattern"]
    events = [fine_event(table["z"], share_of, n) for n in table["survivors"]] * table["repeats"]
    assert epsilon(events, DELTA) == pytest.approx(table[key], abs=5e-4)
    assert renyi_epsilon(events, DELTA) > epsilon(events, DELTA)


@pytest.mark.parametrize("row", VECTORS["attack"], ids=str)
def test_attack_view(row):
    assert attack_advantage(row["mu"]) == pytest.approx(row["advantage"], abs=6e-4)
    assert attack_tpr(row["mu"], 0.01) == pytest.approx(row["tpr_at_1_percent"], abs=6e-4)
    assert attack_tpr(0.0, 0.01) == pytest.approx(0.01)


def test_the_reference_inverts_the_exact_profile():
    from scipy import special

    for mu in (0.0041020, 0.1, 1.0, 5.0, 20.0, 60.0):
        for delta in (1e-3, 1e-5, 1e-10, 1e-30):
            eps = gaussian_epsilon_of_mu(mu, delta)
            lost = special.ndtr(mu / 2 - eps / mu) - math.exp(eps + special.log_ndtr(-mu / 2 - eps / mu))
            assert lost == pytest.approx(delta, rel=1e-6) or (eps == 0.0 and lost <= delta)
    assert gaussian_epsilon_of_mu(0.0041020, DELTA) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.thorough
def test_dp_accounting_agrees():
    import dp_accounting as dp
    from dp_accounting import pld, rdp

    ours = [fine_event(4.0)] * 10 + [fine_event(5.0)] * 30 + [fine_event(8.0)]
    theirs = [dp.GaussianDpEvent(4.0)] * 10 + [dp.GaussianDpEvent(5.0)] * 30 + [dp.GaussianDpEvent(8.0)]
    by_renyi = rdp.RdpAccountant(list(np.linspace(2.0, 12.0, 20_001)))
    by_loss = pld.PLDAccountant(value_discretization_interval=1e-3)
    for event in theirs:
        by_renyi.compose(event)
        by_loss.compose(event)
    assert renyi_epsilon(ours, DELTA) == pytest.approx(by_renyi.get_epsilon(DELTA), abs=1e-6)
    assert epsilon(ours, DELTA) == pytest.approx(by_loss.get_epsilon(DELTA), abs=1e-3)


def test_rounding_is_charged_as_dp_accounting_would_charge_it():
    """Without tau the discrete mechanism costs what z^-2 / 2 in zCDP costs, at the z that rounding leaves."""
    import dp_accounting as dp
    from dp_accounting import rdp

    event = DiscreteGaussianSum(1.0, 10, 131_072, 262_144, 100, 0.0)
    assert event.noise_multiplier == pytest.approx(
        5.0 / math.sqrt(1.0 + 0.03125 + 13.931 * (1024 + 181.02) / 2**20), rel=1e-5
    )
    accountant = rdp.RdpAccountant(list(np.linspace(2.0, 12.0, 10_001)))
    accountant.compose(dp.ZCDpEvent(0.5 / event.noise_multiplier**2), 50)
    assert renyi_epsilon([event] * 50, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), abs=1e-6)


def discrete_gaussian_sum(variance: int, shares: int) -> np.ndarray:
    """Probabilities of the sum of `shares` discrete Gaussians, by convolution."""
    reach = math.ceil(12 * math.sqrt(variance))
    one = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2.0 * variance))
    one /= one.sum()
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    return total


@pytest.mark.parametrize(("variance", "shares"), [(1, 2), (1, 7), (2, 6), (4, 3), (9, 1), (25, 10)])
def test_the_numbers_cover_the_true_loss_of_one_coordinate(variance, shares):
    """Clip 3 on grid 1, one coordinate: neighbours are at most 4 steps apart; compare with the exact hockey stick."""
    event = DiscreteGaussianSum(3.0, 0, 1, variance, shares, 0.0)
    noise = discrete_gaussian_sum(variance, shares)
    here, there = np.pad(noise, (4, 0)), np.pad(noise, (0, 4))
    for delta in (1e-2, 1e-4):
        for eps in (epsilon([event], delta), renyi_epsilon([event], delta)):
            assert eps > 0.0
            if eps < math.inf:
                for p, q in ((here, there), (there, here)):
                    assert np.maximum(p - math.exp(eps) * q, 0.0).sum() <= delta
    assert renyi_epsilon([event], 1e-4) < math.inf


@pytest.mark.parametrize(("variance", "shares"), [(4, 2), (4, 10), (9, 1), (25, 10)])
def test_an_opened_sum_is_a_post_processing_of_a_continuous_gaussian(variance, shares):
    """The lemma of docs/privacy.md by numerical integration: the kernel turns the normal density into the true law."""
    total, kernel = variance * shares, 5.0
    noise = discrete_gaussian_sum(variance, shares)
    at = np.arange(len(noise)) - len(noise) // 2
    x = np.arange(-12 * total**0.5, 12 * total**0.5, 1e-2)
    density = np.exp(-(x**2) / (2 * (total - kernel)))
    near = np.exp(-((at[:, None] - x) ** 2) / (2 * kernel))
    made = (near / near.sum(axis=0)) @ (density / density.sum())
    event = DiscreteGaussianSum(1.0, 0, 1, variance, shares, 0.0)
    assert 0.5 * np.abs(made - noise).sum() <= event.distance + 1e-12
    # the control: a kernel that is too narrow depends on where its centre lies, and the law is another one
    narrow = np.exp(-((at[:, None] - x) ** 2) / (2 * 0.05))
    other = (narrow / narrow.sum(axis=0)) @ (density / density.sum())
    assert 0.5 * np.abs(other - noise).sum() > 1e-3


@given(EVENTS, st.integers(1, 30), st.floats(1e-12, 1e-2))
@settings(max_examples=100, deadline=None)
def test_the_cross_check_is_never_below_the_number(event, rounds, delta):
    events = [replace(event, local_variance=event.local_variance + 10_000)] * rounds
    check = renyi_epsilon(events, delta)
    # above, e^epsilon makes the distances visible in delta, and those of the two proofs differ; no budget is above 50
    assert check >= epsilon(events, delta) * (1.0 - 1e-9) or check > 30.0


@given(st.floats(0.01, 50.0), st.floats(1e-12, 1e-2))
@settings(max_examples=50, deadline=None)
def test_the_mu_of_an_epsilon_is_the_largest(eps, delta):
    mu = gaussian_mu_of_epsilon(eps, delta)
    assert gaussian_epsilon_of_mu(mu, delta) <= eps * (1 + 1e-12) < gaussian_epsilon_of_mu(mu * (1 + 1e-9), delta)


def test_what_a_member_counts():
    assert member_epsilon(8.0, 1e-5, 14, 14) == 8.0
    mu = math.sqrt(1.01 * 19 / 14) * gaussian_mu_of_epsilon(8.0, 1e-5)
    assert member_epsilon(8.0, 1e-5, 19, 14) == pytest.approx(gaussian_epsilon_of_mu(mu, 1e-5))
    assert member_epsilon(50.0, 1e-5, 19, 2) == math.inf


def test_the_cross_check_is_as_much_larger_as_the_docs_say():
    """4 to 12 % for epsilon from 0.1 to 16 and delta from 1e-9 to 1e-5, and more beyond."""

    def larger(limit: float, delta: float) -> float:
        request = NoiseRequest(limit, delta, (1.0,) * 20, 1.0, 16, 10_000, 14, 1e-36)
        events = [request.event(local_variance(request))] * 20
        return renyi_epsilon(events, delta) / epsilon(events, delta) - 1.0

    inside = [larger(limit, delta) for limit in (0.1, 0.5, 2.0, 8.0, 16.0) for delta in (1e-9, 1e-7, 1e-5)]
    assert 0.04 < min(inside) < 0.05 and 0.11 < max(inside) < 0.12
    assert larger(0.001, 1e-5) == pytest.approx(0.22, abs=0.005)
    assert larger(8.0, 0.1) == pytest.approx(0.23, abs=0.005) and larger(0.001, 0.1) > 100


def test_a_budget_of_8_buys_69_rounds_of_five_clips_of_noise():
    """13 % more than the Renyi bound: 61 rounds."""
    one = DiscreteGaussianSum(1.0, 16, 25_625, (5 * 2**16) ** 2 // 10, 10, 1e-33)
    assert epsilon([one] * 69, DELTA) < 8.0 < epsilon([one] * 70, DELTA)
    assert renyi_epsilon([one] * 61, DELTA) < 8.0 < renyi_epsilon([one] * 62, DELTA)


def test_the_error_terms_of_a_usual_run_do_not_show():
    one = DiscreteGaussianSum(1.0, 16, 25_625, (5 * 2**16) ** 2 // 10, 10, 1e-33)
    ideal = gaussian_epsilon_of_mu(math.sqrt(20) / 5.0, DELTA)
    assert 0.0 < epsilon([one] * 20, DELTA) - ideal < 1e-3
    assert one.distance < 1e-32


@given(EVENTS, st.integers(1, 20), st.floats(1e-12, 1e-2))
@settings(max_examples=60, deadline=None)
def test_more_noise_more_clients_fewer_rounds_or_more_delta_never_cost_more(event, rounds, delta):
    spent = epsilon([event] * rounds, delta) * (1.0 + 1e-9) + 1e-12
    assert epsilon([replace(event, local_variance=2 * event.local_variance)] * rounds, delta) <= spent
    assert epsilon([event] * rounds, 2.0 * delta) <= spent
    assert epsilon([event] * (rounds - 1), delta) <= spent
    if event.local_variance >= 4:  # below, one more share also widens the gap that tau pays for
        assert epsilon([replace(event, contributors=event.contributors + 1)] * rounds, delta) <= spent


@given(st.lists(EVENTS, max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_order_does_not_matter(events, shuffler):
    shuffled = list(events)
    shuffler.shuffle(shuffled)
    assert epsilon(shuffled, DELTA) == pytest.approx(epsilon(events, DELTA), rel=1e-9)
    assert gaussian_mu(shuffled) == gaussian_mu(events)


@pytest.mark.parametrize("failure", [1e-30, 1e-14, 1e-12])
def test_failure_is_taken_from_delta_for_both_neighbours(failure):
    clean = [fine_event(5.0)] * 50
    spent = epsilon([replace(event, failure=failure) for event in clean], DELTA)
    left = DELTA - (1.0 + math.exp(spent)) * 50 * failure
    assert spent == pytest.approx(epsilon(clean, left), rel=1e-12)
    assert spent >= epsilon(clean, DELTA)


@pytest.mark.parametrize("failure", [1e-9, 1e-5, 0.5])
def test_more_failure_than_delta_holds_is_infinite(failure):
    assert epsilon([replace(fine_event(5.0), failure=failure)] * 50, DELTA) == math.inf


def test_nothing_released_costs_nothing():
    assert epsilon([], DELTA) == renyi_epsilon([], DELTA) == gaussian_mu([]) == 0.0


def test_far_too_little_noise_is_infinite_not_an_error():
    loud = DiscreteGaussianSum(1e6, 30, 1_000_000, 4, 2, 0.0)
    assert epsilon([loud] * 20, DELTA) == renyi_epsilon([loud] * 20, DELTA) == math.inf
    assert epsilon([replace(loud, local_variance=2**127)] * 20, DELTA) < 8.0


@pytest.mark.parametrize("delta", [0.0, -1e-5, 1.0, 2.0, math.nan, math.inf, True, "1e-5"])
def test_bad_deltas_are_refused(delta):
    for price in (epsilon, renyi_epsilon):
        with pytest.raises(ValueError, match="delta"):
            price([fine_event(5.0)], delta)


@pytest.mark.parametrize("mu", [-1.0, math.nan])
def test_bad_mus_are_refused(mu):
    with pytest.raises(ValueError, match="mu"):
        gaussian_epsilon_of_mu(mu, DELTA)


def test_rounds_left_is_69_less_what_was_spent():
    one = fine_event(5.0)
    assert [rounds_left([one] * spent, one, 8.0, DELTA) for spent in (0, 1, 68, 69, 70)] == [69, 68, 1, 0, 0]
    assert rounds_left([], fine_event(2000.0), 8.0, DELTA) == 10_000


def test_a_group_is_as_one_unit_under_as_many_times_less_noise():
    events = [fine_event(5.0)] * 50
    assert group_epsilon(events, DELTA, 1) == epsilon(events, DELTA)
    # a published value: replacing one record at z = 5, 50 rounds
    assert group_epsilon(events, DELTA, 2) == pytest.approx(15.4562, abs=1e-3)
    by_five = [fine_event(1.0)] * 50
    assert group_epsilon(events, DELTA, 5) == pytest.approx(epsilon(by_five, DELTA), abs=1e-3)
    assert group_epsilon([], DELTA, 10) == 0.0


def test_five_records_of_one_person_turn_epsilon_1_into_6():
    # 20 rounds that together cost epsilon 1
    events = [fine_event(16.67)] * 20
    assert epsilon(events, DELTA) == pytest.approx(1.0, abs=0.01)
    assert group_epsilon(events, DELTA, 5) == pytest.approx(6.2, abs=0.05)
