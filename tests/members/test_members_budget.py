"""A member's own epsilon over all tasks and rounds: what a round costs, when it refuses, what it never forgets."""

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from kit.cohort import TASK, FakeCohort, FakeSum, Size, wide_limits
from kit.history.judging import judge

from fednode.driver.steps.ceremony import agree_on_key
from fednode.errors import ConfigError, PeerFault
from fednode.privacy import DiscreteGaussianSum, epsilon
from fednode.protocol.headroom import release_failure
from fednode.protocol.model import model_digest
from fednode.protocol.requests import ask_frame
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode_clients.client.client import Client
from fednode_clients.keyfolder.retire import retire
from fednode_clients.keyfolder.spending import MemberSpending, raise_budget

SIZE = Size(clients=5, holders=2, dimension=4, min_survivors=5)
MODEL = {"w": np.zeros(4, dtype=np.float32)}
DELTA = 1e-5


class Member:
    """A client that took a task."""

    def __init__(self, root, **limits) -> None:
        self.kit = FakeCohort(root, SIZE, limits=wide_limits(max_epsilon=8.0, **limits))
        agreed = agree_on_key(self.kit.node(), self.kit.task())
        self.client.take_task(ask_frame("task", TASK, agreed.card.parts() | agreed.published.parts()))
        self.key, self.folder = agreed.key.digest(), self.kit.folder("client-1")

    @property
    def client(self) -> Client:
        return self.kit.client("client-1")

    def spec(self, number=1, **changes) -> RoundSpec:
        digests = (model_digest(MODEL), self.kit.cohort.digest(), self.key)
        return RoundSpec(TASK, number, 1, *digests, replace(SIZE.terms(), **changes), SIZE.sum_params())

    def reason(self, spec) -> str:
        """Why it does not join; "" if it does."""
        try:
            judge(self.client, spec)
        except PeerFault as fault:
            return fault.reason
        return ""

    def join(self, spec) -> None:
        assert self.reason(spec) == ""
        self.client.answer(spec, lambda: FakeSum(np.ones(4) / 2))

    def spend(self) -> int:
        """Join rounds until it refuses; returns how many it joined."""
        joined = 0
        while self.reason(self.spec(joined + 1)) == "":
            self.join(self.spec(joined + 1))
            joined += 1
        assert self.reason(self.spec(joined + 1)) == Reason.BUDGET
        return joined

    def costs(self) -> list[dict]:
        return [entry["cost"] for entry in self.folder.audit_log.entries() if "joined" in entry]


def event(contributors: int) -> DiscreteGaussianSum:
    return DiscreteGaussianSum(1.0, 8, 4, 1 << 16, contributors, release_failure(4, 5))


def rounds_within(limit: float, event: DiscreteGaussianSum) -> int:
    return next(n for n in range(1_000) if epsilon([event] * (n + 1), DELTA) > limit)


@pytest.fixture
def member(tmp_path):
    return Member(tmp_path)


def test_every_joined_round_stands_in_the_record_with_its_cost(member):
    member.join(member.spec())
    assert member.costs() == [event(4).to_dict()]


@pytest.mark.parametrize(("own", "of_the_task", "counted"), [(0, 0, 5), (0, 2, 3), (2, 1, 3), (1, 2, 3), (3, 0, 2)])
def test_noise_of_the_members_own_colluders_does_not_count(tmp_path, own, of_the_task, counted):
    member = Member(tmp_path, colluders=own, min_noise=0.0)
    member.join(member.spec(assumed_colluders=of_the_task))
    assert member.costs() == [event(counted).to_dict()]


@pytest.mark.parametrize(("own", "of_the_task"), [(4, 0), (0, 4), (9, 1)])
def test_a_round_that_leaves_it_alone_with_colluders_is_refused(tmp_path, own, of_the_task):
    member = Member(tmp_path, colluders=own, min_noise=0.0)
    assert member.reason(member.spec(assumed_colluders=of_the_task)) == "min-survivors"


def test_it_joins_as_many_rounds_as_fit_and_no_more_also_after_a_restart(member):
    most = rounds_within(8.0, event(4))
    assert member.spend() == most > 2
    member.kit.restart("client-1")
    assert member.reason(member.spec(most + 7)) == Reason.BUDGET
    # a cheaper round may still fit
    quiet = member.spec(most + 8, local_variance=1 << 17)
    assert epsilon([event(4)] * most + [replace(event(4), local_variance=1 << 17)], DELTA) < 8.0
    assert member.reason(quiet) == ""


def test_a_retry_of_a_joined_round_costs_nothing(member):
    most = member.spend()
    again = member.spec(most)
    assert isinstance(judge(member.client, again), bytes) and len(member.costs()) == most


def test_two_tasks_at_once_do_not_both_take_the_last_of_it(member):
    """Both were joined while there was room; the line is written under the folder's lock, once."""
    most = rounds_within(8.0, event(4))
    for number in range(1, most):
        member.join(member.spec(number))
    first, last = member.client, member.spec(most)
    assert member.reason(last) == ""
    member.folder.audit_log.append({"joined": "task-2", "round": 1, "cost": event(4).to_dict()})
    with pytest.raises(PeerFault) as refused:
        first.answer(last, FakeSum(np.zeros(4)))
    assert refused.value.reason == Reason.BUDGET
    assert len(member.costs()) == most


def test_a_raise_is_a_line_of_the_record_and_the_larger_limit_holds(member):
    most = member.spend()
    for below in (1.0, 7.99):
        with pytest.raises(ConfigError, match="the limit is 8"):
            raise_budget(member.folder, below, "less than the configuration", 8.0)
    assert member.reason(member.spec(most + 1)) == Reason.BUDGET
    raise_budget(member.folder, 16.0, "agreed on", 8.0)
    assert member.folder.audit_log.entries()[-1] == {"raised": 16.0, "reason": "agreed on"}
    assert member.reason(member.spec(most + 1)) == ""
    with pytest.raises(ConfigError, match="the limit is 16"):
        raise_budget(member.folder, 12.0, "no raise", 8.0)
    assert member.folder.audit_log.entries()[-1]["raised"] == 16.0
    raise_budget(member.folder, 8.0, "taken back", 8.0)
    assert member.reason(member.spec(most + 1)) == Reason.BUDGET


@pytest.mark.parametrize(
    ("most", "reason"), [(0.0, "x"), (-1.0, "x"), (math.inf, "x"), (math.nan, "x"), (9.0, " "), (9.0, "a\nb")]
)
def test_a_raise_without_a_number_or_a_reason_is_refused(member, most, reason):
    with pytest.raises(ConfigError):
        raise_budget(member.folder, most, reason, 0.0)
    assert member.folder.audit_log.entries() == []


# --- nothing is forgotten


def renewed(member: Member, *others: str) -> MemberSpending:
    retire(member.folder, others)
    return MemberSpending.of(member.folder.audit_log.entries())


def test_closed_tasks_still_count_and_a_raise_still_holds(member):
    most = member.spend()
    raise_budget(member.folder, 9.0, "agreed on", 8.0)
    for _ in range(3):
        spending = renewed(member)
        assert spending == MemberSpending({TASK: Counter({event(4): most})}, whole=True, raised=9.0)
        assert len(member.folder.audit_log.entries()) == 2
    member.folder.audit_log.append({"joined": "task-2", "round": 1, "cost": event(4).to_dict()})
    assert renewed(member).rounds == Counter({event(4): most + 1})


def test_what_a_damaged_record_does_not_say_counts_as_everything(member):
    member.join(member.spec())
    record = member.folder.path / "record.jsonl"
    record.write_bytes(record.read_bytes().replace(b'"round":1', b'"round":2'))
    spending = renewed(member)
    assert not spending.whole and spending.epsilon(DELTA) == math.inf
    # retired once more, it is still unknown; a raise settles it, and what was readable counts on
    assert not renewed(member).whole
    raise_budget(member.folder, 20.0, "the record was damaged by a power cut", 8.0)
    assert renewed(member) == MemberSpending({TASK: Counter({event(4): 1})}, whole=True, raised=20.0)


@pytest.mark.parametrize("line", [b'{"joined":7}', b'{"joined":"task-1","rounds":"x"}', b'{"raised":[]}'])
def test_a_line_that_makes_no_sense_is_no_permission(member, line):
    found = MemberSpending.of([json.loads(line), {"joined": "task-1", "cost": {"kind": [1]}}])
    assert (found.whole, found.raised) == (False, 0.0)


def test_a_task_that_only_its_owner_named_has_an_unknown_cost(member):
    member.join(member.spec())
    assert not renewed(member, "task-of-the-lost-folder").whole


def test_rounds_of_an_earlier_version_have_no_price(member):
    member.folder.audit_log.append({"joined": TASK, "round": 1, "spec": "00"})
    assert member.reason(member.spec(2)) == Reason.BUDGET
    raise_budget(member.folder, 8.0, "known to be few", 8.0)
    assert member.reason(member.spec(2)) == ""


def test_a_thousand_equal_rounds_are_priced_as_one_event():
    lines = [{"joined": TASK, "round": n, "cost": event(4).to_dict()} for n in range(1_000)]
    found = MemberSpending.of(lines)
    assert found.rounds == Counter({event(4): 1_000})
    assert found.epsilon(DELTA) == epsilon([event(4)] * 1_000, DELTA)
