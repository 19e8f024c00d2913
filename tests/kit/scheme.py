"""What every `SumScheme` must do: subclass `SchemeContract` and say which scheme, under which parameters."""

import copy
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from kit.insecure import InsecureRng
from numpy.typing import NDArray

from fednode_crypto import NotEnoughShares, Overflow, SealedSum, SumParams, SumScheme, Tampered, WrongAnswer
from fednode_crypto.scheme import Contribution, HolderShare, JointKey, Sealer

TASK = b"task 7, cohort 1f"


@dataclass(frozen=True)
class Committee:
    """Everybody of one task in one place: what no real process ever holds."""

    scheme: SumScheme
    params: SumParams
    contributions: Mapping[int, Contribution]

    @cached_property
    def key(self) -> JointKey:
        reveals = {p: c.reveal() for p, c in self.contributions.items()}
        commitments = {p: c.commitment for p, c in self.contributions.items()}
        return self.scheme.joint_key(self.params, TASK, reveals, commitments)

    @cached_property
    def sealer(self) -> Sealer:
        return self.scheme.sealer(self.params, self.key)

    @cached_property
    def shares(self) -> Mapping[int, HolderShare]:
        return {
            p: self.scheme.join(self.params, TASK, {j: c.shares()[p] for j, c in self.contributions.items()})
            for p in self.contributions
        }

    def sealed(self, updates: Sequence[NDArray[np.int64]]) -> list[bytes]:
        return [self.sealer.seal(u, InsecureRng(i)) for i, u in enumerate(updates)]

    def summed(self, payloads: Sequence[bytes]) -> SealedSum:
        total = self.scheme.zero(self.params)
        for payload in payloads:
            total = total.add(payload)
        return total

    def answers(self, request: bytes) -> dict[int, bytes]:
        return {p: self.scheme.answer(self.params, s, request, InsecureRng(p)) for p, s in self.shares.items()}


@lru_cache(maxsize=32)
def committee(scheme: SumScheme, params: SumParams, seed: int = 1) -> Committee:
    points = range(1, params.holders + 1)
    return Committee(
        scheme, params, {p: scheme.contribute(params, TASK, p, InsecureRng(100 * seed + p)) for p in points}
    )


def updates_for(params: SumParams, clients: int, seed: int) -> list[NDArray[np.int64]]:
    """Updates whose sum stays within the bound; a tenth of the coordinates reach as far as they may."""
    rng = np.random.default_rng(seed)
    limit = params.value_bound // clients
    drawn = rng.integers(-limit, limit + 1, (clients, params.dimension))
    extreme = np.where(rng.random(params.dimension) < 0.5, limit, -limit)
    return list(np.where(rng.random(params.dimension) < 0.1, extreme, drawn).astype(np.int64))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)


class SchemeContract:
    """Subclass as Test...; set `scheme` and `params` (at least 4 summands, threshold below holders, threshold >= 2)."""

    scheme: SumScheme
    params: SumParams

    @pytest.fixture(scope="class")
    def all_of_them(self) -> Committee:
        return committee(self.scheme, self.params)

    @pytest.fixture(scope="class")
    def updates(self) -> list[NDArray[np.int64]]:
        return updates_for(self.params, 3, seed=5)

    @pytest.fixture(scope="class")
    def payloads(self, all_of_them: Committee, updates: list[NDArray[np.int64]]) -> list[bytes]:
        return all_of_them.sealed(updates)

    @pytest.fixture(scope="class")
    def total(self, all_of_them: Committee, payloads: list[bytes]) -> SealedSum:
        return all_of_them.summed(payloads)

    @pytest.fixture(scope="class")
    def answers(self, all_of_them: Committee, total: SealedSum) -> dict[int, bytes]:
        return all_of_them.answers(total.request())

    def few(self, answers: Mapping[int, bytes]) -> dict[int, bytes]:
        return dict(list(answers.items())[: self.params.threshold])

    def test_every_threshold_of_holders_opens_the_exact_sum(self, total, answers, updates) -> None:
        for chosen in combinations(answers, self.params.threshold):
            opened = self.scheme.combine(self.params, total, {p: answers[p] for p in chosen})
            assert opened.dtype == np.int64
            assert np.array_equal(opened, sum(updates))
        assert np.array_equal(self.scheme.combine(self.params, total, answers), sum(updates))

    def test_everything_that_travels_has_the_announced_size(self, total, answers, payloads) -> None:
        assert {len(p) for p in payloads} == {self.params.payload_bytes}
        assert len(total.request()) == self.params.request_bytes
        assert {len(a) for a in answers.values()} == {self.params.answer_bytes}

    def test_order_and_grouping_do_not_show(self, all_of_them, total, payloads) -> None:
        backwards = all_of_them.summed(payloads[::-1])
        merged = all_of_them.summed(payloads[2:]).merge(all_of_them.summed(payloads[:2]))
        assert backwards.to_bytes() == merged.to_bytes() == total.to_bytes()
        assert total.merge(self.scheme.zero(self.params)).to_bytes() == total.to_bytes()

    def test_subtracting_undoes_adding(self, all_of_them, total, payloads) -> None:
        assert total.subtract(payloads[0]).to_bytes() == all_of_them.summed(payloads[1:]).to_bytes()
        assert total.count == 3
        with pytest.raises(ValueError, match="subtract"):
            self.scheme.zero(self.params).subtract(payloads[0])

    def test_checkpoint_restores_the_same_sum(self, total) -> None:
        restored = self.scheme.restore_sum(self.params, total.to_bytes())
        assert restored.to_bytes() == total.to_bytes()
        assert restored.count == total.count
        for bad in (b"", total.to_bytes()[:-1], total.to_bytes() + b"\0", flipped(total.to_bytes(), 77)):
            with pytest.raises(Tampered):
                self.scheme.restore_sum(self.params, bad)

    def test_value_out_of_bound_is_refused_and_the_bound_itself_is_not(self, all_of_them) -> None:
        values = np.full(self.params.dimension, self.params.value_bound)
        assert len(all_of_them.sealer.seal(values, InsecureRng(1))) == self.params.payload_bytes
        for bad in (self.params.value_bound + 1, -self.params.value_bound - 1, np.iinfo(np.int64).min):
            values = np.zeros(self.params.dimension, dtype=np.int64)
            values[-1] = bad
            with pytest.raises(Overflow):
                all_of_them.sealer.seal(values, InsecureRng(1))

    def test_sum_beyond_the_bound_is_not_returned(self, all_of_them) -> None:
        bound = self.params.value_bound
        parts = all_of_them.sealed([np.full(self.params.dimension, v) for v in (bound, bound // 4)])
        total = all_of_them.summed(parts)
        with pytest.raises(Tampered):
            self.scheme.combine(self.params, total, all_of_them.answers(total.request()))

    def test_only_int64_vectors_of_the_dimension_are_sealed(self, all_of_them) -> None:
        wrong: list[Any] = [
            np.zeros(self.params.dimension + 1, dtype=np.int64),
            np.zeros((1, self.params.dimension), dtype=np.int64),
            np.zeros(self.params.dimension),
            [0] * self.params.dimension,
        ]
        for values in wrong:
            with pytest.raises(ValueError, match="int64"):
                all_of_them.sealer.seal(values, InsecureRng(1))

    def test_sum_takes_no_more_payloads_than_planned(self, all_of_them, payloads) -> None:
        full = all_of_them.summed([payloads[0]] * self.params.summands)
        with pytest.raises(Overflow):
            full.add(payloads[0])
        with pytest.raises(Overflow):
            full.merge(all_of_them.summed(payloads[:1]))

    def test_wrong_sizes_are_refused_everywhere(self, all_of_them, total, answers, payloads) -> None:
        for bad in (b"", b"junk", payloads[0][:-1], payloads[0] + b"\0"):
            with pytest.raises(Tampered):
                total.add(bad)
        share = all_of_them.shares[1]
        for bad in (b"", total.request()[:-8], total.request() + bytes(8)):
            with pytest.raises(Tampered):
                self.scheme.answer(self.params, share, bad, InsecureRng(1))
        for bad in (b"", answers[1][:-8], answers[1] + bytes(8)):
            with pytest.raises(WrongAnswer) as caught:
                self.scheme.combine(self.params, total, {**answers, 1: bad})
            assert caught.value.points == (1,)

    def test_nothing_opens_below_the_threshold(self, total, answers) -> None:
        one_short = dict(list(answers.items())[: self.params.threshold - 1])
        for too_few in ({}, one_short):
            with pytest.raises(NotEnoughShares):
                self.scheme.combine(self.params, total, too_few)

    def test_flipped_bit_in_an_answer_is_noticed_or_changes_nothing(self, total, answers, updates) -> None:
        rng, noticed = np.random.default_rng(3), 0
        for bit in rng.integers(0, 8 * self.params.answer_bytes, 20):
            try:
                bad = {**self.few(answers), 1: flipped(answers[1], int(bit))}
                assert np.array_equal(self.scheme.combine(self.params, total, bad), sum(updates))
            except Tampered:
                noticed += 1
        assert noticed >= 10

    def test_wrong_answer_among_enough_others_is_named(self, all_of_them, total, answers, payloads) -> None:
        other = all_of_them.answers(all_of_them.summed(payloads[:2]).request())
        for liar in answers:
            with pytest.raises(WrongAnswer) as caught:
                self.scheme.combine(self.params, total, {**answers, liar: other[liar]})
            assert caught.value.points == (liar,)

    def test_answers_to_another_request_or_in_other_places_do_not_open(
        self, all_of_them, total, answers, payloads
    ) -> None:
        other = all_of_them.answers(all_of_them.summed(payloads[:2]).request())
        swapped = {**answers, 1: answers[2], 2: answers[1]}
        junk = {p: InsecureRng(p).bytes(self.params.answer_bytes) for p in answers}
        empty = {p: bytes(self.params.answer_bytes) for p in answers}
        for bad in (other, self.few(other), swapped, self.few(swapped), junk, self.few(junk), empty):
            with pytest.raises(Tampered):
                self.scheme.combine(self.params, total, bad)
        with pytest.raises(Tampered):
            self.scheme.combine(self.params, total, {**answers, self.params.holders + 1: answers[1]})

    def test_empty_sum_has_nothing_to_open(self, answers) -> None:
        nothing = self.scheme.zero(self.params)
        with pytest.raises(ValueError, match="nothing"):
            nothing.request()
        with pytest.raises(ValueError, match="nothing"):
            self.scheme.combine(self.params, nothing, answers)

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
        key = self.scheme.restore_key(self.params, TASK, all_of_them.key.to_bytes())
        assert key.digest() == all_of_them.key.digest()
        assert self.scheme.restore_key(self.params, b"another", key.to_bytes()).digest() != key.digest()
        kept = all_of_them.contributions[2]
        restored = self.scheme.restore_contribution(self.params, TASK, kept.private_bytes())
        assert (restored.commitment, restored.reveal(), restored.shares()) == (
            kept.commitment,
            kept.reveal(),
            kept.shares(),
        )
        share = self.scheme.restore_share(self.params, TASK, all_of_them.shares[1].private_bytes())
        again = self.scheme.answer(self.params, share, total.request(), InsecureRng(5))
        assert np.array_equal(self.scheme.combine(self.params, total, {**answers, 1: again}), sum(updates))

    def test_stored_secrets_of_another_task_are_refused(self, all_of_them) -> None:
        share, kept = all_of_them.shares[1].private_bytes(), all_of_them.contributions[1].private_bytes()
        for task, bad in ((b"another", share), (TASK, share[:-1]), (TASK, b"")):
            with pytest.raises(Tampered):
                self.scheme.restore_share(self.params, task, bad)
        for task, bad in ((b"another", kept), (TASK, kept[:-1]), (TASK, b"")):
            with pytest.raises(Tampered):
                self.scheme.restore_contribution(self.params, task, bad)

    def test_secrets_do_not_print_pickle_or_copy(self, all_of_them) -> None:
        for secret in (all_of_them.shares[1], all_of_them.contributions[1]):
            assert len(repr(secret)) < 100
            for leak in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError):
                    leak(secret)

    def test_contribution_needs_a_point_of_the_committee(self) -> None:
        for point in (0, -1, self.params.holders + 1):
            with pytest.raises(ValueError, match="point"):
                self.scheme.contribute(self.params, TASK, point, InsecureRng(1))
