"""Defaults, and settings that cannot hold together."""

import subprocess
import sys
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fednode.settings import RunSettings
from fednode_crypto.params import MOST_HOLDERS


@given(st.integers(4, 100_000))
@settings(max_examples=50, deadline=None)
def test_three_quarters_of_the_clients_must_survive_unless_said_otherwise(clients):
    assert RunSettings(clients=clients).min_survivors == ceil(0.75 * clients)


@given(st.integers(2, 10), st.integers(2, 10))
@settings(max_examples=100, deadline=None)
def test_a_committee_is_accepted_exactly_when_two_sums_cannot_both_open(holders, threshold):
    sound = threshold <= holders and 2 * threshold > holders
    try:
        RunSettings(holders=holders, threshold=threshold)
    except ValidationError as error:
        assert not sound and "threshold" in str(error)
    else:
        assert sound


def test_settings_take_as_many_holders_as_the_secure_sums_do():
    assert RunSettings(holders=MOST_HOLDERS, threshold=MOST_HOLDERS).holders == MOST_HOLDERS
    for settings_ in ({"holders": MOST_HOLDERS + 1, "threshold": 10}, {"threshold": MOST_HOLDERS + 1}):
        with pytest.raises(ValidationError, match=f"less than or equal to {MOST_HOLDERS}"):
            RunSettings.model_validate(settings_)


@given(st.integers(2, 12), st.integers(2, 14), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_survivors_are_accepted_exactly_when_two_honest_ones_are_left(clients, survivors, colluders):
    sound = survivors <= clients and survivors - colluders >= 2
    try:
        RunSettings(clients=clients, min_survivors=survivors, assumed_colluders=colluders)
    except ValidationError as error:
        assert not sound and "min_survivors" in str(error)
    else:
        assert sound


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"floor_survivors": 16}, "below the members' own floor_survivors 16"),
        ({"faults": ["dead@3:client-01"]}, "befalls a holder"),
        ({"faults": ["slow@21:client-01"]}, "begins after the last round, 20"),
        ({"faults": 3}, "valid tuple"),
        ({"clip_quantile": 0.5}, "set unit to client"),
    ],
)
def test_contradictions_are_refused(values, words):
    with pytest.raises(ValidationError, match=words):
        RunSettings(**values)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("features", 15),
        ("features", 65537),
        ("grid_bits", -1),
        ("grid_bits", 41),
        ("clip", 0),
        ("clip", float("inf")),
        ("clip_quantile", 0),
        ("clip_quantile", 1),
        ("epsilon", float("nan")),
        ("delta", 0),
        ("seed", -1),
        ("deadline", 0),
        ("learning_rate", 0),
        ("vectors", "a\udcff"),
    ],
)
def test_values_out_of_bounds_are_refused(field, value):
    with pytest.raises(ValidationError) as caught:
        RunSettings(**{field: value})
    assert caught.value.errors()[0]["loc"] == (field,)


def test_settings_load_neither_flower_nor_torch():
    code = "import fednode.settings, sys; print(sorted({'flwr', 'torch', 'numpy', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
