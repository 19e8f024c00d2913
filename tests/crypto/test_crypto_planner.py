"""Plans hold what they promise and are the cheapest; parameters from outside are checked before any use."""

import json
import math
from dataclasses import fields, replace
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode_crypto import Demand, SumParams, WrongParameters, noise_tail, params_from_dict, plan
from fednode_crypto.bfv.planner import noise_bounds
from fednode_crypto.hazmat.modular import is_prime
from fednode_crypto.params import LARGEST_MODULUS_BITS
from fednode_crypto.ring.params import MASK_VARIANCE

DEMAND = Demand(dimension=20_500, summands=20, value_bound=406_872_060, holders=5, threshold=4)
HUNDRED = Demand(dimension=1_000_000, summands=100, value_bound=204_800, holders=5, threshold=4)
BFV, RING = plan("bfv", DEMAND), plan("ring", HUNDRED)
BOTH = pytest.mark.parametrize("params", [BFV, RING], ids=["bfv", "ring"])
HOLDERS = st.tuples(st.integers(1, 10), st.integers(1, 10)).filter(lambda pair: pair[1] <= pair[0])
DEMANDS = st.builds(
    lambda dimension, summands, bound, pair: Demand(dimension, summands, bound, *pair),
    st.integers(1, 2**28),
    st.integers(1, 2**20),
    st.integers(1, 2**58),
    HOLDERS,
)


def serves(params: SumParams, demand: Demand) -> bool:
    assert (params.value_bound, params.threshold) == (demand.value_bound, demand.threshold)
    assert demand.value_bound < 1 << (params.lane_bits - 1)
    assert params.lanes * params.blocks * params.ring_degree >= demand.dimension
    return params_from_dict(json.loads(json.dumps(params.to_dict()))) == params


@settings(max_examples=60, deadline=None)
@given(DEMANDS)
def test_plan_of_bfv_keeps_security_noise_and_lanes(demand: Demand) -> None:
    params = plan("bfv", demand)
    assert serves(params, demand)
    assert sum(params.prime_bits) <= 218
    q, noise = prod(params.primes[:-1]), noise_bounds(params)
    assert 64 * noise.residual <= q // (2 * params.plain_modulus)
    assert noise.smudging >= (noise.payload << 40) ** 2
    assert 8 * (2 * demand.value_bound + 1) ** params.lanes <= 7 * params.plain_modulus


@settings(max_examples=80, deadline=None)
@given(DEMANDS)
def test_plan_of_ring_keeps_security_errors_and_lanes(demand: Demand) -> None:
    params = plan("ring", demand)
    assert serves(params, demand)
    q, small, shift, bound = prod(params.primes), params.small, params.shift, demand.value_bound
    assert q.bit_length() <= LARGEST_MODULUS_BITS[params.ring_degree]
    # 2 T exp(-b^2 / (2 n v)) <= 2^-128 for T = 2^48
    assert math.log2(2**49) - small**2 / (2 * demand.summands * float(MASK_VARIANCE)) / math.log(2) < -128 + 1e-6
    assert 2 * small < 2**shift
    span = sum(bound << (params.lane_bits * lane) for lane in range(params.lanes))
    assert 2 * ((span << shift) + small) < q
    assert 8 * (2 * small + 1) * (2 * bound + 1) ** params.lanes <= 7 * q
    assert is_prime(params.share_prime)
    assert params.share_prime > max(2 * small, params.holders)


@pytest.mark.parametrize(
    ("summands", "degree", "lanes", "lane_bits", "shift", "share_prime", "ratio"),
    [(10, 8192, 13, 16, 10, 1021, 0.58), (100, 4096, 5, 19, 11, 2039, 0.70), (1000, 8192, 9, 22, 13, 8191, 0.80)],
)
def test_a_million_values_of_twelve_bits_cost_less_than_floats(
    summands: int, degree: int, lanes: int, lane_bits: int, shift: int, share_prime: int, ratio: float
) -> None:
    params = plan("ring", Demand(1_000_000, summands, 2048 * summands, holders=5, threshold=4))
    assert (params.ring_degree, params.lanes, params.lane_bits, params.shift) == (degree, lanes, lane_bits, shift)
    assert params.share_prime == share_prime
    assert params.upload_bytes == params.payload_bytes + 5 * (params.share_bytes + 49)
    assert params.upload_bytes <= ratio * 4_000_000


def test_plan_is_the_cheapest_and_the_same_for_everyone() -> None:
    assert BFV.payload_bytes == 565_248
    assert plan("bfv", DEMAND).digest() == BFV.digest() and plan("ring", HUNDRED).digest() == RING.digest()
    fewer_bits = plan("bfv", replace(DEMAND, value_bound=2**16))
    assert fewer_bits.payload_bytes < BFV.payload_bytes and fewer_bits.digest() != BFV.digest()
    with pytest.raises(WrongParameters, match="lanes"):
        replace(RING, lanes=RING.lanes + 1)
    for degree in (4096, 8192):
        for lanes in range(1, 11):
            try:
                other = replace(RING, ring_degree=degree, lanes=lanes)
            except WrongParameters:
                continue
            assert other.upload_bytes >= RING.upload_bytes


def test_largest_and_smallest_demands_have_a_plan() -> None:
    largest = Demand(dimension=2**28, summands=2**20, value_bound=2**58, holders=10, threshold=6)
    assert noise_bounds(plan("bfv", largest)).smudging < 4**96
    assert plan("ring", replace(largest, threshold=10)).lanes >= 1
    smallest = Demand(dimension=1, summands=1, value_bound=1, holders=1, threshold=1)
    assert plan("ring", smallest).payload_bytes == 4096 * 109 // 8
    assert plan("bfv", replace(smallest, dimension=10**6)).lanes == 16
    assert plan("ring", replace(smallest, dimension=10**7)).lanes > 50


def test_what_cannot_be_planned_is_said_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fednode_crypto.bfv.planner.LARGEST_MODULUS_BITS", {8192: 109})
    monkeypatch.setattr("fednode_crypto.ring.planner.PRIME_BITS", {})
    for name in ("bfv", "ring"):
        with pytest.raises(WrongParameters, match=r"20 .* 4 of 5"):
            plan(name, DEMAND)
    monkeypatch.undo()
    with pytest.raises(WrongParameters, match="ckks"):
        plan("ckks", DEMAND)
    for bad in (0, -1, 2**40, 1.5, True, math.nan, "5", None):
        with pytest.raises(WrongParameters, match="summands"):
            replace(DEMAND, summands=bad)
    with pytest.raises(WrongParameters, match="6 of 5"):
        replace(DEMAND, threshold=6)


def test_parameters_without_headroom_for_noise_are_refused() -> None:
    for tight in (replace(BFV, prime_bits=(42, 42, 42, 59)), replace(BFV, holders=10, threshold=6)):
        with pytest.raises(WrongParameters, match="primes"):
            noise_bounds(tight)


HOSTILE: list[Any] = [
    None, True, False, -1, 0, 2**63, 2**200, 1.0, math.nan, math.inf, "8192", b"8192", [], {}, [8192], [[60, 60]],
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_hostile_field_is_refused(params: SumParams, value: Any) -> None:
    for name in params.to_dict():
        with pytest.raises(WrongParameters):
            params_from_dict({**params.to_dict(), name: value})


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
        {"plain_modulus": BFV.plain_modulus - 16384},
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
def test_inconsistent_parameters_of_bfv_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WrongParameters):
        params_from_dict({**BFV.to_dict(), **change})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"shift": RING.shift - 1}, "shift"),
        ({"summands": 1_000}, "1000"),
        ({"lanes": 6}, "lanes"),
        ({"lanes": 128}, "lanes"),
        ({"lane_bits": 18}, "lane_bits"),
        ({"lane_bits": 23}, "modulus"),
        ({"shift": 40}, "modulus"),
        ({"value_bound": 2**18}, "lane"),
        ({"ring_degree": 4097}, "4096 or 8192"),
        ({"ring_degree": 8191}, "4096 or 8192"),
        ({"ring_degree": 16384}, "ring_degree"),
        ({"threshold": 6}, "6 of 5"),
        ({"scheme": "bfv"}, "names"),
        ({"scheme": "rings"}, "scheme"),
        # errors reach 98 % of the shift, and the lanes nearly the whole modulus: junk would pass
        ({"summands": 408_000, "value_bound": 2**22 - 1, "lane_bits": 23, "lanes": 4, "shift": 17}, "junk"),
    ],
)
def test_inconsistent_parameters_of_ring_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(WrongParameters, match=named):
        params_from_dict({**RING.to_dict(), **change})


def test_ring_takes_fewer_lanes_where_junk_would_pass() -> None:
    assert plan("ring", Demand(1_000_000, 408_000, 2**22 - 1, 5, 4)).lanes != 4


@BOTH
def test_document_needs_exactly_the_known_names(params: SumParams) -> None:
    document = params.to_dict()
    fewer = {name: value for name, value in document.items() if name != "lanes"}
    swapped = {**document, "prime_bits": [54, 55], "shift": 11}
    empty = ({}, {"scheme": params.scheme}, {"scheme": []}, [], "x", None, 7)
    for bad in (*empty, {**document, "more": 1}, fewer, swapped):
        with pytest.raises(WrongParameters):
            params_from_dict(bad)


def test_digest_depends_on_every_field_and_on_the_scheme() -> None:
    changes: list[dict[str, Any]] = [
        {"dimension": 1_000_001},
        {"summands": 99},
        {"value_bound": 204_799},
        {"ring_degree": 8192},
        {"lanes": 4},
        {"lane_bits": 20, "lanes": 4},
        {"holders": 6},
        {"threshold": 3},
        {"shift": 12},
    ]
    assert {name for change in changes for name in change} == {field.name for field in fields(RING)}
    others = [replace(RING, **change) for change in changes] + [BFV, replace(BFV, prime_bits=(47, 47, 47, 59))]
    assert len({p.digest() for p in [RING, *others, plan("bfv", HUNDRED)]}) == len(others) + 2


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
    for summands in (1, 10, 1_000, 2**20):
        params = plan("ring", replace(HUNDRED, summands=summands, value_bound=2048 * summands))
        assert params.small == noise_tail(MASK_VARIANCE * summands, 2**48)
