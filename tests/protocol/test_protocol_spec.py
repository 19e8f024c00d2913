"""A round's digest stands for everything in it; a spec from outside is read within bounds or refused."""

import copy
import json
import math
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.faults import reason_of
from kit.members import TERMS, some_spec

from fednode.protocol.spec import RoundSpec, Terms
from fednode.wire import Fields, canonical, parse
from fednode_crypto import Demand, plan

SPEC = some_spec()
CHANGED_TERMS = {
    "unit": "customer",
    "clip": 1.5,
    "grid_bits": 17,
    "local_variance": TERMS.local_variance + 1,
    "max_records": 101,
    "divisor": 301.0,
    "min_survivors": 3,
    "assumed_colluders": 0,
    "deadline": 61.0,
    "staleness": 1,
    "rotated": True,
    "adaptive_clip": 2.0,
}
OTHER_SUM = plan("bfv", Demand(dimension=11, summands=4, value_bound=1_000, holders=3, threshold=2))
CHANGED = {
    "task": "intents2",
    "round": 4,
    "model_version": 5,
    "model_digest": b"\x01" * 31 + b"\x00",
    "cohort_digest": bytes(32),
    "key_digest": b"\x02" * 31 + b"\x03",
    "sum_params": OTHER_SUM,
}


def read(spec: RoundSpec) -> RoundSpec:
    return RoundSpec.from_fields(parse(canonical(spec.to_dict())))


def must_be_refused(document) -> None:
    assert reason_of(RoundSpec.from_fields, Fields(document)) == "malformed"


def test_a_spec_comes_back_with_the_same_digest():
    assert read(SPEC) == SPEC
    assert read(SPEC).digest() == SPEC.digest() == some_spec().digest()
    assert len(SPEC.digest()) == 32


def test_every_field_is_in_the_digest():
    variants = {"": SPEC}
    for name in (field.name for field in fields(RoundSpec)):
        if name != "terms":
            variants[name] = replace(SPEC, **{name: CHANGED[name]})
    for name in (field.name for field in fields(Terms)):
        # an adaptive clip is for the client unit alone, which is another digest already
        both = {"unit": "client", "max_records": 1} if name == "adaptive_clip" else {}
        variants[f"terms.{name}"] = replace(SPEC, terms=replace(TERMS, **both, **{name: CHANGED_TERMS[name]}))
    variants["client"] = replace(SPEC, terms=replace(TERMS, unit="client", max_records=1))
    assert len({variant.digest() for variant in variants.values()}) == len(variants) == 21
    for variant in variants.values():
        assert read(variant) == variant


def test_every_field_of_the_sum_parameters_is_in_the_digest():
    digests = {SPEC.digest()}
    known = [field.name for field in fields(SPEC.sum_params)]
    for name in known:
        other, value = copy.deepcopy(SPEC.sum_params), getattr(SPEC.sum_params, name)
        object.__setattr__(other, name, (*value, 1) if isinstance(value, tuple) else value + 1)
        digests.add(replace(SPEC, sum_params=other).digest())
    assert len(digests) == 1 + len(known)


def test_the_unit_is_in_the_digest():
    text = canonical(SPEC.to_dict())
    assert b'"unit":"record"' in text


@pytest.mark.parametrize("level", ["spec", "terms", "sum_params"])
def test_names_are_exactly_those_of_a_spec(level):
    document = json.loads(canonical(SPEC.to_dict()))
    inner = document if level == "spec" else document[level]
    for name in list(inner):
        kept = inner.pop(name)
        must_be_refused(document)
        inner[name] = kept
    inner["more"] = 1
    must_be_refused(document)


HOSTILE = {
    "task": ["", "x" * 129, "a\nb", 1, None],
    "round": [-1, 1_000_001, True, 1.0, "1", None],
    "model_version": [-1, 1_000_001, False, 1.0],
    "model_digest": ["", "00" * 31, "00" * 33, "0 " * 32, "AA" * 32, 0, None],
    "cohort_digest": ["00" * 31, "zz" * 32],
    "key_digest": ["00" * 31, ["00" * 32]],
    "terms": [None, [], "terms", {}],
    "sum_params": [None, [], {}, 1],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in HOSTILE.items() for v in values])
def test_a_hostile_field_is_malformed(name, value):
    must_be_refused(SPEC.to_dict() | {name: value})


HOSTILE_TERMS = {
    "unit": ["", "client", "records", "Customer", 1, None],
    "clip": [0.0, -1.0, 1, True, math.nan, math.inf, 1e10, "1.0", None],
    "grid_bits": [-1, 41, 16.0, True],
    "local_variance": [0, -1, 1.0, (1 << 110) + 1],
    "max_records": [0, -1, (1 << 40) + 1, 1.5],
    "divisor": [0.0, -1.0, 300, math.inf, 1e16],
    "min_survivors": [0, 1, -1, 1_000_001, 2.0, True],
    "assumed_colluders": [-1, 2, 1_000_001, False],
    "deadline": [0.0, -1.0, 60, 1e8, math.nan],
    "staleness": [-1, 1_001, True, 1.0, None],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in HOSTILE_TERMS.items() for v in values])
def test_a_hostile_term_is_malformed(name, value):
    document = SPEC.to_dict()
    must_be_refused(document | {"terms": document["terms"] | {name: value}})


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1, True, "1.0"])
def test_an_adaptive_clip_that_is_no_positive_number_is_malformed(value):
    of_a_client = SPEC.to_dict()["terms"] | {"unit": "client", "max_records": 1}
    assert RoundSpec.from_fields(Fields(SPEC.to_dict() | {"terms": of_a_client | {"adaptive_clip": 1e-300}}))
    must_be_refused(SPEC.to_dict() | {"terms": of_a_client | {"adaptive_clip": value}})
    must_be_refused(SPEC.to_dict() | {"terms": SPEC.to_dict()["terms"] | {"adaptive_clip": 1.0}})


def test_hostile_sum_parameters_are_malformed():
    document = SPEC.to_dict()
    for change in ({"scheme": "BFV"}, {"dimension": True}, {"prime_bits": [1 << 70, 1 << 70]}, {"holders": 1}):
        must_be_refused(document | {"sum_params": document["sum_params"] | change})


WHOLES = ("grid_bits", "local_variance", "max_records", "min_survivors", "assumed_colluders", "staleness")


@pytest.mark.parametrize(
    "change",
    [
        {"unit": "client"},
        {"grid_bits": 41},
        {"local_variance": 0},
        {"max_records": 0},
        {"min_survivors": 1},
        {"min_survivors": 0, "assumed_colluders": 0},
        {"assumed_colluders": 2},
        *({name: value} for name in ("clip", "divisor", "deadline") for value in (0.0, -1.0, math.nan, math.inf)),
        *({name: value} for name in WHOLES for value in (1.0, True, -1, "1")),
    ],
    ids=str,
)
def test_terms_that_promise_nothing_are_refused(change):
    with pytest.raises(ValueError):
        replace(TERMS, **change)


def test_one_and_one_point_nought_are_the_same_terms():
    whole = replace(TERMS, clip=1, divisor=300, deadline=60)
    assert whole == TERMS
    assert replace(SPEC, terms=whole).digest() == SPEC.digest()
    assert read(replace(SPEC, terms=whole)) == SPEC


def test_the_noise_multiplier_counts_honest_shares_only():
    # sigma of one client is 2^15 steps of 2^-16, the clip is 1: z = 1/2 sqrt(honest)
    assert TERMS.noise_multiplier() == 0.5
    assert replace(TERMS, min_survivors=17).noise_multiplier() == 2.0
    assert replace(TERMS, min_survivors=17, assumed_colluders=13).noise_multiplier() == 1.0
    assert replace(TERMS, clip=2.0).noise_multiplier() == 0.25
    assert replace(TERMS, grid_bits=15).noise_multiplier() == 1.0


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1e-6, 1e9),
    st.integers(0, 40),
    st.integers(1, 1 << 110),
    st.integers(1, 1_000_000),
    st.integers(0, 999_999),
)
def test_any_terms_within_the_bounds_come_back(clip, grid_bits, variance, survivors, colluders):
    terms = replace(
        TERMS,
        clip=clip,
        grid_bits=grid_bits,
        local_variance=variance,
        min_survivors=survivors,
        assumed_colluders=colluders % survivors,
    )
    assert read(replace(SPEC, terms=terms)).terms == terms
    expected = math.sqrt(variance) * math.sqrt(survivors - terms.assumed_colluders) / clip / 2**grid_bits
    assert math.isclose(terms.noise_multiplier(), expected, rel_tol=1e-12)
