"""Single steps of a round: who is rejected for what, when it goes on early, and why it fails."""

from dataclasses import replace

import pytest
from kit.members import some_receipt

from fednode.round import (
    Answered,
    Arrived,
    AskAgain,
    AskLater,
    Charge,
    Charged,
    ChargeRefused,
    Combine,
    DeadlinePassed,
    Discard,
    Fail,
    Faulted,
    HolderSilent,
    Keep,
    Kept,
    Late,
    NotKept,
    Open,
    Opened,
    OpeningFailed,
    Publish,
    Reject,
    Round,
    State,
    StopAsked,
    WaitOver,
)

SPEC, OTHER = b"s" * 32, b"o" * 32
START = Round(SPEC, frozenset("abc"), min_survivors=2, holders=frozenset({1, 2, 3}), threshold=2)


def run(*events, start=START):
    """The round after these events, and the effects of the last one."""
    now, effects = start, ()
    for event in events:
        now, effects = now.handle(event)
    return now, effects


def sent(client, payload=b"p", spec=SPEC):
    return Arrived(client, spec, payload)


def kept(*clients):
    return [event for client in clients for event in (sent(client), Kept(client))]


def turned_away(client, payload=b"p", wait=2.5):
    return [sent(client, payload), NotKept(client, "no-room", wait)]


OPENING = (*kept("a", "b"), DeadlinePassed(), Charged(some_receipt()))


def test_a_whole_round():
    now, effects = run(*kept("a", "b"))
    assert (now.state, effects) == (State.COLLECTING, ())
    now, effects = run(*kept("c"), start=now)
    assert (now.state, effects) == (State.CHARGING, (Charge(("a", "b", "c")),))
    now, effects = run(Charged(some_receipt()), start=now)
    assert (now.state, effects) == (State.OPENING, (Open(some_receipt()),))
    now, effects = run(Answered(3), Answered(1), start=now)
    assert (now.state, effects) == (State.OPENING, ())
    now, effects = run(Answered(2), start=now)
    assert (now.state, effects) == (State.OPENING, (Combine((1, 2, 3)),))
    now, effects = run(Opened(), start=now)
    assert (now.state, effects) == (State.RELEASED, (Publish(some_receipt()),))
    assert now.survivors == ("a", "b", "c")


@pytest.mark.parametrize(
    ("events", "effect"),
    [
        ([sent("a")], Keep("a")),
        ([sent("z")], Reject("z", "stranger")),
        ([sent("z", spec=OTHER)], Reject("z", "stranger")),
        ([sent("a", spec=OTHER)], Reject("a", "another-round")),
        ([*kept("a"), sent("a")], Discard("a", "repeat")),
        ([*kept("a"), sent("a", b"q")], Reject("a", "second-update")),
        ([*kept("a"), sent("a", b"q", OTHER)], Reject("a", "second-update")),
        ([sent("a"), NotKept("a", "no-room")], Discard("a", "no-room")),
        ([sent("a"), NotKept("a", "no-room"), sent("a")], Discard("a", "repeat")),
        ([sent("a"), NotKept("a", "no-room"), sent("a", b"q")], Reject("a", "second-update")),
        ([*turned_away("a"), sent("a")], Discard("a", "repeat")),
        ([*turned_away("a"), sent("a", b"q")], Reject("a", "second-update")),
        ([*turned_away("a"), sent("a", b"q", OTHER)], Reject("a", "second-update")),
        ([*turned_away("a"), Faulted("a", "garbage")], Reject("a", "garbage")),
        ([*turned_away("a"), WaitOver("a")], AskAgain("a")),
        ([*turned_away("a"), WaitOver("a"), sent("a")], Keep("a")),
        ([*turned_away("a"), WaitOver("a"), sent("a", b"q")], Reject("a", "second-update")),
        ([*turned_away("a"), WaitOver("a"), sent("a", b"q"), sent("a")], Keep("a")),
        ([*turned_away("a"), WaitOver("a"), *kept("a"), sent("a")], Discard("a", "repeat")),
        ([*turned_away("a"), *kept("b", "c"), DeadlinePassed(), sent("a")], Discard("a", "late")),
        ([*turned_away("a"), *kept("b", "c"), DeadlinePassed(), sent("a", b"q")], Reject("a", "second-update")),
        ([sent("a", spec=OTHER), sent("a")], Keep("a")),
        ([Faulted("a", "garbage")], Reject("a", "garbage")),
        ([Faulted("a", "garbage"), sent("a")], Keep("a")),
        ([Faulted("z", "garbage")], Reject("z", "garbage")),
        ([Late("a")], Discard("a", "late")),
        ([*kept("a", "b"), DeadlinePassed(), sent("c")], Discard("c", "late")),
        ([*kept("a", "b"), DeadlinePassed(), sent("a")], Discard("a", "repeat")),
        ([*kept("a", "b"), DeadlinePassed(), sent("a", b"q")], Reject("a", "second-update")),
        ([*kept("a", "b"), DeadlinePassed(), sent("c", spec=OTHER)], Reject("c", "another-round")),
        ([*kept("a", "b"), DeadlinePassed(), sent("z")], Reject("z", "stranger")),
        ([*OPENING, sent("c")], Discard("c", "late")),
        ([StopAsked(), sent("a")], Discard("a", "late")),
        ([StopAsked(), Faulted("a", "garbage")], Reject("a", "garbage")),
    ],
)
def test_every_arrival_has_one_end(events, effect):
    _, effects = run(*events)
    assert effects == (effect,)


def test_a_stranger_does_not_count_as_somebody_to_wait_for_or_not():
    now, _ = run(Faulted("z", "garbage"), sent("y"), Late("x"))
    assert now == START


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([DeadlinePassed()], "too-few-survivors"),
        ([*kept("a"), DeadlinePassed()], "too-few-survivors"),
        ([*kept("a"), Faulted("b", "x"), Faulted("c", "y")], "too-few-survivors"),
        ([*kept("a"), sent("b"), NotKept("b", "no-room"), DeadlinePassed()], "too-few-survivors"),
        ([StopAsked()], "stopped"),
        ([*kept("a", "b"), StopAsked()], "stopped"),
        ([*kept("a", "b", "c"), ChargeRefused("no budget left")], "budget"),
        ([*OPENING, DeadlinePassed()], "too-few-holders"),
        ([*OPENING, Answered(1), DeadlinePassed()], "too-few-holders"),
        ([*OPENING, *(HolderSilent(point, "x") for point in (1, 2, 3))], "too-few-holders"),
        ([*OPENING, Answered(1), HolderSilent(2, "x"), HolderSilent(3, "x")], "too-few-holders"),
        ([*OPENING, Answered(1), Answered(2), Answered(3), OpeningFailed("residual")], "opening-rejected"),
    ],
)
def test_a_round_fails_for_its_cause_and_says_why(events, cause):
    now, effects = run(*events)
    assert now.state is State.FAILED
    assert isinstance(effects[-1], Fail) and effects[-1].cause == cause and effects[-1].reason


def test_the_sentence_of_a_failed_round_has_its_numbers():
    _, effects = run(*kept("a"), DeadlinePassed())
    assert effects == (Fail("too-few-survivors", "1 of 3 updates arrived and 2 are the least that may be opened"),)
    _, effects = run(*OPENING, Answered(2), DeadlinePassed())
    assert effects == (Fail("too-few-holders", "1 of 3 holders answered and 2 are needed to open"),)


def test_a_round_goes_on_early_when_everyone_left_has_failed():
    now, effects = run(*kept("a", "b"), Faulted("c", "garbage"))
    assert (now.state, effects) == (State.CHARGING, (Reject("c", "garbage"), Charge(("a", "b"))))
    now, effects = run(*kept("a", "b"), sent("c", spec=OTHER))
    assert effects == (Reject("c", "another-round"), Charge(("a", "b")))
    now, effects = run(*kept("a", "b"), sent("c"), NotKept("c", "no-room"))
    assert effects == (Discard("c", "no-room"), Charge(("a", "b")))


# --- asked again


def test_who_found_no_room_is_waited_for_and_asked_again_when_its_time_has_come():
    now, effects = run(*kept("a", "b"), *turned_away("c"))
    assert (now.state, effects) == (State.COLLECTING, (Discard("c", "no-room-yet"), AskLater("c", 2.5)))
    now, effects = run(WaitOver("c"), start=now)
    assert (now.state, effects) == (State.COLLECTING, (AskAgain("c"),))
    now, effects = run(*kept("c"), start=now)
    assert effects == (Charge(("a", "b", "c")),) and now.turned_away == ()


def test_who_finds_no_room_is_asked_a_bounded_number_of_times():
    now, asked = run(*kept("a", "b"), *turned_away("c"))[0], 0
    while now.state is State.COLLECTING:
        now, effects = run(WaitOver("c"), *turned_away("c"), start=now)
        asked += 1
    assert asked == START.most_asks == 3
    assert effects == (Discard("c", "no-room"), Charge(("a", "b")))


def test_however_many_copies_come_each_asking_is_one_attempt():
    now, attempts = run(*turned_away("a"))[0], 1
    while "a" not in now.faulted:
        now, _ = now.handle(WaitOver("a"))
        for _ in range(50):
            now, effects = now.handle(sent("a"))
            if effects == (Keep("a"),):
                attempts += 1
                now, _ = now.handle(NotKept("a", "no-room", 1.0))
    assert attempts == 1 + START.most_asks


def test_nothing_unasked_ends_the_wait_and_everything_else_does_when_it_was_asked():
    waiting, _ = run(*kept("a", "b"), *turned_away("c"))
    for event in (Faulted("c", "garbage"), sent("c", b"q"), sent("c"), Late("c")):
        assert run(event, start=waiting)[0] == waiting
    for event in (Faulted("c", "refused: no"), sent("c", b"q")):
        now, effects = run(WaitOver("c"), event, start=waiting)
        assert now.state is State.CHARGING and isinstance(effects[0], Reject)


@pytest.mark.parametrize("end", [DeadlinePassed(), StopAsked()])
@pytest.mark.parametrize("more", [(), (WaitOver("c"),)])
def test_a_round_does_not_outlast_its_time_for_who_waits(end, more):
    now, effects = run(*kept("a", "b"), *turned_away("c"), *more, end)
    assert now.survivors == ("a", "b")
    assert effects == (Charge(("a", "b")),) if end == DeadlinePassed() else isinstance(effects[0], Fail)


def test_a_client_that_failed_before_it_found_no_room_is_waited_for_again():
    now, _ = run(*kept("a", "b"), start=replace(START, invited=frozenset("abcd")))
    now, _ = run(Faulted("c", "garbage"), *turned_away("c"), Faulted("d", "garbage"), start=now)
    assert now.state is State.COLLECTING
    assert run(WaitOver("c"), *kept("c"), start=now)[1] == (Charge(("a", "b", "c")),)


def test_only_who_waits_is_asked_again():
    asked = (*turned_away("a"), WaitOver("a"))
    for events in ((), kept("a"), asked, (*asked, *kept("a")), (sent("a"), NotKept("a", "no-room"))):
        with pytest.raises(RuntimeError, match="does not wait"):
            run(*events, WaitOver("a"))


def test_a_survivor_that_sends_garbage_afterwards_stays_a_survivor():
    now, effects = run(*kept("a", "b"), Faulted("a", "garbage"), DeadlinePassed())
    assert effects == (Charge(("a", "b")),)
    assert now.survivors == ("a", "b")


def test_nothing_is_charged_while_an_update_is_between_the_store_and_the_survivors():
    now, _ = run(*kept("a", "b"), sent("c"))
    for event in (DeadlinePassed(), StopAsked(), Faulted("c", "garbage"), sent("c"), Late("a")):
        with pytest.raises(RuntimeError, match="before c was kept"):
            now.handle(event)
    assert run(Kept("c"), start=now)[1] == (Charge(("a", "b", "c")),)


def test_only_what_is_pending_is_kept_or_not():
    now, _ = run(*kept("a"))
    for event in (Kept("a"), NotKept("a", "no-room"), Kept("b"), NotKept("b", "no-room"), Kept("z")):
        with pytest.raises(RuntimeError, match="nothing of"):
            now.handle(event)


def test_the_committee_is_heard_out_before_its_answers_are_put_together():
    now, effects = run(*OPENING, Answered(1), Answered(2))
    assert not now.combining and effects == ()
    assert run(HolderSilent(3, "x"), start=now)[1] == (Combine((1, 2)),)
    assert run(DeadlinePassed(), start=now)[1] == (Combine((1, 2)),)
    assert run(Answered(3), start=now)[1] == (Combine((1, 2, 3)),)


def test_a_holder_that_failed_first_and_answered_then_is_heard():
    _, effects = run(*OPENING, HolderSilent(1, "garbage"), Answered(1), Answered(2), HolderSilent(3, "x"))
    assert effects == (Combine((1, 2)),)


def test_an_answer_counts_once_and_only_from_a_holder():
    now, effects = run(*OPENING, Answered(1), Answered(1), Answered(4), Answered(0), HolderSilent(9, "x"))
    assert effects == () and now.answered == frozenset({1}) and now.silent == frozenset()


def test_answers_are_put_together_once():
    now, effects = run(*OPENING, Answered(1), Answered(2), DeadlinePassed())
    assert effects == (Combine((1, 2)),)
    for event in (DeadlinePassed(), Answered(3), HolderSilent(3, "x")):
        assert run(event, start=now) == (now, ())


def test_nothing_is_opened_before_its_answers_were_put_together():
    now, _ = run(*OPENING, Answered(1))
    with pytest.raises(RuntimeError, match="opened"):
        now.handle(Opened())


def test_a_round_with_nobody_invited_fails_at_its_deadline():
    nobody = Round(SPEC, frozenset(), min_survivors=1, holders=frozenset({1}), threshold=1)
    assert run(DeadlinePassed(), start=nobody)[0].state is State.FAILED


def test_a_round_does_not_show_its_receipt():
    assert "Receipt" not in repr(run(*OPENING)[0])
