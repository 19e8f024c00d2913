"""What every `SumScheme` must do: subclass `KeyedContract` or `BoxedContract`, say which scheme, which parameters."""

import copy
import pickle
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from kit.crypto.committee import (
    CHALLENGE,
    CONTEXT,
    TASK,
    Committee,
    KeyedCommittee,
    committee,
    flipped,
    keyed,
    updates_for,
)
from kit.crypto.insecure import InsecureRng
from numpy.typing import NDArray

from fednode_crypto import (
    BoxedScheme,
    KeyedScheme,
    NotEnoughShares,
    Overflow,
    SealedSum,
    Sealing,
    SumParams,
    SumScheme,
    Tampered,
    WrongAnswer,
)


def random_round(data: st.DataObject, everyone: Committee, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What any enough holders open of any survivors among `most` clients, added in any order, and the plain sum."""
    params, clients = everyone.params, data.draw(st.integers(1, most))
    updates = updates_for(params, clients, data.draw(st.integers(0, 2**32)))
    survivors = sorted(data.draw(st.sets(st.integers(0, clients - 1), min_size=1)))
    sealings = everyone.sealed(updates)
    order = [sealings[i] for i in data.draw(st.permutations(survivors))]
    cut = data.draw(st.integers(0, len(order)))
    total = everyone.summed(order[:cut]).merge(everyone.summed(order[cut:]))
    chosen = data.draw(st.permutations(range(1, params.holders + 1)))
    answers = everyone.answers(total, [sealings[i] for i in survivors])
    enough = chosen[: data.draw(st.integers(params.threshold, params.holders))]
    opened = everyone.combine(total, {point: answers[point] for point in enough})
    return opened, sum((updates[i] for i in survivors), np.zeros(params.dimension, dtype=np.int64))


class SchemeContract:
    """Set `scheme` and `params` (at least 4 summands, threshold below holders, threshold >= 2)."""

    scheme: SumScheme
    params: SumParams

    @pytest.fixture(scope="class")
    @classmethod
    def all_of_them(cls) -> Committee:
        return committee(cls.scheme, cls.params)

    @pytest.fixture(scope="class")
    @classmethod
    def updates(cls) -> list[NDArray[np.int64]]:
        return updates_for(cls.params, 3, seed=5)

    @pytest.fixture(scope="class")
    @classmethod
    def sealings(cls, all_of_them: Committee, updates: list[NDArray[np.int64]]) -> list[Sealing]:
        return all_of_them.sealed(updates)

    @pytest.fixture(scope="class")
    @classmethod
    def total(cls, all_of_them: Committee, sealings: list[Sealing]) -> SealedSum:
        return all_of_them.summed(sealings)

    @pytest.fixture(scope="class")
    @classmethod
    def answers(cls, all_of_them: Committee, total: SealedSum, sealings: list[Sealing]) -> dict[int, bytes]:
        return all_of_them.answers(total, sealings)

    @pytest.fixture(scope="class")
    @classmethod
    def other_answers(cls, all_of_them: Committee, sealings: list[Sealing]) -> dict[int, bytes]:
        """Answers that open the sum of the first two."""
        return all_of_them.answers(all_of_them.summed(sealings[:2]), sealings[:2])

    def few(self, answers: Mapping[int, bytes]) -> dict[int, bytes]:
        return dict(list(answers.items())[: self.params.threshold])

    def test_every_threshold_of_holders_opens_the_exact_sum(self, all_of_them, total, answers, updates) -> None:
        for chosen in combinations(answers, self.params.threshold):
            opened = all_of_them.combine(total, {p: answers[p] for p in chosen})
            assert opened.dtype == np.int64
            assert np.array_equal(opened, sum(updates))
        assert np.array_equal(all_of_them.combine(total, answers), sum(updates))

    def test_everything_that_travels_has_the_announced_size(self, total, answers, sealings) -> None:
        params = self.params
        assert {len(s.payload) for s in sealings} == {params.payload_bytes}
        assert {len(share) for s in sealings for share in s.shares.values()} <= {params.share_bytes}
        assert {len(s.check(CHALLENGE)) for s in sealings} == {params.check_bytes}
        assert (params.check_bytes > 0) == self.scheme.boxed
        assert len(total.request()) == params.request_bytes
        assert {len(a) for a in answers.values()} == {params.answer_bytes}
        points = set(range(1, params.holders + 1)) if self.scheme.boxed else set()
        assert all(set(s.shares) == points for s in sealings)
        assert (params.upload_bytes > params.payload_bytes) == self.scheme.boxed

    def test_order_and_grouping_do_not_show(self, all_of_them, total, sealings) -> None:
        backwards = all_of_them.summed(sealings[::-1])
        merged = all_of_them.summed(sealings[2:]).merge(all_of_them.summed(sealings[:2]))
        assert backwards.to_bytes() == merged.to_bytes() == total.to_bytes()
        assert total.merge(self.scheme.zero(self.params)).to_bytes() == total.to_bytes()

    def test_absorbing_changes_this_sum_and_adding_does_not(self, total, sealings) -> None:
        mine = self.scheme.zero(self.params)
        for sealing in sealings:
            before = mine.to_bytes()
            grown = mine.add(sealing.payload)
            assert mine.to_bytes() == before
            assert mine.absorb(sealing.payload) is None
            assert mine.to_bytes() == grown.to_bytes() != before
        assert mine.to_bytes() == total.to_bytes()
        assert mine.count == 3

    def test_refused_payload_changes_nothing(self, all_of_them, sealings) -> None:
        mine = all_of_them.summed(sealings[:1])
        before = mine.to_bytes()
        for bad in (b"", sealings[1].payload[:-1], sealings[1].payload + b"\0"):
            with pytest.raises(Tampered):
                mine.absorb(bad)
        assert mine.to_bytes() == before

    def test_subtracting_undoes_adding(self, all_of_them, total, sealings) -> None:
        assert total.subtract(sealings[0].payload).to_bytes() == all_of_them.summed(sealings[1:]).to_bytes()
        assert total.count == 3
        with pytest.raises(ValueError):
            self.scheme.zero(self.params).subtract(sealings[0].payload)

    def test_checkpoint_restores_the_same_sum(self, total) -> None:
        restored = self.scheme.restore_sum(self.params, total.to_bytes())
        assert restored.to_bytes() == total.to_bytes()
        assert restored.count == total.count
        for bad in (b"", total.to_bytes()[:-1], total.to_bytes() + b"\0"):
            with pytest.raises(Tampered):
                self.scheme.restore_sum(self.params, bad)

    def test_checkpoint_with_any_bit_flipped_is_refused(self, total) -> None:
        whole = total.to_bytes()
        head, last = range(80), range(len(whole) - 40, len(whole))
        places = [*head, *last, *np.random.default_rng(4).integers(0, len(whole), 40).tolist()]
        for at in places:
            with pytest.raises(Tampered):
                self.scheme.restore_sum(self.params, flipped(whole, 8 * at + at % 8))

    def test_value_out_of_bound_is_refused_and_the_bound_itself_is_not(self, all_of_them) -> None:
        values = np.full(self.params.dimension, self.params.value_bound)
        sealed = all_of_them.sealer.seal(values, InsecureRng(1), CONTEXT)
        assert len(sealed.payload) == self.params.payload_bytes
        for bad in (self.params.value_bound + 1, -self.params.value_bound - 1, np.iinfo(np.int64).min):
            values = np.zeros(self.params.dimension, dtype=np.int64)
            values[-1] = bad
            with pytest.raises(Overflow):
                all_of_them.sealer.seal(values, InsecureRng(1), CONTEXT)

    def test_sum_beyond_the_bound_is_not_returned(self, all_of_them) -> None:
        bound = self.params.value_bound
        with pytest.raises(Tampered):
            all_of_them.opened(all_of_them.sealed([np.full(self.params.dimension, v) for v in (bound, bound // 4)]))

    def test_only_int64_vectors_of_the_dimension_are_sealed(self, all_of_them) -> None:
        wrong: list[Any] = [
            np.zeros(self.params.dimension + 1, dtype=np.int64),
            np.zeros((1, self.params.dimension), dtype=np.int64),
            np.zeros(self.params.dimension),
            [0] * self.params.dimension,
        ]
        for values in wrong:
            with pytest.raises(ValueError, match="int64"):
                all_of_them.sealer.seal(values, InsecureRng(1), CONTEXT)

    def test_strided_values_are_sealed_as_they_read(self, all_of_them) -> None:
        wide = np.arange(2 * self.params.dimension, dtype=np.int64)
        assert np.array_equal(all_of_them.opened(all_of_them.sealed([wide[::-2]])), wide[::-2])

    def test_sum_takes_no_more_payloads_than_planned(self, all_of_them, sealings) -> None:
        full = all_of_them.summed([sealings[0]] * self.params.summands)
        before = full.to_bytes()
        for adding in (full.add, full.absorb):
            with pytest.raises(Overflow):
                adding(sealings[0].payload)
        with pytest.raises(Overflow):
            full.merge(all_of_them.summed(sealings[:1]))
        assert full.to_bytes() == before

    def test_wrong_sizes_of_answers_are_named(self, all_of_them, total, answers) -> None:
        for bad in (b"", answers[1][:-8], answers[1] + bytes(8)):
            with pytest.raises(WrongAnswer) as caught:
                all_of_them.combine(total, {**answers, 1: bad})
            assert caught.value.points == (1,)

    def test_each_answer_is_checked_by_itself(self, answers, other_answers) -> None:
        for good in (*answers.values(), *other_answers.values()):
            assert self.scheme.check_answer(self.params, good) is None
        for bad in (b"", answers[1][:-1], answers[1][:-8], answers[1] + bytes(8), "text"):
            with pytest.raises(Tampered):
                self.scheme.check_answer(self.params, bad)

    def test_nothing_opens_below_the_threshold(self, all_of_them, total, answers) -> None:
        one_short = dict(list(answers.items())[: self.params.threshold - 1])
        for too_few in ({}, one_short):
            with pytest.raises(NotEnoughShares):
                all_of_them.combine(total, too_few)

    def test_flipped_bit_in_an_answer_is_noticed_or_changes_nothing(self, all_of_them, total, answers, updates) -> None:
        rng, noticed = np.random.default_rng(3), 0
        for bit in rng.integers(0, 8 * self.params.answer_bytes, 20):
            try:
                bad = {**self.few(answers), 1: flipped(answers[1], int(bit))}
                assert np.array_equal(all_of_them.combine(total, bad), sum(updates))
            except Tampered:
                noticed += 1
        assert noticed >= 10

    def test_wrong_answer_among_enough_others_is_named(self, all_of_them, total, answers, other_answers) -> None:
        for liar in answers:
            with pytest.raises(WrongAnswer) as caught:
                all_of_them.combine(total, {**answers, liar: other_answers[liar]})
            assert caught.value.points == (liar,)

    def test_answers_for_another_sum_or_in_other_places_do_not_open(
        self, all_of_them, total, answers, other_answers
    ) -> None:
        swapped = {**answers, 1: answers[2], 2: answers[1]}
        junk = {p: InsecureRng(p).bytes(self.params.answer_bytes) for p in answers}
        empty = {p: bytes(self.params.answer_bytes) for p in answers}
        cases = (other_answers, self.few(other_answers), swapped, self.few(swapped), junk, self.few(junk), empty)
        for bad in cases:
            with pytest.raises(Tampered):
                all_of_them.combine(total, bad)
        with pytest.raises(Tampered):
            all_of_them.combine(total, {**answers, self.params.holders + 1: answers[1]})

    def test_empty_sum_has_nothing_to_open(self, all_of_them, answers) -> None:
        nothing = self.scheme.zero(self.params)
        with pytest.raises(ValueError):
            nothing.request()
        with pytest.raises(ValueError):
            all_of_them.combine(nothing, answers)

    def test_sealings_do_not_print_pickle_or_copy(self, sealings) -> None:
        check_is_secret(sealings[0])


def check_is_secret(secret: object) -> None:
    assert len(repr(secret)) < 100
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(secret)


class KeyedContract(SchemeContract):
    """Subclass as Test..., for a scheme with a joint key."""

    scheme: KeyedScheme

    @pytest.fixture(scope="class")
    @classmethod
    def all_of_them(cls) -> KeyedCommittee:
        return keyed(cls.scheme, cls.params)

    def test_sealer_needs_a_key(self) -> None:
        assert self.scheme.boxed is False
        with pytest.raises(ValueError, match="key"):
            self.scheme.sealer(self.params)

    def test_wrong_sizes_of_requests_are_refused(self, all_of_them, total) -> None:
        for bad in (b"", total.request()[:-8], total.request() + bytes(8)):
            with pytest.raises(Tampered):
                self.scheme.answer(self.params, all_of_them.shares[1], bad, InsecureRng(1))

    def test_joint_key_needs_every_holder_and_what_each_committed_to(self, all_of_them) -> None:
        reveals = {p: c.reveal() for p, c in all_of_them.contributions.items()}
        commitments = {p: c.commitment for p, c in all_of_them.contributions.items()}
        other = self.scheme.contribute(self.params, TASK, 2, InsecureRng(99))
        for bad in ({**reveals, 2: other.reveal()}, {**reveals, 2: flipped(reveals[2], 5)}, {**reveals, 2: reveals[1]}):
            with pytest.raises(Tampered):
                self.scheme.joint_key(self.params, TASK, bad, commitments)
        with pytest.raises(Tampered):
            self.scheme.joint_key(self.params, TASK, {**reveals, 2: reveals[1]}, {**commitments, 2: commitments[1]})
        with pytest.raises(Tampered):
            self.scheme.joint_key(self.params, TASK, {**reveals, 0: reveals[1]}, commitments)
        with pytest.raises(Tampered):
            self.scheme.joint_key(self.params, b"another task", reveals, commitments)
        with pytest.raises(NotEnoughShares):
            self.scheme.joint_key(self.params, TASK, {p: r for p, r in reveals.items() if p != 2}, commitments)

    def test_holder_needs_a_share_from_every_holder(self, all_of_them) -> None:
        shares = {j: c.shares()[1] for j, c in all_of_them.contributions.items()}
        with pytest.raises(NotEnoughShares):
            self.scheme.join(self.params, TASK, {j: s for j, s in shares.items() if j != 2})
        for bad in ({**shares, 2: b""}, {**shares, 2: shares[2] + b"\0"}, {**shares, 0: shares[1]}):
            with pytest.raises(Tampered):
                self.scheme.join(self.params, TASK, bad)

    def test_keys_and_secrets_survive_a_restart(self, all_of_them, total, answers, updates) -> None:
        kept = all_of_them.contributions[2]
        restored = self.scheme.restore_contribution(self.params, TASK, kept.private_bytes())
        assert (restored.commitment, restored.reveal(), restored.shares()) == (
            kept.commitment,
            kept.reveal(),
            kept.shares(),
        )
        share = self.scheme.restore_share(self.params, TASK, all_of_them.shares[1].private_bytes())
        again = self.scheme.answer(self.params, share, total.request(), InsecureRng(5))
        assert np.array_equal(all_of_them.combine(total, {**answers, 1: again}), sum(updates))

    def test_stored_secrets_of_another_task_are_refused(self, all_of_them) -> None:
        share, kept = all_of_them.shares[1].private_bytes(), all_of_them.contributions[1].private_bytes()
        for task, bad in ((b"another", share), (TASK, share[:-1]), (TASK, b"")):
            with pytest.raises(Tampered):
                self.scheme.restore_share(self.params, task, bad)
        for task, bad in ((b"another", kept), (TASK, kept[:-1]), (TASK, b"")):
            with pytest.raises(Tampered):
                self.scheme.restore_contribution(self.params, task, bad)

    def test_secrets_do_not_print_pickle_or_copy(self, all_of_them) -> None:
        check_is_secret(all_of_them.shares[1])
        check_is_secret(all_of_them.contributions[1])

    def test_contribution_needs_a_point_of_the_committee(self) -> None:
        for point in (0, -1, self.params.holders + 1):
            with pytest.raises(ValueError, match="point"):
                self.scheme.contribute(self.params, TASK, point, InsecureRng(1))


class BoxedContract(SchemeContract):
    """Subclass as Test..., for a scheme whose clients share their own masks."""

    scheme: BoxedScheme

    def test_there_is_no_key(self) -> None:
        assert self.scheme.boxed is True
        with pytest.raises(ValueError, match="key"):
            self.scheme.sealer(self.params, object())

    def test_two_seals_of_the_same_values_have_nothing_in_common(self, all_of_them, updates) -> None:
        rng = InsecureRng(7)
        first, second = (all_of_them.sealer.seal(updates[0], rng, CONTEXT) for _ in range(2))
        assert first.payload != second.payload
        assert all(first.shares[p] != second.shares[p] for p in first.shares)

    def test_context_is_needed_and_another_one_does_not_open(self, all_of_them, total, answers, updates) -> None:
        with pytest.raises(ValueError, match="context"):
            all_of_them.sealer.seal(updates[0], InsecureRng(1))
        with pytest.raises(ValueError, match="context"):
            self.scheme.combine(self.params, total, answers)
        with pytest.raises(Tampered):
            self.scheme.combine(self.params, total, answers, b"task 7, round 4")

    def test_shares_of_another_size_are_refused(self, sealings) -> None:
        good, check = sealings[0].shares[1], sealings[0].check(CHALLENGE)
        for bad in (b"", good[:-1], good + b"\0"):
            with pytest.raises(Tampered):
                self.scheme.check_share(self.params, bad, 1, CHALLENGE, check)
            with pytest.raises(Tampered):
                self.scheme.answer(self.params, [good, bad])

    def test_every_share_passes_its_clients_check(self, sealings) -> None:
        for sealing in sealings:
            check = sealing.check(CHALLENGE)
            assert (len(check), sealing.check(CHALLENGE)) == (self.params.check_bytes, check)
            for point, share in sealing.shares.items():
                assert self.scheme.check_share(self.params, share, point, CHALLENGE, check) is None

    def test_share_of_another_point_client_challenge_or_check_is_refused(self, sealings) -> None:
        share, check = sealings[0].shares[1], sealings[0].check(CHALLENGE)
        for bad in (
            (sealings[0].shares[2], 1, CHALLENGE, check),
            (sealings[1].shares[1], 1, CHALLENGE, check),
            (flipped(share, 0), 1, CHALLENGE, check),
            (share, 2, CHALLENGE, check),
            (share, 1, CHALLENGE[::-1], check),
            (share, 1, CHALLENGE, sealings[1].check(CHALLENGE)),
            (share, 1, CHALLENGE, flipped(check, 0)),
            *((share, 1, CHALLENGE, size) for size in (b"", check[:-1], check + b"\0")),
        ):
            with pytest.raises(Tampered):
                self.scheme.check_share(self.params, *bad)

    def test_a_sealing_answers_one_challenge(self, all_of_them, updates) -> None:
        sealing = all_of_them.sealer.seal(updates[0], InsecureRng(9), CONTEXT)
        check_is_secret(sealing)
        check_is_secret(sealing.check.__self__)
        check = sealing.check(CHALLENGE)
        with pytest.raises(ValueError, match="challenge"):
            sealing.check(CHALLENGE[::-1])
        assert sealing.check(CHALLENGE) == check

    def test_holder_answers_a_roster_in_any_order_that_is_neither_empty_nor_too_long(self, sealings, answers) -> None:
        shares = [s.shares[1] for s in sealings]
        assert self.scheme.answer(self.params, iter(shares[::-1])) == answers[1]
        assert self.scheme.answer(self.params, [*shares, shares[0]]) != answers[1]
        with pytest.raises(ValueError):
            self.scheme.answer(self.params, [])
        with pytest.raises(Overflow):
            self.scheme.answer(self.params, [shares[0]] * (self.params.summands + 1))

    def test_answers_for_a_roster_that_is_not_the_sums_do_not_open(self, all_of_them, total, sealings) -> None:
        for roster in (sealings[:2], [*sealings, sealings[0]], [sealings[0], sealings[1], sealings[1]]):
            with pytest.raises(WrongAnswer) as caught:
                all_of_them.combine(total, all_of_them.answers(total, roster))
            assert caught.value.points in ((), tuple(range(1, self.params.holders + 1)))
