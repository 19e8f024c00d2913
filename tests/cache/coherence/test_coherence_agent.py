"""One agent, one transition after another; all times are on its own clock."""

import pytest

from coherence_protocol.agent import Agent
from coherence_protocol.messages import (
    NO_ANSWER,
    NOT_OWNER,
    Acknowledge,
    Acknowledgements,
    Answers,
    Ask,
    Committed,
    CopyState,
    Granted,
    Invalidate,
    Invalidations,
    LeaseTerms,
    Refused,
    Requests,
    Want,
)

TERMS = LeaseTerms(lease=10.0, margin=1.0, retry=2.0, patience=30.0)
NEW = Agent("a", TERMS)


def told(*items):
    kind = Invalidations if isinstance(items[0], Invalidate) else Answers
    return kind("a", items)


def holding(*, exclusive=False, changed=False, serial=3, version=5):
    agent = (NEW.write if exclusive else NEW.read)("k", 0.0).agent
    agent = agent.handle(told(Granted("k", 1, version, serial, exclusive)), 1.0).agent
    return agent.write("k", 1.0).agent if changed else agent


def test_reading_asks_once_in_one_message_and_is_pending():
    turn = NEW.read("kl", 0.0)
    assert turn.messages == (Requests("a", (Ask("k", Want.SHARED, 1), Ask("l", Want.SHARED, 1))),)
    assert turn.agent.copy("k").state is CopyState.PENDING and turn.agent.version("k", 0.0) is None
    assert turn.agent.read("kl", 0.0) == (turn.agent, (), ()) and turn.agent.write("k", 0.0).messages == ()


def test_a_granted_copy_is_read_until_its_lease_ends_counted_from_the_request():
    agent = holding()
    assert agent.copy("k").state is CopyState.SHARED and agent.read("k", 8.9) == (agent, (), ())
    assert agent.version("k", 8.9) == 5 and agent.version("k", 9.0) is None
    assert agent.read("k", 9.0).messages == (Requests("a", (Ask("k", Want.SHARED, 2),)),)


@pytest.mark.parametrize(
    ("answer", "now"),
    [
        (Granted("k", 2, 5, 3, exclusive=False), 1.0),
        (Granted("k", 1, 5, 3, exclusive=False), 9.0),
        (Granted("l", 1, 5, 3, exclusive=False), 1.0),
    ],
)
def test_an_answer_to_something_else_or_too_late_is_none(answer, now):
    asked = NEW.read("k", 0.0).agent
    assert asked.handle(told(answer), now).agent.copy("k") == asked.copy("k")


def test_a_grant_that_a_recall_overtook_is_no_use():
    asked = NEW.read("k", 0.0).agent
    recalled = asked.handle(told(Invalidate("k", 4)), 0.5)
    assert recalled.messages == (Acknowledgements("a", (Acknowledge("k", 4),)),)
    late = recalled.agent.handle(told(Granted("k", 1, 5, 3, exclusive=False)), 1.0).agent
    assert late.copy("k").state is CopyState.PENDING and late.version("k", 1.0) is None
    assert late.handle(told(Granted("k", 1, 6, 4, exclusive=False)), 1.0).agent.version("k", 1.0) == 6


def test_an_exclusive_copy_is_changed_without_a_word():
    agent = holding(exclusive=True)
    assert agent.copy("k").state is CopyState.EXCLUSIVE
    turn = agent.write("k", 2.0)
    assert turn.messages == () and turn.agent.copy("k").state is CopyState.MODIFIED
    assert turn.agent.write("k", 3.0) == (turn.agent, (), ())


def test_a_shared_copy_is_not_read_while_more_is_asked_for():
    turn = holding().write("k", 2.0)
    assert turn.messages == (Requests("a", (Ask("k", Want.EXCLUSIVE, 2),)),)
    assert turn.agent.version("k", 2.0) is None


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_recall_ends_an_unchanged_copy_and_an_older_one_does_not(exclusive):
    agent = holding(exclusive=exclusive, serial=3)
    older = agent.handle(told(Invalidate("k", 3)), 2.0)
    assert older.agent.version("k", 2.0) == 5 and older.messages[0].items == (Acknowledge("k", 3),)
    newer = agent.handle(told(Invalidate("k", 4)), 2.0)
    assert newer.agent.copy("k").state is CopyState.INVALID and newer.messages[0].items == (Acknowledge("k", 4),)


def test_a_changed_copy_is_handed_over_again_and_again_until_it_is_known_to_be_committed():
    agent = holding(exclusive=True, changed=True, serial=3)
    assert agent.handle(told(Invalidate("k", 2)), 2.0).agent.copy("k").state is CopyState.MODIFIED
    first = agent.handle(told(Invalidate("k", 4)), 2.0)
    assert first.messages == (Acknowledgements("a", (Acknowledge("k", 4, 3),)),)
    again = first.agent.handle(told(Invalidate("k", 4)), 3.0)
    assert again.messages == first.messages and again.agent.copy("k").state is CopyState.PENDING
    asked = again.agent.tick(5.0)
    assert asked.messages == (Requests("a", (Ask("k", Want.WRITE_BACK, 3),)),)
    done = asked.agent.handle(told(Committed("k", 3)), 6.0)
    assert done.agent.copy("k").state is CopyState.INVALID and done.refused == ()


def test_a_write_back_may_be_refused_with_a_reason():
    turn = holding(exclusive=True, changed=True).write_back("kl", 2.0)
    assert turn.messages == (Requests("a", (Ask("k", Want.WRITE_BACK, 3),)),)
    other = Refused("k", Want.SHARED, 3, NOT_OWNER)
    assert turn.agent.handle(told(other), 3.0) == (turn.agent, (), ())
    refusal = Refused("k", Want.WRITE_BACK, 3, NOT_OWNER)
    refused = turn.agent.handle(told(refusal), 3.0)
    assert refused.refused == (refusal,) and refused.agent.copy("k").state is CopyState.INVALID


def test_a_lease_that_ends_hands_over_a_change_and_drops_the_rest():
    assert holding(exclusive=True).tick(9.0).agent.copy("k").state is CopyState.INVALID
    turn = holding(exclusive=True, changed=True).tick(9.0)
    assert turn.messages == (Requests("a", (Ask("k", Want.WRITE_BACK, 3),)),)
    assert turn.agent.version("k", 9.0) is None


@pytest.mark.parametrize("does", ["read", "write"])
def test_a_change_whose_lease_ended_unnoticed_is_handed_over_before_anything_is_asked(does):
    turn = getattr(holding(exclusive=True, changed=True), does)("k", 9.5)
    assert turn.messages == (Requests("a", (Ask("k", Want.WRITE_BACK, 3),)),)


def test_a_request_without_an_answer_is_repeated_under_a_new_number_and_given_up_in_the_end():
    asked = NEW.read("k", 0.0).agent
    assert asked.tick(1.9) == (asked, (), ())
    again = asked.tick(2.0)
    assert again.messages == (Requests("a", (Ask("k", Want.SHARED, 2),)),)
    assert again.agent.copy("k").granted(Granted("k", 2, 0, 0, exclusive=False), 3.0, TERMS).until == 11.0
    last = again.agent.tick(30.0)
    assert last.refused == (Refused("k", Want.SHARED, 2, NO_ANSWER),)
    assert last.agent.copy("k").state is CopyState.INVALID and last.agent.give_up("k").refused == ()
