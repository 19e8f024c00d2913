"""Events: what they hold, what they refuse, and the bounds that follow from them."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.errors import ConfigError
from fednode.privacy import Budget, DiscreteGaussianSum
from fednode.privacy.mechanism import Sensitivity, discrete_gaussian_bound, sum_gap
from fednode.units import UNITS

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "accountant.json").read_text())
GOOD = DiscreteGaussianSum(1.0, 16, 20_480, 2_338_621_071, 15, 2.0**-120)


def redrawn_l2(clip: float, grid_bits: int, dimension: int) -> float:
    """Rounding redrawn until the norm is small, beta = e^-1/2, as in published figures; in grid steps."""
    c, root = clip * 2.0**grid_bits, math.sqrt(dimension)
    return min(math.sqrt(c * c + dimension / 4 + c + root / 2), c + root)


def converted(bound, rounds: int, delta: float, orders) -> float:
    """Renyi to epsilon at a list of orders, written out once more."""
    return min(
        rounds * bound.at(a) + math.log1p(-1.0 / a) - (math.log(delta) + math.log(a)) / (a - 1.0) for a in orders
    )


@pytest.mark.parametrize("table", VECTORS["rounded_l2_over_clip"], ids=lambda t: str(t["dimension"]))
def test_sensitivity_table(table):
    for bits, redrawn, kept in table["rows"]:
        event = DiscreteGaussianSum(1.0, bits, table["dimension"], 10**10, 10, 0.0)
        assert redrawn <= event.sensitivity.l2 * event.grid + 6e-5 < kept
        assert redrawn_l2(1.0, bits, table["dimension"]) * event.grid == pytest.approx(redrawn, abs=6e-5)


def test_distributed_table():
    table = VECTORS["distributed"]
    d, n = table["dimension"], table["contributors"]
    for bits, expected in table["rows"]:
        variance = round((table["z"] * 2**bits) ** 2 / n)
        sensitivity = Sensitivity.of_integers(redrawn_l2(table["clip"], bits, d), d)
        bound = discrete_gaussian_bound(sensitivity, d, variance, n)
        orders = np.linspace(2.0, 12.0, 1001)
        assert converted(bound, table["rounds"], 1e-5, orders) == pytest.approx(expected, abs=1e-3)


def test_tau_table():
    table = VECTORS["tau"]
    for stddev, expected in table["rows"]:
        n, v = table["contributors"], stddev * stddev
        by_hand = 10 * math.fsum(math.exp(-2 * math.pi**2 * v * k / (k + 1)) for k in range(1, n))
        assert by_hand == pytest.approx(expected, rel=0.03)
        if v.is_integer():
            assert sum_gap(int(v), n) == pytest.approx(by_hand, rel=1e-12)
    assert sum_gap(1, 1) == 0.0


def test_the_least_of_the_three_terms_is_taken():
    d, v, n = 131_072, 1, 100
    sensitivity = Sensitivity(40.0, 1600.0)
    bound = discrete_gaussian_bound(sensitivity, d, v, n)
    l2, l1, tau = 40.0 / 10.0, 1600.0 / 10.0, sum_gap(v, n)
    for alpha in (1.01, 2.0, 10.0, 1e4):
        terms = (
            alpha / 2 * l2**2 + tau * d,
            alpha / 2 * (l2**2 + 2 * l1 * tau + tau**2 * d),
            alpha / 2 * (l2 + math.sqrt(d) * tau) ** 2,
        )
        assert bound.at(alpha) == pytest.approx(min(terms), rel=1e-12)
    assert bound.at(1e4) == pytest.approx(1e4 / 2 * l2**2 + tau * d, rel=1e-12)
    assert bound.at(1.01) < 1.01 / 2 * l2**2 + tau * d
    with pytest.raises(ValueError, match="order"):
        bound.at(1.0)


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=40),
    st.integers(0, 2**32 - 1),
    st.floats(0.01, 30.0),
)
@settings(max_examples=80, deadline=None)
def test_rounding_by_the_same_coins_stays_within_the_sensitivity(values, seed, clip):
    draw = np.random.default_rng(seed)
    others = np.array(values)
    record = draw.normal(size=others.size)
    record *= clip / np.linalg.norm(record)
    coins = draw.random(others.size)
    moved = np.floor(others + record + coins) - np.floor(others + coins)
    allowed = DiscreteGaussianSum(clip, 0, others.size, 100, 1, 0.0).sensitivity
    assert np.linalg.norm(moved) <= allowed.l2 * (1 + 1e-12)
    assert np.abs(moved).sum() <= allowed.l1 * (1 + 1e-12)


def test_figures_of_an_event_in_model_units():
    event = DiscreteGaussianSum(2.0, 3, 16, 9, 4, 0.0)
    assert event.grid == 0.125
    assert event.stddev == 6.0 * 0.125
    assert event.sensitivity == Sensitivity(20.0, 80.0)
    assert event.noise_multiplier == pytest.approx(6.0 / 20.0)


@given(st.floats(1e-9, 1e9), st.integers(1, 2**128), st.floats(0.0, 0.999))
@settings(max_examples=60, deadline=None)
def test_json_gives_the_same_event_back_to_the_bit(clip, variance, failure):
    event = DiscreteGaussianSum(clip, 16, 100, variance, 3, failure)
    assert DiscreteGaussianSum.from_dict(json.loads(json.dumps(event.to_dict()))) == event


@pytest.mark.parametrize("change", VECTORS["refused_events"], ids=str)
def test_bad_events_are_refused(change):
    with pytest.raises(ValueError):
        DiscreteGaussianSum.from_dict(GOOD.to_dict() | change)


@pytest.mark.parametrize("name", ["clip", "failure", "grid_bits", "local_variance"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        DiscreteGaussianSum.from_dict(GOOD.to_dict() | {name: value})


def test_missing_fields_and_other_types_are_refused():
    for name in GOOD.to_dict():
        with pytest.raises(ValueError, match=name):
            DiscreteGaussianSum.from_dict({k: v for k, v in GOOD.to_dict().items() if k != name})
    with pytest.raises(ValueError):
        DiscreteGaussianSum.from_dict([])


def test_a_budget_round_trips():
    budget = Budget(8, 1e-5)
    assert Budget.from_dict(json.loads(json.dumps(budget.to_dict()))) == budget
    assert isinstance(budget.epsilon, float)
    with pytest.raises(ValueError, match="unit"):
        Budget.from_dict({"epsilon": 8.0, "delta": 1e-5, "adjacency": budget.adjacency})


@pytest.mark.parametrize("unit", list(UNITS))
def test_a_budget_is_for_one_unit_under_its_own_neighbours(unit):
    budget = Budget(8.0, 1e-5, unit)
    assert Budget.from_dict(budget.to_dict()) == budget and budget.adjacency == UNITS[unit].adjacency
    for other in ("add-or-remove one record", *(UNITS[name].adjacency for name in UNITS if name != unit)):
        with pytest.raises(ValueError, match="neighbours"):
            Budget.from_dict(budget.to_dict() | {"adjacency": other})


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": "8"},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"delta": None},
        {"unit": ""},
        {"unit": "household"},
        {"unit": ["record"]},
    ],
    ids=str,
)
def test_bad_budgets_are_refused(change):
    with pytest.raises(ConfigError, match="privacy budget"):
        Budget(**({"epsilon": 8.0, "delta": 1e-5} | change))


def test_nothing_heavy_is_imported():
    heavy = "{'scipy', 'dp_accounting', 'torch', 'sklearn', 'flwr', 'matplotlib'}"
    code = f"import sys, fednode.privacy; sys.exit(', '.join({heavy} & set(sys.modules)) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
