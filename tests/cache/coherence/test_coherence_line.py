"""One key at the directory, one transition after another."""

from dataclasses import replace

import pytest

from coherence_protocol.directory import Commit, Directory
from coherence_protocol.line import Line, Now
from coherence_protocol.messages import (
    NOT_OWNER,
    UNKNOWN_KEY,
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
    VirtualChannel,
    Want,
)
from fednode.errors import ConfigError

TERMS = LeaseTerms(lease=10.0, margin=1.0, retry=2.0, patience=30.0)
TIME = Now(0.0, 10.0)


def get(number=1):
    return Ask("k", Want.SHARED, number)


def own(number=1):
    return Ask("k", Want.EXCLUSIVE, number)


def back(serial):
    return Ask("k", Want.WRITE_BACK, serial)


def shared_by(*agents):
    line = Line()
    for agent in agents:
        line, _ = line.ask(agent, get(), TIME)
    return line


def owned_by(agent):
    return Line().ask(agent, own(), TIME)[0]


def test_many_may_share_and_each_is_told_the_version():
    line, told = shared_by("a").ask("b", get(7), TIME)
    assert line.state is CopyState.SHARED and line.sharers == {"a", "b"} and line.owner is None
    assert told == (("b", Granted("k", 7, 0, 0, exclusive=False)),)
    assert line.waiting == frozenset() and {holder.until for holder in line.holders} == {10.0}


def test_the_first_owner_waits_for_nobody():
    line, told = Line().ask("a", own(3), TIME)
    assert line.state is CopyState.EXCLUSIVE and line.owner == "a" and line.serial == 1
    assert told == (("a", Granted("k", 3, 0, 1, exclusive=True)),)


def test_an_upgrade_waits_for_all_other_sharers():
    line, told = shared_by("a", "b", "c").ask("b", own(2), TIME)
    assert line.state is CopyState.PENDING and line.waiting == {"a", "c"} and line.serial == 1
    assert told == (("a", Invalidate("k", 1)), ("c", Invalidate("k", 1)))
    line, told = line.acknowledge("a", Acknowledge("k", 1), TIME)
    assert line.state is CopyState.PENDING and told == ()
    line, told = line.acknowledge("c", Acknowledge("k", 1), TIME)
    assert line.owner == "b" and told == (("b", Granted("k", 2, 0, 1, exclusive=True)),)


def test_a_reader_waits_for_the_owner_whose_change_is_committed_first():
    line, told = owned_by("a").ask("b", get(4), TIME)
    assert told == (("a", Invalidate("k", 2)),)
    line, told = line.acknowledge("a", Acknowledge("k", 2, 1), TIME)
    assert told == (("a", Committed("k", 1)), ("b", Granted("k", 4, 1, 2, exclusive=False)))
    assert line.version == 1 and line.sharers == {"b"} and line.state is CopyState.SHARED


def test_the_end_of_a_lease_counts_as_an_acknowledgement_and_loses_the_change():
    line, _ = owned_by("a").ask("b", own(), TIME)
    line, told = line.end_lease("a", TIME)
    assert line.owner == "b" and line.version == 0 and told == (("b", Granted("k", 1, 0, 2, exclusive=True)),)
    same, told = line.acknowledge("a", Acknowledge("k", 2, 1), TIME)
    assert same == line and told == (("a", Refused("k", Want.WRITE_BACK, 1, NOT_OWNER)),)


def test_a_write_back_is_committed_once_however_often_it_comes():
    line, told = owned_by("a").ask("a", back(1), TIME)
    assert (line.version, line.state) == (1, CopyState.INVALID) and told == (("a", Committed("k", 1)),)
    assert line.ask("a", back(1), TIME) == (line, told)
    later, _ = line.ask("a", own(2), TIME)
    assert later.ask("a", back(1), TIME) == (later, told)
    assert later.ask("b", back(1), TIME)[1] == (("b", Refused("k", Want.WRITE_BACK, 1, NOT_OWNER)),)


def test_an_owner_that_asks_again_keeps_its_tenure():
    line, told = owned_by("a").ask("a", get(9), Now(5.0, 15.0))
    assert told == (("a", Granted("k", 9, 0, 1, exclusive=True)),)
    assert line.owner == "a" and line.holders[0].until == 15.0 and line.serial == 1
    assert line.ask("a", back(1), TIME)[0].version == 1


@pytest.mark.parametrize("said", [Acknowledge("k", 0), Acknowledge("k", 9), Acknowledge("k", 1)])
def test_an_acknowledgement_that_is_not_waited_for_frees_nobody(said):
    waiting, _ = shared_by("a", "b").ask("b", own(), TIME)
    line, told = waiting.acknowledge("b" if said.serial == 1 else "a", said, TIME)
    assert line == waiting and told == ()


def test_only_the_outstanding_invalidations_are_repeated():
    line, _ = shared_by("a", "b", "c").ask("c", own(), TIME)
    line, _ = line.acknowledge("a", Acknowledge("k", 1), TIME)
    again, told = line.repeat(Now(3.0, 13.0))
    assert told == (("b", Invalidate("k", 1)),)
    assert again.serving == replace(line.serving, asked_at=3.0) and shared_by("a").repeat(TIME)[1] == ()


def test_a_pending_line_serves_nobody_else():
    line, _ = shared_by("a").ask("b", own(), TIME)
    with pytest.raises(RuntimeError, match="leave the request in its channel"):
        line.ask("c", get(), TIME)


def ask_for(agent, want, *keys):
    return Requests(agent, tuple(Ask(key, want, 1) for key in keys))


def holding(*agents):
    now = Directory.of("kl", TERMS)
    for agent in agents:
        now = now.handle(ask_for(agent, Want.SHARED, "k", "l"), 0.0).directory
    return now


def test_one_message_holds_many_keys_for_one_agent():
    turn = holding("a", "b").handle(ask_for("c", Want.EXCLUSIVE, "k", "l"), 0.0)
    both = (Invalidate("k", 1), Invalidate("l", 1))
    assert turn.messages == (Invalidations("a", both), Invalidations("b", both))
    assert {message.channel for message in turn.messages} == {VirtualChannel.RECALLS}


def test_a_request_waits_while_one_of_its_keys_is_pending_and_acknowledgements_never_wait():
    now = holding("a").handle(ask_for("b", Want.EXCLUSIVE, "k"), 0.0).directory
    assert not now.admits(ask_for("a", Want.SHARED, "l", "k")) and now.admits(ask_for("a", Want.SHARED, "l"))
    yielded = Acknowledgements("a", (Acknowledge("k", 1),))
    assert now.admits(yielded)
    turn = now.handle(yielded, 0.0)
    assert turn.messages == (Answers("b", (Granted("k", 1, 0, 1, exclusive=True),)),)
    assert turn.directory.admits(ask_for("a", Want.SHARED, "l", "k"))


def test_a_commit_is_told_with_its_version():
    now = Directory.of("k", TERMS).handle(ask_for("a", Want.EXCLUSIVE, "k"), 0.0).directory
    turn = now.handle(Requests("a", (back(1),)), 0.0)
    assert turn.commits == (Commit("k", "a", 1),)


def test_an_unknown_key_is_refused_and_unknown_acknowledgements_are_nothing():
    now = Directory.of("k", TERMS)
    turn = now.handle(ask_for("a", Want.SHARED, "other", "k"), 0.0)
    granted = Granted("k", 1, 0, 0, exclusive=False)
    assert turn.messages == (Answers("a", (Refused("other", Want.SHARED, 1, UNKNOWN_KEY), granted)),)
    assert now.handle(Acknowledgements("a", (Acknowledge("other", 1),)), 0.0) == (now, (), ())


def test_tick_says_again_and_ends_what_has_run_out():
    now = holding("a").handle(ask_for("b", Want.EXCLUSIVE, "k"), 1.0).directory
    assert now.tick(2.9) == (now, (), ())
    turn = now.tick(3.0)
    assert turn.messages == (Invalidations("a", (Invalidate("k", 1),)),) and turn.directory.tick(4.9).messages == ()
    last = turn.directory.tick(10.0)
    assert last.messages == (Answers("b", (Granted("k", 1, 0, 1, exclusive=True),)),)
    assert last.directory.lines["l"].state is CopyState.INVALID


def test_a_request_names_each_key_once():
    with pytest.raises(ValueError, match="ask for each key once"):
        ask_for("a", Want.SHARED, "k", "k")


@pytest.mark.parametrize(
    "terms", [(0.0, 0.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0), (1.0, 0.1, 0.0, 1.0), (1.0, 0.1, 2.0, 1.0), (1.0, -0.1, 1, 1)]
)
def test_terms_that_cannot_work_are_refused(terms):
    with pytest.raises(ConfigError):
        LeaseTerms(*terms)
