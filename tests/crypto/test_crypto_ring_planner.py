"""Plans of scheme `ring`: what they promise holds, they are the cheapest, and hostile ones are refused."""

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
from fednode_crypto.hazmat.modular import is_prime
from fednode_crypto.params import LARGEST_MODULUS_BITS
from fednode_crypto.ring.params import MASK_VARIANCE

HUNDRED = Demand(dimension=1_000_000, summands=100, value_bound=204_800, holders=5, threshold=4)
PARAMS = plan("ring", HUNDRED)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 2**28), st.integers(1, 2**20), st.integers(1, 2**58), st.integers(1, 10), st.integers(1, 10))
def test_plan_keeps_security_room_and_lanes(dimension: int, summands: int, bound: int, k: int, t: int) -> None:
    assume(t <= k)
    params = plan("ring", Demand(dimension, summands, bound, k, t))
    q, small, shift = prod(params.primes), params.small, params.shift
    assert q.bit_length() <= LARGEST_MODULUS_BITS[params.ring_degree]
    assert (params.value_bound, params.threshold) == (bound, t)
    # 2 T exp(-b^2 / (2 n v)) <= 2^-128 for T = 2^48
    assert math.log2(2**49) - small**2 / (2 * summands * float(MASK_VARIANCE)) / math.log(2) < -128 + 1e-6
    assert 2 * small < 2**shift
    span = sum(bound << (params.lane_bits * lane) for lane in range(params.lanes))
    assert 2 * ((span << shift) + small) < q
    assert 8 * (2 * small + 1) * (2 * bound + 1) ** params.lanes <= 7 * q
    assert is_prime(params.share_prime)
    assert 2 * small < params.share_prime
    assert params.share_prime > params.holders
    assert params.lanes * params.blocks * params.ring_degree >= dimension
    assert params_from_dict(json.loads(json.dumps(params.to_dict()))) == params


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
    assert plan("ring", HUNDRED).digest() == PARAMS.digest()
    with pytest.raises(WrongParameters, match="lanes"):
        replace(PARAMS, lanes=PARAMS.lanes + 1)
    for degree in (4096, 8192):
        for lanes in range(1, 11):
            try:
                other = replace(PARAMS, ring_degree=degree, lanes=lanes)
            except WrongParameters:
                continue
            assert other.upload_bytes >= PARAMS.upload_bytes


def test_largest_and_smallest_demands_have_a_plan() -> None:
    largest = plan("ring", Demand(dimension=2**28, summands=2**20, value_bound=2**58, holders=10, threshold=10))
    assert largest.lanes >= 1
    smallest = plan("ring", Demand(dimension=1, summands=1, value_bound=1, holders=1, threshold=1))
    assert smallest.payload_bytes == 4096 * 109 // 8
    many = plan("ring", Demand(dimension=10**7, summands=1, value_bound=1, holders=1, threshold=1))
    assert many.lanes > 50


def test_what_cannot_be_planned_is_said_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fednode_crypto.ring.planner.PRIME_BITS", {})
    with pytest.raises(WrongParameters, match=r"100 .* 4 of 5"):
        plan("ring", HUNDRED)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"shift": PARAMS.shift - 1}, "shift"),
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
    ],
)
def test_what_could_overflow_or_does_not_belong_together_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(WrongParameters, match=reason):
        params_from_dict({**PARAMS.to_dict(), **change})


def test_sums_that_fill_the_modulus_are_refused_since_junk_would_pass() -> None:
    # errors reach 98 % of the shift, and the lanes all but the modulus
    full = {"summands": 408_000, "value_bound": 2**22 - 1, "lane_bits": 23, "lanes": 4, "shift": 17}
    with pytest.raises(WrongParameters, match="junk"):
        params_from_dict({**PARAMS.to_dict(), **full})
    assert plan("ring", Demand(1_000_000, 408_000, 2**22 - 1, 5, 4)).lanes != 4


HOSTILE: list[Any] = [
    None, True, False, -1, 0, 2**63, 2**200, 1.0, math.nan, math.inf, "8192", b"8192", [], {}, [8192], [[60, 60]],
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), product(PARAMS.to_dict(), HOSTILE))
def test_hostile_field_is_refused(name: str, value: Any) -> None:
    with pytest.raises(WrongParameters):
        params_from_dict({**PARAMS.to_dict(), name: value})


def test_document_needs_exactly_the_known_names() -> None:
    document = PARAMS.to_dict()
    for bad in ({**document, "more": 1}, {**document, "prime_bits": [54, 55]}, {"scheme": "ring"}, {"scheme": []}):
        with pytest.raises(WrongParameters):
            params_from_dict(bad)


def test_digest_depends_on_every_field_and_on_the_scheme() -> None:
    others = [
        replace(PARAMS, dimension=1_000_001),
        replace(PARAMS, summands=99),
        replace(PARAMS, value_bound=204_799),
        replace(PARAMS, ring_degree=8192),
        replace(PARAMS, lanes=4),
        replace(PARAMS, lane_bits=20, lanes=4),
        replace(PARAMS, holders=6),
        replace(PARAMS, threshold=3),
        replace(PARAMS, shift=12),
        plan("bfv", HUNDRED),
    ]
    assert len({p.digest() for p in [PARAMS, *others]}) == len(others) + 1


def test_small_sums_are_within_the_tail_of_every_number_of_clients() -> None:
    for summands in (1, 10, 1_000, 2**20):
        params = plan("ring", replace(HUNDRED, summands=summands, value_bound=2048 * summands))
        assert params.small == noise_tail(MASK_VARIANCE * summands, 2**48)
