"""Bound, round, noise, seal: what each step promises, and that no step can be left out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.cohort import TASK, FakeSum, Size
from kit.crypto.insecure import InsecureRng
from kit.crypto.plainsum import InsecureSealer

from fednode.protocol.guarantees import Bounded, Noised
from fednode.protocol.headroom import coordinate_limit, signal, unrotate
from fednode.protocol.spec import RoundSpec
from fednode_clients.client.privatise import add_noise, bound, flattened, round_to_grid, seal
from fednode_crypto import Overflow

TERMS = Size().terms()
LIMIT = TERMS.clip * TERMS.max_records


def vectors(largest: float, size: int = 5):
    one = st.floats(-largest, largest, allow_nan=False)
    return st.lists(one, min_size=size, max_size=size).map(np.array)


# --- bound


@given(vectors(1e150))
@settings(max_examples=150, deadline=None)
def test_no_sum_is_longer_than_its_records_allow(vector):
    bounded = bound(FakeSum(vector), TERMS)
    assert np.linalg.norm(bounded.vector) <= LIMIT
    assert (bounded.clip, bounded.max_records) == (TERMS.clip, TERMS.max_records)


@given(vectors(LIMIT / 5))
@settings(max_examples=50, deadline=None)
def test_a_sum_within_its_bound_stays_as_it_is(vector):
    assert np.array_equal(bound(FakeSum(vector), TERMS).vector, vector)


@given(vectors(30.0), vectors(1.0))
@settings(max_examples=150, deadline=None)
def test_one_record_moves_the_bounded_sum_by_at_most_the_clip(vector, record):
    record = record / max(1.0, float(np.linalg.norm(record)))
    with_it, without = bound(FakeSum(vector + record), TERMS), bound(FakeSum(vector), TERMS)
    assert np.linalg.norm(with_it.vector - without.vector) <= TERMS.clip * (1 + 1e-12)


def test_at_the_edge_of_the_ball_one_record_moves_the_sum_by_at_most_the_clip():
    terms = replace(TERMS, max_records=2**40)
    inside = np.array([terms.clip * terms.max_records, 0.0])
    outside = inside + np.array([terms.clip, 0.0])
    moved = np.linalg.norm(bound(FakeSum(outside), terms).vector - bound(FakeSum(inside), terms).vector)
    assert moved <= terms.max_records * terms.clip * 2.0**-46


def test_more_records_than_the_terms_allow_weigh_as_many_as_they_allow():
    crowd = FakeSum(np.full(5, 100.0), records=1000)
    bounded = bound(crowd, TERMS)
    assert np.linalg.norm(bounded.vector) == pytest.approx(LIMIT)
    assert np.allclose(bounded.vector / np.linalg.norm(bounded.vector), 1 / np.sqrt(5))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_what_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="not finite"):
        bound(FakeSum(np.array([0.0, bad])), TERMS)


@pytest.mark.parametrize("clip", [1.0001, 2.0, 0.0, -1.0, float("nan"), float("inf")])
def test_records_clipped_to_another_bound_are_refused(clip):
    with pytest.raises(ValueError, match="the round's clip is 1"):
        bound(FakeSum(np.zeros(5), clip=clip), TERMS)


@pytest.mark.parametrize(("bounded", "asked"), [("record", "customer"), ("customer", "record"), ("record", "client")])
def test_a_sum_that_bounds_another_unit_than_the_round_is_refused(bounded, asked):
    terms = replace(TERMS, unit=asked, max_records=1)
    assert bound(FakeSum(np.zeros(5), unit=asked), terms).clip == TERMS.clip
    with pytest.raises(ValueError, match=f"training bounds each {bounded}, and the round protects each {asked}"):
        bound(FakeSum(np.zeros(5), unit=bounded), terms)


def test_records_clipped_tighter_than_asked_are_charged_as_asked():
    assert bound(FakeSum(np.ones(5), clip=0.5), TERMS).clip == TERMS.clip


# --- rounding


@given(vectors(1e6), st.integers(0, 24), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_rounding_stays_within_one_step(vector, bits, seed):
    rounded = round_to_grid(vector, bits, InsecureRng(seed))
    assert rounded.dtype == np.int64 and (np.abs(rounded - vector * 2.0**bits) < 1).all()


def test_rounding_is_right_on_average():
    fractions = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.999])
    draws = 40_000
    for sign in (1, -1):
        many = np.repeat(sign * fractions, draws)
        rounded = round_to_grid(many, 0, InsecureRng(7)).reshape(len(fractions), draws)
        error = np.abs(rounded.mean(axis=1) - sign * fractions)
        assert (error <= 5 * np.sqrt(fractions * (1 - fractions) / draws)).all()


def test_what_is_on_the_grid_is_not_rounded():
    exact = np.array([-3.0, -0.5, 0.0, 0.25, 7.0])
    assert np.array_equal(round_to_grid(exact, 2, InsecureRng(1)), exact * 4)


@given(vectors(8.0, 40), vectors(1.0, 40), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_rounded_neighbours_differ_by_no_more_than_is_charged(vector, record, seed):
    record = record / max(1.0, float(np.linalg.norm(record)))
    coins = [round_to_grid(v, 8, InsecureRng(seed)) for v in (vector, vector + record)]
    assert np.linalg.norm(coins[0] - coins[1]) <= 2**8 + np.sqrt(40) + 1e-6


def test_a_coordinate_of_63_bits_is_refused():
    assert round_to_grid(np.array([2.0**61]), 0, InsecureRng(1))[0] == 2**61
    with pytest.raises(Overflow, match="coarser"):
        round_to_grid(np.array([2.0**62]), 0, InsecureRng(1))
    assert len(round_to_grid(np.zeros(0), 8, InsecureRng(1))) == 0


# --- noise


def noise_of(seed: int, dimension: int = 20_000, variance: int = 1 << 16) -> np.ndarray:
    terms = replace(TERMS, local_variance=variance)
    return add_noise(bound(FakeSum(np.zeros(dimension)), terms), terms, InsecureRng(seed)).values


@pytest.mark.parametrize("variance", [4, 1000, 1 << 16, 1 << 40])
def test_a_zero_update_is_noise_of_exactly_the_variance_agreed(variance):
    noise = noise_of(5, variance=variance).astype(np.float64)
    spread = 4 * np.sqrt(2 / len(noise))
    assert abs(np.mean(noise**2) / variance - 1) < spread
    assert abs(np.mean(noise)) < 4 * np.sqrt(variance / len(noise))


def test_one_clients_noise_is_new_in_every_round():
    rng, zero = InsecureRng(3), bound(FakeSum(np.zeros(20_000)), TERMS)
    first, second = (add_noise(zero, TERMS, rng).values.astype(float) for _ in range(2))
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(len(first))


def test_noise_is_added_to_the_rounded_sum_and_not_in_its_place():
    vector = np.full(20_000, 0.05)
    noised = add_noise(Bounded(vector, 1.0, 8), TERMS, InsecureRng(4))
    assert noised.values.dtype == np.int64
    expected = 0.05 * 2**TERMS.grid_bits
    assert abs(noised.values.mean() - expected) < 4 * 256 / np.sqrt(len(vector))
    assert (noised.clip, noised.grid_bits, noised.variance) == (1.0, 8, 1 << 16)


# --- seal


def a_spec(dimension: int = 5) -> RoundSpec:
    size = Size(dimension=dimension)
    return RoundSpec(TASK, 1, 1, bytes(32), bytes(32), bytes(32), TERMS, size.sum_params())


def sealed(noised, spec):
    return seal(noised, spec, InsecureSealer(spec.sum_params), InsecureRng(1))


def test_a_sealed_update_is_bound_to_its_round():
    spec = a_spec()
    done = sealed(add_noise(bound(FakeSum(np.ones(5)), TERMS), TERMS, InsecureRng(2)), spec)
    assert done.spec_digest == spec.digest() and len(done.sealing.payload) == spec.sum_params.payload_bytes


@pytest.mark.parametrize("change", [{"clip": 2.0}, {"grid_bits": 9}, {"local_variance": 1}])
def test_an_update_made_under_other_terms_is_not_sealed(change):
    terms = replace(TERMS, **change)
    noised = add_noise(bound(FakeSum(np.ones(5)), terms), terms, InsecureRng(2))
    with pytest.raises(ValueError, match="other terms"):
        sealed(noised, a_spec())


@pytest.mark.parametrize("shape", [(4,), (6,), (5, 1), ()])
def test_another_shape_is_not_sealed(shape):
    values = np.zeros(shape, dtype=np.int64)
    with pytest.raises(ValueError, match="sum of 5"):
        sealed(Noised(values, TERMS.clip, TERMS.grid_bits, TERMS.local_variance), a_spec())


def test_a_value_out_of_bound_is_an_overflow_and_is_not_clamped():
    spec = a_spec()
    for value in (spec.sum_params.value_bound + 1, -spec.sum_params.value_bound - 1):
        values = np.array([0, 0, value, 0, 0])
        with pytest.raises(Overflow):
            sealed(Noised(values, TERMS.clip, TERMS.grid_bits, TERMS.local_variance), spec)


PATH = """
from fednode.protocol.spec import RoundSpec
from fednode_clients.client.privatise import ClippedSum, add_noise, bound, seal
from fednode_crypto import Rng
from fednode_crypto.interfaces import Sealer


def send(total: ClippedSum, spec: RoundSpec, sealer: Sealer, rng: Rng) -> bytes:
    bounded = bound(total, spec.terms)
    return seal({sent}, spec, sealer, rng).sealing.payload
"""


def test_a_path_that_skips_the_noise_or_the_bound_does_not_type_check(tmp_path):
    from mypy import api

    root = Path(__file__).parents[2]
    files = []
    for name, sent in (
        ("whole", "add_noise(bounded, spec.terms, rng)"),
        ("no_noise", "bounded"),
        ("no_bound", "add_noise(total, spec.terms, rng)"),
        ("nothing", "total"),
    ):
        files.append(tmp_path / f"{name}.py")
        files[-1].write_text(PATH.format(sent=sent))
    report, _, _ = api.run(["--config-file", str(root / "pyproject.toml"), *map(str, files)])
    wrong = {line.split(".py")[0].rpartition("/")[2]: line for line in report.splitlines() if ": error:" in line}
    assert set(wrong) == {"no_noise", "no_bound", "nothing"}
    assert all("[arg-type]" in line for line in wrong.values())


# --- rotation


def rotated(**changes):
    return replace(a_spec(), terms=replace(TERMS, rotated=True, **changes))


@given(vectors(1e6, size=40), st.integers(1, 999))
@settings(max_examples=100, deadline=None)
def test_a_flattened_sum_is_never_longer_than_its_records_allow(vector, number):
    spec = replace(rotated(), round=number)
    flat = flattened(bound(FakeSum(vector), spec.terms), spec)
    assert np.linalg.norm(flat.vector) <= LIMIT
    assert np.abs(flat.vector).max() <= coordinate_limit(spec.terms, 40)


@given(vectors(30.0, size=40), vectors(1.0, size=40))
@settings(max_examples=100, deadline=None)
def test_one_record_moves_the_flattened_sum_by_at_most_the_clip(vector, record):
    record, spec = record / max(1.0, float(np.linalg.norm(record))), rotated()
    with_it, without = (flattened(bound(FakeSum(v), spec.terms), spec).vector for v in (vector + record, vector))
    assert np.linalg.norm(with_it - without) <= TERMS.clip * (1 + 1e-12)


def test_a_flattened_spike_needs_an_eighth_of_the_room_and_comes_back_whole():
    spec, spike = rotated(), np.zeros(25_625)
    spike[25_600] = -LIMIT
    flat = flattened(bound(FakeSum(spike), spec.terms), spec)
    assert 7 * signal(spec.terms, 25_625) < signal(TERMS, 25_625)
    assert np.allclose(unrotate(flat.vector, spec.digest()), spike, atol=1e-10 * LIMIT)


def test_what_a_rotation_cannot_flatten_is_limited():
    spec = rotated()
    # the one sum that these public signs gather in one coordinate: no client can make it without the spec
    gathered = unrotate(np.eye(1, 4096, 7)[0] * LIMIT, spec.digest())
    flat = flattened(bound(FakeSum(gathered), spec.terms), spec)
    assert np.abs(flat.vector).max() == coordinate_limit(spec.terms, 4096) < LIMIT / 7


def test_terms_without_a_rotation_leave_the_sum_as_it_is():
    bounded = bound(FakeSum(np.ones(5)), TERMS)
    assert flattened(bounded, a_spec()) is bounded


@pytest.mark.parametrize("changes", [{"rotated": 1}, {"rotated": True, "max_records": (1 << 16) + 1}])
def test_a_rotation_with_more_records_than_floats_carry_is_refused(changes):
    with pytest.raises(ValueError, match="rotated"):
        replace(TERMS, **changes)
