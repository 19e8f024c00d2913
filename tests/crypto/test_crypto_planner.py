"""Plans hold what they promise, and parameters from outside are checked before anything is computed."""

import json
import math
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fednode_crypto import Demand, WrongParameters, noise_tail, params_from_dict, plan
from fednode_crypto.bfv.planner import noise_bounds

DEMAND = Demand(dimension=20_500, summands=20, value_bound=406_872_060, holders=5, threshold=4)
PARAMS = plan("bfv", DEMAND)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2**28), st.integers(1, 2**20), st.integers(1, 2**58), st.integers(1, 10), st.integers(1, 10))
def test_plan_keeps_security_room_and_lanes(dimension: int, summands: int, bound: int, k: int, t: int) -> None:
    assume(t <= k)
    params = plan("bfv", Demand(dimension, summands, bound, k, t))
    assert sum(params.prime_bits) <= 218
    assert (params.value_bound, params.threshold) == (bound, t)
    assert bound < 1 << (params.lane_bits - 1)
    assert params.lanes * params.blocks * params.ring_degree >= dimension
    q, noise = prod(params.primes[:-1]), noise_bounds(params)
    assert 64 * noise.residual <= q // (2 * params.plain_modulus)
    assert noise.smudging >= (noise.payload << 40) ** 2
    assert 8 * (2 * bound + 1) ** params.lanes <= 7 * params.plain_modulus
    assert params_from_dict(json.loads(json.dumps(params.to_dict()))) == params


def test_plan_is_the_cheapest_and_the_same_for_everyone() -> None:
    assert PARAMS.payload_bytes == 565_248
    assert plan("bfv", DEMAND).digest() == PARAMS.digest()
    fewer_bits = replace(DEMAND, value_bound=2**16)
    assert plan("bfv", fewer_bits).payload_bytes < PARAMS.payload_bytes
    assert plan("bfv", fewer_bits).digest() != PARAMS.digest()


def test_largest_and_smallest_demands_have_a_plan() -> None:
    largest = plan("bfv", Demand(dimension=2**28, summands=2**20, value_bound=2**58, holders=10, threshold=6))
    assert noise_bounds(largest).smudging < 4**96
    assert plan("bfv", Demand(dimension=10**6, summands=1, value_bound=1, holders=1, threshold=1)).lanes == 16


def test_what_cannot_be_planned_is_said_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fednode_crypto.bfv.planner.LARGEST_MODULUS_BITS", {8192: 109})
    with pytest.raises(WrongParameters, match=r"20 .* 4 of 5"):
        plan("bfv", DEMAND)
    monkeypatch.undo()
    with pytest.raises(WrongParameters, match="ckks"):
        plan("ckks", DEMAND)
    for bad in (0, -1, 2**40, 1.5, True, math.nan, "5", None):
        with pytest.raises(WrongParameters, match="summands"):
            replace(DEMAND, summands=bad)
    with pytest.raises(WrongParameters, match="6 of 5"):
        replace(DEMAND, threshold=6)


def test_parameters_without_room_for_noise_are_refused() -> None:
    tight = replace(PARAMS, prime_bits=(42, 42, 42, 59))
    with pytest.raises(WrongParameters, match="primes"):
        noise_bounds(tight)
    with pytest.raises(WrongParameters, match="primes"):
        noise_bounds(replace(PARAMS, holders=10, threshold=6))


HOSTILE: list[Any] = [
    None, True, False, -1, 0, 2**63, 2**200, 1.0, math.nan, math.inf, "8192", b"8192", [], {}, [8192], [[60, 60]],
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), product(PARAMS.to_dict(), HOSTILE))
def test_hostile_field_is_refused(name: str, value: Any) -> None:
    with pytest.raises(WrongParameters):
        params_from_dict({**PARAMS.to_dict(), name: value})


@pytest.mark.parametrize(
    "change",
    [
        {"prime_bits": [60, 60, 60, 60]},
        {"prime_bits": [46]},
        {"prime_bits": [46, 46, 46, True]},
        {"prime_bits": [46, 45, 46, 59]},
        {"prime_bits": [20, 20, 20, 59]},
        {"prime_bits": [46.0, 46, 46, 59]},
        {"prime_bits": [46, 46, 46, 60]},
        {"plain_modulus": PARAMS.plain_modulus - 16384},
        {"plain_modulus": 65537},
        {"lane_bits": 29},
        {"lane_bits": 31},
        {"lanes": 3},
        {"value_bound": 2**29},
        {"ring_degree": 8191},
        {"ring_degree": 4096},
        {"threshold": 6},
        {"scheme": ""},
        {"scheme": "x" * 33},
        {"scheme": "bfv\u00e9"},
    ],
)
def test_inconsistent_parameters_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WrongParameters):
        params_from_dict({**PARAMS.to_dict(), **change})


def test_document_needs_exactly_the_known_names() -> None:
    document = PARAMS.to_dict()
    for bad in ({}, {**document, "more": 1}, {k: v for k, v in document.items() if k != "lanes"}, [], "x", None, 7):
        with pytest.raises(WrongParameters):
            params_from_dict(bad)


def test_digest_depends_on_every_field() -> None:
    others = [
        replace(PARAMS, dimension=20_501),
        replace(PARAMS, summands=21),
        replace(PARAMS, value_bound=PARAMS.value_bound - 1),
        replace(PARAMS, prime_bits=(47, 47, 47, 59)),
        replace(PARAMS, holders=6),
        replace(PARAMS, threshold=3),
    ]
    assert len({p.digest() for p in [PARAMS, *others]}) == len(others) + 1


@given(st.fractions(0, 2**80), st.integers(1, 2**60))
def test_tail_is_beyond_the_subgaussian_bound(variance: Any, draws: int) -> None:
    bound = noise_tail(variance, draws)
    if variance:
        log2_chance = math.log2(2 * draws) - float(bound) ** 2 / (2 * float(variance)) / math.log(2)
        assert log2_chance <= -128 + 1e-6
    assert bound <= noise_tail(variance + 1, draws) <= noise_tail(variance + 1, draws + 1)


def test_tail_of_known_numbers() -> None:
    # sqrt(2 * 100 * ln(2^129 * 1000)) = 138.5
    assert noise_tail(100, 1000) in (139, 140)
    with pytest.raises(ValueError, match="variance"):
        noise_tail(-1, 10)
    with pytest.raises(ValueError, match="draw"):
        noise_tail(1, 0)
