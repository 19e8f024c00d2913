"""Scheme `ring` beyond the contract: the formula itself, exactness over everything that varies, forgeries rejected."""

import tracemalloc
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crypto.committee import CHALLENGE, CONTEXT, BoxedCommittee, updates_for
from kit.crypto.insecure import InsecureRng
from kit.crypto.plainsum import InsecureBoxedSum
from kit.crypto.scheme import random_round
from numpy.typing import NDArray

from fednode_crypto import (
    Demand,
    NotEnoughShares,
    Overflow,
    SystemRng,
    Tampered,
    WrongAnswer,
    WrongParameters,
    plan,
    scheme,
)
from fednode_crypto.encoding import from_bytes, to_bytes
from fednode_crypto.hazmat.ring import mask_block
from fednode_crypto.noise import discrete_gaussian
from fednode_crypto.ring.context import public_keys, ring_context
from fednode_crypto.ring.params import MASK_VARIANCE, RingParams
from fednode_crypto.ring.planner import candidates

RING = scheme("ring")
PARAMS = plan("ring", Demand(dimension=1_000, summands=6, value_bound=600_000, holders=5, threshold=4))
WIDE = replace(PARAMS, dimension=30_000, ring_degree=8192, lanes=3)
EVERYONE = BoxedCommittee(RING, PARAMS)


def schoolbook(a: NDArray[np.uint64], s: NDArray[np.int64], prime: int) -> list[int]:
    """a s mod (x^n + 1, prime), term by term; the halves of `a` keep every sum of products below 2^48."""
    halves = [
        np.convolve((a & np.uint64(2**28 - 1)).astype(np.int64), s),
        np.convolve((a >> np.uint64(28)).astype(np.int64), s),
    ]
    whole = [int(low) + (int(high) << 28) for low, high in zip(*halves, strict=True)]
    return [(low - high) % prime for low, high in zip(whole[: len(a)], [*whole[len(a) :], 0], strict=True)]


def polynomials(payload: bytes, params: RingParams) -> NDArray[np.uint64]:
    return from_bytes(payload, ring_context(params).data, (params.blocks,))


@pytest.mark.parametrize("params", [PARAMS, WIDE], ids=["two primes", "four primes"])
def test_payload_is_the_formula(params: RingParams) -> None:
    values = updates_for(params, 1, seed=3)[0]
    payload = RING.sealer(params).seal(values, InsecureRng(8), CONTEXT).payload
    rng, n, block = InsecureRng(8), params.ring_degree, params.blocks - 1
    secret = discrete_gaussian(MASK_VARIANCE, n, rng)
    error = discrete_gaussian(MASK_VARIANCE, params.blocks * n, rng)[block * n :]
    lanes = np.zeros(params.lanes * params.blocks * n, dtype=object)
    lanes[: params.dimension] = values
    packed = [0] * n
    for i, lane in enumerate(lanes.reshape(params.lanes, params.blocks, n)[:, block]):
        packed = [m + (int(v) << (params.lane_bits * i + params.shift)) for m, v in zip(packed, lane, strict=True)]
    a = mask_block(public_keys(params, CONTEXT), block, ring_context(params).data)
    ring_context(params).data.inverse(a)
    for row, found, p in zip(a, polynomials(payload, params)[block], params.primes, strict=True):
        masked = schoolbook(row, secret, p)
        assert found.tolist() == [(c + int(e) + m) % p for c, e, m in zip(masked, error, packed, strict=True)]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_opened_sum_is_the_plain_sum(data: st.DataObject) -> None:
    holders, threshold = data.draw(st.sampled_from([(5, 4), (3, 2), (1, 1), (7, 3)]))
    bound = data.draw(st.sampled_from([5, 300, 600_000, 406_872_060, 2**58]))
    dimension = data.draw(st.one_of(st.integers(1, 300), st.integers(1, 300), st.integers(1, 9_000)))
    summands = data.draw(st.sampled_from([6, 1000]))
    params = data.draw(st.sampled_from(list(candidates(Demand(dimension, summands, bound, holders, threshold)))))
    opened, expected = random_round(data, BoxedCommittee(RING, params), most=4)
    assert np.array_equal(opened, expected)


@pytest.mark.parametrize("params", [PARAMS, WIDE, replace(PARAMS, value_bound=2**20 - 1)])
def test_largest_sums_open_in_every_lane(params: RingParams) -> None:
    everyone = BoxedCommittee(RING, params)
    for value in (params.value_bound, -params.value_bound):
        values = np.full(params.dimension, value)
        assert np.array_equal(everyone.opened(everyone.sealed([values])), values)


def test_absorbing_does_not_allocate() -> None:
    params = plan("ring", Demand(1_000_000, 100, 204_800, 5, 4))
    total, payload = RING.zero(params), bytes(params.payload_bytes)
    total.absorb(payload)
    tracemalloc.start()
    total.absorb(payload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000


# what protects: the mask


def test_public_polynomials_have_nothing_in_common() -> None:
    known = ring_context(PARAMS).data
    keys = public_keys(PARAMS, CONTEXT)
    first = mask_block(keys, 0, known)
    assert np.array_equal(first, mask_block(keys, 0, known))
    assert (first < known.q[:, None]).all()
    others = [
        mask_block(keys, 1, known)[0],
        mask_block(public_keys(PARAMS, b"another round"), 0, known)[0],
        mask_block(public_keys(replace(PARAMS, summands=5), CONTEXT), 0, known)[0],
        first[1] % np.uint64(known.primes[0]),
    ]
    for other in others:
        assert np.count_nonzero(first[0] == other) == 0
    for row, p in zip(first, known.primes, strict=True):
        assert np.abs(np.bincount((row // np.uint64(p // 8 + 1)).astype(int), minlength=8) - 512).max() < 130


def test_payloads_look_uniform_and_two_of_the_same_values_differ_everywhere() -> None:
    values, rng = np.zeros(PARAMS.dimension, dtype=np.int64), SystemRng()
    sealings = [EVERYONE.sealer.seal(values, rng, CONTEXT) for _ in range(2)]
    first, second = (polynomials(s.payload, PARAMS) for s in sealings)
    known = ring_context(PARAMS).data
    for row, p in zip(first[0], known.primes, strict=True):
        assert np.abs(np.bincount((row // np.uint64(p // 8 + 1)).astype(int), minlength=8) - 512).max() < 130
    known.subtract(first, second)
    assert (np.minimum(first, known.q[:, None] - first) > 2**20).all()
    for point in (1, 5):
        shares = [from_bytes(s.shares[point], ring_context(PARAMS).masked) for s in sealings]
        assert np.count_nonzero(shares[0] == shares[1]) < 40


# what is checked: answers


@pytest.fixture(scope="module")
def full():
    sealings = EVERYONE.sealed(updates_for(PARAMS, 6, seed=2))
    total = EVERYONE.summed(sealings)
    return sealings, total, EVERYONE.answers(total, sealings)


EXPECTED = sum(updates_for(PARAMS, 6, seed=2))


def shifted(message: bytes, by: int, at: int = 4000) -> bytes:
    """The answer, or the share, with `by` added to one number."""
    known = ring_context(PARAMS)
    field = known.shares if len(message) == PARAMS.answer_bytes else known.masked
    words = from_bytes(message, field)
    words[0, at] = (int(words[0, at]) + by) % PARAMS.share_prime
    return to_bytes(words, field)


def test_too_few_answers_are_refused_and_nothing_stands_in_for_the_missing_one(full) -> None:
    _, total, answers = full
    few = {p: answers[p] for p in (1, 2, 4)}
    with pytest.raises(NotEnoughShares):
        EVERYONE.combine(total, few)
    junk = to_bytes(from_bytes(answers[3], ring_context(PARAMS).shares) // np.uint64(2), ring_context(PARAMS).shares)
    for forged in (bytes(PARAMS.answer_bytes), answers[1], junk, shifted(answers[5], 1), shifted(answers[5], -1, at=0)):
        with pytest.raises(WrongAnswer) as caught:
            EVERYONE.combine(total, {**few, 5: forged})
        assert caught.value.points == ()


def test_one_wrong_number_is_noticed_and_its_holder_named(full) -> None:
    _, total, answers = full
    for liar, by in ((1, 1), (3, -1), (5, 250)):
        with pytest.raises(WrongAnswer) as caught:
            EVERYONE.combine(total, {**answers, liar: shifted(answers[liar], by)})
        assert caught.value.points == (liar,)
        rest = {p: a for p, a in answers.items() if p != liar}
        assert np.array_equal(EVERYONE.combine(total, rest), EXPECTED)


def test_any_threshold_of_right_answers_names_all_others() -> None:
    params = plan("ring", Demand(dimension=100, summands=6, value_bound=600, holders=7, threshold=3))
    everyone = BoxedCommittee(RING, params)
    sealings = everyone.sealed(updates_for(params, 3, seed=1))
    total = everyone.summed(sealings)
    right, other = everyone.answers(total, sealings), everyone.answers(total, sealings[:2])
    for liars in (*combinations(range(1, 8), 4), (2,), (1, 7)):
        with pytest.raises(WrongAnswer) as caught:
            everyone.combine(total, {p: other[p] if p in liars else right[p] for p in right})
        # four that agree on another roster do not open this sum
        assert caught.value.points == liars


def test_two_wrong_answers_of_five_are_noticed_and_nobody_is_blamed(full) -> None:
    _, total, answers = full
    with pytest.raises(WrongAnswer) as caught:
        EVERYONE.combine(total, {**answers, 1: shifted(answers[1], 3), 2: shifted(answers[2], 4)})
    assert caught.value.points == ()


def test_liars_who_undo_each_other_have_another_named_but_open_nothing_wrong(full) -> None:
    # the weights of 1 and 2 among (1, 2, 4, 5) are 10/3 and -10/3
    _, total, answers = full
    lying = {**answers, 1: shifted(answers[1], 3), 2: shifted(answers[2], 3)}
    with pytest.raises(WrongAnswer) as caught:
        EVERYONE.combine(total, lying)
    assert caught.value.points == (3,)
    assert np.array_equal(EVERYONE.combine(total, {p: a for p, a in lying.items() if p != 3}), EXPECTED)


# what is checked: clients


def test_one_share_unlike_the_others_costs_its_holder_and_not_the_sum(full) -> None:
    sealings, total, answers = full
    wrong = [s.shares[2] for s in sealings[1:]] + [shifted(sealings[0].shares[2], 7)]
    answers = {**answers, 2: RING.answer(PARAMS, wrong)}
    with pytest.raises(WrongAnswer) as caught:
        EVERYONE.combine(total, answers)
    assert caught.value.points == (2,)
    assert np.array_equal(EVERYONE.combine(total, {p: a for p, a in answers.items() if p != 2}), EXPECTED)


def test_shares_of_another_mask_are_noticed_and_the_message_says_what_can_be_wrong(full) -> None:
    sealings, total, _ = full
    stranger = EVERYONE.sealer.seal(np.zeros(1_000, dtype=np.int64), InsecureRng(99), CONTEXT)
    answers = EVERYONE.answers(total, [*sealings[:5], stranger])
    with pytest.raises(WrongAnswer, match="agree") as caught:
        EVERYONE.combine(total, answers)
    assert caught.value.points == ()
    with pytest.raises(WrongAnswer):
        EVERYONE.combine(total, {p: answers[p] for p in (1, 2, 3, 4)})


def test_numbers_out_of_range_are_refused_everywhere_and_change_nothing(full) -> None:
    sealings, _, answers = full
    total = EVERYONE.summed(sealings[:1])
    before = total.to_bytes()
    for k, p in enumerate(PARAMS.primes):
        words = polynomials(sealings[1].payload, PARAMS)
        words[0, k, 4095] = p
        bad = to_bytes(words, ring_context(PARAMS).data)
        for verb in (total.absorb, total.add, total.subtract):
            with pytest.raises(Tampered, match="range"):
                verb(bad)
    assert total.to_bytes() == before
    field = ring_context(PARAMS).shares
    for value in (PARAMS.share_prime, 511):
        words = from_bytes(answers[3], field)
        words[0, 17] = value
        bad = to_bytes(words, field)
        share = bad + sealings[0].shares[3][PARAMS.answer_bytes :]
        with pytest.raises(Tampered, match="range"):
            RING.check_share(PARAMS, share, 3, CHALLENGE, sealings[0].check(CHALLENGE))
        with pytest.raises(Tampered, match="range"):
            RING.answer(PARAMS, [sealings[0].shares[1], share])
        with pytest.raises(WrongAnswer, match="holder 3") as caught:
            EVERYONE.combine(total, {**answers, 3: bad})
        assert caught.value.points == (3,)
        with pytest.raises(Tampered, match="range"):
            RING.check_answer(PARAMS, bad)


def test_honest_payload_of_another_context_or_client_does_not_pass_for_one(full) -> None:
    sealings, _, answers = full
    for payload in (
        sealings[1].payload,
        EVERYONE.sealer.seal(np.zeros(1_000, dtype=np.int64), InsecureRng(0), b"old").payload,
    ):
        total = EVERYONE.summed(sealings[1:])
        total.absorb(payload)
        with pytest.raises(Tampered):
            EVERYONE.combine(total, answers)


def test_junk_in_a_later_block_is_found_too() -> None:
    params = replace(WIDE, lanes=1)
    everyone = BoxedCommittee(RING, params)
    sealings = everyone.sealed(updates_for(params, 2, seed=4))
    words = from_bytes(sealings[0].payload, ring_context(params).data, (params.blocks,))
    words[3, 2, 5] ^= np.uint64(1 << 30)
    total = everyone.summed(sealings[1:])
    total.absorb(to_bytes(words, ring_context(params).data))
    with pytest.raises(Tampered, match="block 3"):
        everyone.combine(total, everyone.answers(total, sealings))


def test_objects_of_another_scheme_or_parameters_are_not_mixed_up(full) -> None:
    _, total, answers = full
    bfv = plan("bfv", Demand(1_000, 6, 600_000, 5, 4))
    checks = (lambda: RING.check_share(bfv, b"", 1, CHALLENGE, b""), lambda: RING.check_answer(bfv, b""))
    for verb in (lambda: RING.sealer(bfv), lambda: RING.zero(bfv), *checks):
        with pytest.raises(WrongParameters, match="'bfv'"):
            verb()
    with pytest.raises(ValueError, match="ring"):
        EVERYONE.combine(InsecureBoxedSum().zero(PARAMS), answers)
    other = replace(PARAMS, value_bound=500_000)
    with pytest.raises(ValueError, match="parameters"):
        RING.combine(other, total, answers, CONTEXT)
    with pytest.raises(ValueError, match="parameters"):
        total.merge(RING.zero(other))
    with pytest.raises(Tampered):
        RING.restore_sum(other, total.to_bytes())
    with pytest.raises(Overflow):
        RING.sealer(other).seal(np.full(1_000, 500_001), InsecureRng(1), CONTEXT)
