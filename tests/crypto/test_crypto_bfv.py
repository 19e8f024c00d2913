"""Scheme `bfv` beyond the contract: exactness over everything that varies, noise as planned, forgeries rejected."""

from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crypto.committee import TASK, KeyedCommittee, flipped, keyed, updates_for
from kit.crypto.insecure import InsecureRng
from kit.crypto.plainsum import InsecurePlainSum
from kit.crypto.scheme import random_round
from numpy.typing import NDArray

from fednode_crypto import Demand, SumParams, SystemRng, Tampered, WrongAnswer, WrongParameters, plan, scheme
from fednode_crypto.answers import read_answers
from fednode_crypto.bfv.context import bfv_context
from fednode_crypto.bfv.opening import BfvOpening
from fednode_crypto.encoding import from_bytes, to_bytes
from fednode_crypto.hazmat.lagrange import cleared, lagrange

BFV = scheme("bfv")
PARAMS = plan("bfv", Demand(dimension=1_000, summands=6, value_bound=600_000, holders=5, threshold=4))


def integers(residues: NDArray[np.uint64], params: SumParams) -> list[int]:
    """Centred integers mod q of the (r, n) residues, by the Chinese remainder theorem in Python."""
    primes = params.primes[:-1]
    q = prod(primes)
    weights = [q // p * pow(q // p, -1, p) for p in primes]
    values = [sum(w * int(v) for w, v in zip(weights, column, strict=True)) % q for column in residues.T]
    return [v - q if v > q // 2 else v for v in values]


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_opened_sum_is_the_plain_sum(data: st.DataObject) -> None:
    dimension = data.draw(st.one_of(st.integers(1, 300), st.integers(1, 9_000)))
    holders, threshold = data.draw(st.sampled_from([(5, 4), (3, 2), (1, 1)]))
    bound = data.draw(st.sampled_from([600_000, 406_872_060]))
    params = plan("bfv", Demand(dimension, 6, bound, holders, threshold))
    opened, expected = random_round(data, keyed(BFV, params), most=6)
    assert np.array_equal(opened, expected)


@pytest.fixture(scope="module")
def everyone() -> KeyedCommittee:
    return keyed(BFV, PARAMS)


@pytest.fixture(scope="module")
def full(everyone: KeyedCommittee):
    return everyone.summed(everyone.sealed(updates_for(PARAMS, 6, seed=2)))


def secret_of(everyone: KeyedCommittee) -> NDArray[np.uint64]:
    points = (1, 2, 3, 4)
    least, weights = cleared(lagrange(points))
    ring = bfv_context(PARAMS).data
    total = np.zeros((PARAMS.data_primes, PARAMS.ring_degree), dtype=np.uint64)
    for p, w in zip(points, weights, strict=True):
        ring.add_scaled(total, everyone.shares[p].words(PARAMS), w)
    assert least == 1
    return total


def test_noise_of_payloads_is_what_was_planned(everyone: KeyedCommittee, full) -> None:
    ring, secret = bfv_context(PARAMS).data, secret_of(everyone)
    phase = full.words[0, 1].copy()
    ring.forward(phase)
    ring.multiply(phase, secret)
    ring.inverse(phase)
    ring.add(phase, np.ascontiguousarray(full.words[0, 0]))
    q, t = prod(PARAMS.primes[:-1]), PARAMS.plain_modulus
    # t v mod q, centred, is t times the distance to the nearest multiple of q / t
    noise = [((2 * v * t + q) % (2 * q) - q) // (2 * t) for v in integers(phase, PARAMS)]
    largest = max(map(abs, noise))
    assert bfv_context(PARAMS).noise.payload / 200 < largest < bfv_context(PARAMS).noise.payload


def test_joint_secret_is_a_sum_of_ternaries(everyone: KeyedCommittee) -> None:
    secret = secret_of(everyone)
    bfv_context(PARAMS).data.inverse(secret)
    found = integers(secret, PARAMS)
    assert set(found) <= set(range(-5, 6))
    assert 2.5 < np.var(found) < 4.2


def test_answers_are_smudged_afresh_and_as_widely_as_planned(everyone: KeyedCommittee, full) -> None:
    ring, request = bfv_context(PARAMS).data, full.request()
    first, second = (
        from_bytes(BFV.answer(PARAMS, everyone.shares[1], request, SystemRng()), ring, (1,)) for _ in range(2)
    )
    ring.subtract(first, second)
    difference = np.array(integers(first[0], PARAMS), dtype=float)
    planned = (2 * bfv_context(PARAMS).noise.smudging) ** 0.5
    assert planned > 2**40 * bfv_context(PARAMS).noise.payload
    assert 0.95 < difference.std() / planned < 1.05


def test_forged_combination_of_too_few_answers_leaves_a_large_residual(everyone: KeyedCommittee, full) -> None:
    answers = read_answers(PARAMS, everyone.answers(full, []), bfv_context(PARAMS).data, (PARAMS.blocks,))
    opening = BfvOpening(bfv_context(PARAMS), full, answers)
    assert all(opening.residual_is_small(chosen) for chosen in combinations(answers, 4))
    for count in (1, 2, 3):
        assert not any(opening.residual_is_small(chosen) for chosen in combinations(answers, count))
    # an empty answer in the place of the missing fourth does not help either
    forged = {p: a for p, a in everyone.answers(full, []).items() if p <= 3}
    with pytest.raises(Tampered):
        BFV.combine(PARAMS, full, {**forged, 4: bytes(PARAMS.answer_bytes)})


def test_inconsistent_share_shows_at_the_first_opening_with_one_more_answer(everyone: KeyedCommittee, full) -> None:
    stranger = BFV.contribute(PARAMS, TASK, 3, InsecureRng(77))
    shares = {j: c.shares()[2] for j, c in everyone.contributions.items()}
    wrong = BFV.join(PARAMS, TASK, {**shares, 3: stranger.shares()[2]})
    answers = everyone.answers(full, [])
    answers[2] = BFV.answer(PARAMS, wrong, full.request(), InsecureRng(1))
    with pytest.raises(WrongAnswer) as caught:
        BFV.combine(PARAMS, full, answers)
    assert caught.value.points == (2,)
    rest = {p: a for p, a in answers.items() if p != 2}
    assert np.array_equal(BFV.combine(PARAMS, full, rest), sum(updates_for(PARAMS, 6, seed=2)))


def test_answers_that_cannot_all_be_right_name_nobody_when_it_does_not_show(everyone: KeyedCommittee, full) -> None:
    answers = everyone.answers(full, [])
    bad = {
        p: everyone.answers(everyone.summed(everyone.sealed([np.ones(1_000, dtype=np.int64)])), [])[p] for p in (1, 2)
    }
    with pytest.raises(WrongAnswer) as caught:
        BFV.combine(PARAMS, full, {**answers, **bad})
    assert caught.value.points == ()


def shifted(answer: bytes, by: int) -> bytes:
    """The answer with `by` added to one coefficient."""
    ring = bfv_context(PARAMS).data
    words = from_bytes(answer, ring, (1,))
    for row, p in enumerate(ring.primes):
        words[0, row, 4321] = (int(words[0, row, 4321]) + by) % p
    return to_bytes(words, ring)


def test_a_holder_that_moves_the_sum_is_not_believed_and_nobody_else_is_blamed() -> None:
    """A multiple of q / t in an answer leaves the residual small: it shows since the other answers contradict it."""
    # no room is left unused, since a number that stands where there is room would be noticed
    params = plan("bfv", Demand(dimension=6 * 8_192, summands=2, value_bound=600_000, holders=5, threshold=4))
    everyone = keyed(BFV, params)
    total = everyone.summed(everyone.sealed([np.arange(params.dimension, dtype=np.int64) % 7] * 2))
    answers = everyone.answers(total, [])
    honest, ring, t = BFV.combine(params, total, answers), bfv_context(params).data, params.plain_modulus
    # a constant polynomial is the same number in every slot; the weight of holder 1 and the scale are taken out
    least, weights = cleared(lagrange((1, 2, 3, 4)))
    moved = 5 * least * bfv_context(params).lift * pow(weights[0], -1, t) % t
    words = from_bytes(answers[1], ring, (params.blocks,))
    for row, p in enumerate(ring.primes):
        words[0, row, 0] = (int(words[0, row, 0]) + (prod(ring.primes) * moved + t // 2) // t) % p
    lying = {**answers, 1: to_bytes(words, ring)}
    with pytest.raises(WrongAnswer) as caught:
        BFV.combine(params, total, lying)
    assert caught.value.points == ()
    # control: with no answer to spare nothing contradicts it, and the sum is another one
    alone = BFV.combine(params, total, {p: lying[p] for p in (1, 2, 3, 4)})
    assert set(alone - honest) == {0, 5}


def test_one_wrong_coefficient_is_noticed_as_soon_as_it_exceeds_the_noise(everyone: KeyedCommittee, full) -> None:
    answers = dict(list(everyone.answers(full, []).items())[:4])
    q = prod(bfv_context(PARAMS).data.primes)
    gap, residual = q // PARAMS.plain_modulus, bfv_context(PARAMS).noise.residual
    # less than the smudging is smudging; a multiple of the gap has no residual, but no honest value either
    harmless, noticed = [1, residual >> 10], [3 * residual, gap // 2, gap, 12_345 * gap, q // 7]
    expected = sum(updates_for(PARAMS, 6, seed=2))
    for by in harmless:
        assert np.array_equal(BFV.combine(PARAMS, full, {**answers, 2: shifted(answers[2], by)}), expected)
    for by in noticed:
        with pytest.raises(Tampered):
            BFV.combine(PARAMS, full, {**answers, 2: shifted(answers[2], by)})


def test_stored_secrets_with_any_bit_flipped_are_refused(everyone: KeyedCommittee) -> None:
    rng = np.random.default_rng(6)
    stored = (
        (everyone.contributions[2].private_bytes(), BFV.restore_contribution),
        (everyone.shares[2].private_bytes(), BFV.restore_share),
    )
    for whole, restore in stored:
        restore(PARAMS, TASK, whole)
        for at in [*range(0, 80, 3), *range(len(whole) - 40, len(whole)), *rng.integers(0, len(whole), 40).tolist()]:
            with pytest.raises(Tampered):
                restore(PARAMS, TASK, flipped(whole, 8 * at + at % 8))


def test_residues_out_of_range_are_refused_everywhere(everyone: KeyedCommittee, full) -> None:
    ring = bfv_context(PARAMS).data
    payload = everyone.sealed(updates_for(PARAMS, 1, seed=1))[0].payload
    words = from_bytes(payload, ring, (1, 2))
    words[0, 1, 0, 17] = ring.primes[0]
    with pytest.raises(Tampered, match="range"):
        full.subtract(payload).add(to_bytes(words, ring))
    with pytest.raises(Tampered, match="range"):
        BFV.answer(PARAMS, everyone.shares[1], to_bytes(words[:, 1].copy(), ring), InsecureRng(1))
    answers = everyone.answers(full, [])
    with pytest.raises(WrongAnswer, match="holder 3") as caught:
        BFV.combine(PARAMS, full, {**answers, 3: to_bytes(words[:, 1].copy(), ring)})
    assert caught.value.points == (3,)
    with pytest.raises(Tampered, match="range"):
        BFV.check_answer(PARAMS, to_bytes(words[:, 1].copy(), ring))


def test_objects_of_another_scheme_or_task_are_not_mixed_up(everyone: KeyedCommittee, full) -> None:
    plain = keyed(InsecurePlainSum(), PARAMS)
    with pytest.raises(ValueError, match="bfv"):
        BFV.sealer(PARAMS, plain.key)
    with pytest.raises(ValueError, match="bfv"):
        BFV.answer(PARAMS, plain.shares[1], full.request(), InsecureRng(1))
    with pytest.raises(ValueError, match="bfv"):
        BFV.combine(PARAMS, InsecurePlainSum().zero(PARAMS), {})
    other = plan("bfv", Demand(dimension=1_000, summands=6, value_bound=500_000, holders=5, threshold=4))
    with pytest.raises(ValueError, match="parameters"):
        BFV.sealer(other, everyone.key)
    with pytest.raises(ValueError, match="parameters"):
        BFV.answer(other, everyone.shares[1], full.request(), InsecureRng(1))
    with pytest.raises(ValueError, match="parameters"):
        full.merge(BFV.zero(other))


def test_unknown_scheme_is_refused_by_name() -> None:
    with pytest.raises(WrongParameters, match="'ckks'"):
        scheme("ckks")
    with pytest.raises(WrongParameters, match="'ring'"):
        BFV.zero(plan("ring", Demand(1_000, 6, 600_000, 5, 4)))
