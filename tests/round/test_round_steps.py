"""Single steps of a round: who is rejected for what, when it goes on early, and why it fails."""

from dataclasses import replace

import pytest
from kit.members import some_receipt

from fednode.round import effects as do
from fednode.round import events as on
from fednode.round.machine import Round, State

SPEC, OTHER = b"s" * 32, b"o" * 32
START = Round(SPEC, frozenset("abc"), min_survivors=2, holders=frozenset({1, 2, 3}), threshold=2)


def run(*events, start=START):
    """The round after these events, and the effects of the last one."""
    now, effects = start, ()
    for event in events:
        now, effects = now.handle(event)
    return now, effects


def sent(client, payload=b"p", spec=SPEC):
    return on.Arrived(client, spec, payload)


def kept(*clients):
    return [event for client in clients for event in (sent(client), on.Kept(client))]


def turned_away(client, payload=b"p", wait=2.5):
    return [sent(client, payload), on.NotKept(client, "no-room", wait)]


OPENING = (*kept("a", "b"), on.DeadlinePassed(), on.Charged(some_receipt()))


def test_a_whole_round():
    now, effects = run(*kept("a", "b"))
    assert (now.state, effects) == (State.COLLECTING, ())
    now, effects = run(*kept("c"), start=now)
    assert (now.state, effects) == (State.CHARGING, (do.ChargeBudget(("a", "b", "c")),))
    now, effects = run(on.Charged(some_receipt()), start=now)
    assert (now.state, effects) == (State.OPENING, (do.Open(some_receipt()),))
    now, effects = run(on.Answered(3), on.Answered(1), start=now)
    assert (now.state, effects) == (State.OPENING, ())
    now, effects = run(on.Answered(2), start=now)
    assert (now.state, effects) == (State.OPENING, (do.Combine((1, 2, 3)),))
    now, effects = run(on.Opened(), start=now)
    assert (now.state, effects) == (State.RELEASED, (do.Publish(some_receipt()),))
    assert now.survivors == ("a", "b", "c")


@pytest.mark.parametrize(
    ("events", "effect"),
    [
        ([sent("a")], do.Keep("a")),
        ([sent("z")], do.Reject("z", "stranger")),
        ([sent("z", spec=OTHER)], do.Reject("z", "stranger")),
        ([sent("a", spec=OTHER)], do.Reject("a", "another-round")),
        ([*kept("a"), sent("a")], do.Discard("a", "repeat")),
        ([*kept("a"), sent("a", b"q")], do.Reject("a", "second-update")),
        ([*kept("a"), sent("a", b"q", OTHER)], do.Reject("a", "second-update")),
        ([sent("a"), on.NotKept("a", "no-room")], do.Discard("a", "no-room")),
        ([sent("a"), on.NotKept("a", "no-room"), sent("a")], do.Discard("a", "repeat")),
        ([sent("a"), on.NotKept("a", "no-room"), sent("a", b"q")], do.Reject("a", "second-update")),
        ([*turned_away("a"), sent("a")], do.Discard("a", "repeat")),
        ([*turned_away("a"), sent("a", b"q")], do.Reject("a", "second-update")),
        ([*turned_away("a"), sent("a", b"q", OTHER)], do.Reject("a", "second-update")),
        ([*turned_away("a"), on.Faulted("a", "garbage")], do.Reject("a", "garbage")),
        ([*turned_away("a"), on.WaitOver("a")], do.AskAgain("a")),
        ([*turned_away("a"), on.WaitOver("a"), sent("a")], do.Keep("a")),
        ([*turned_away("a"), on.WaitOver("a"), sent("a", b"q")], do.Reject("a", "second-update")),
        ([*turned_away("a"), on.WaitOver("a"), sent("a", b"q"), sent("a")], do.Keep("a")),
        ([*turned_away("a"), on.WaitOver("a"), *kept("a"), sent("a")], do.Discard("a", "repeat")),
        ([*turned_away("a"), *kept("b", "c"), on.DeadlinePassed(), sent("a")], do.Discard("a", "late")),
        (
            [*turned_away("a"), *kept("b", "c"), on.DeadlinePassed(), sent("a", b"q")],
            do.Reject("a", "second-update"),
        ),
        ([sent("a", spec=OTHER), sent("a")], do.Keep("a")),
        ([on.Faulted("a", "garbage")], do.Reject("a", "garbage")),
        ([on.Faulted("a", "garbage"), sent("a")], do.Keep("a")),
        ([on.Faulted("z", "garbage")], do.Reject("z", "garbage")),
        ([on.Late("a")], do.Discard("a", "late")),
        ([*kept("a", "b"), on.DeadlinePassed(), sent("c")], do.Discard("c", "late")),
        ([*kept("a", "b"), on.DeadlinePassed(), sent("a")], do.Discard("a", "repeat")),
        ([*kept("a", "b"), on.DeadlinePassed(), sent("a", b"q")], do.Reject("a", "second-update")),
        ([*kept("a", "b"), on.DeadlinePassed(), sent("c", spec=OTHER)], do.Reject("c", "another-round")),
        ([*kept("a", "b"), on.DeadlinePassed(), sent("z")], do.Reject("z", "stranger")),
        ([*OPENING, sent("c")], do.Discard("c", "late")),
        ([on.StopAsked(), sent("a")], do.Discard("a", "late")),
        ([on.StopAsked(), on.Faulted("a", "garbage")], do.Reject("a", "garbage")),
    ],
)
def test_every_arrival_has_one_end(events, effect):
    _, effects = run(*events)
    assert effects == (effect,)


def test_a_stranger_does_not_count_as_somebody_to_wait_for_or_not():
    now, _ = run(on.Faulted("z", "garbage"), sent("y"), on.Late("x"))
    assert now == START


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([on.DeadlinePassed()], "too-few-survivors"),
        ([*kept("a"), on.DeadlinePassed()], "too-few-survivors"),
        ([*kept("a"), on.Faulted("b", "x"), on.Faulted("c", "y")], "too-few-survivors"),
        ([*kept("a"), sent("b"), on.NotKept("b", "no-room"), on.DeadlinePassed()], "too-few-survivors"),
        ([on.StopAsked()], "stopped"),
        ([*kept("a", "b"), on.StopAsked()], "stopped"),
        ([*kept("a", "b", "c"), on.ChargeRefused("no budget left")], "budget"),
        ([*OPENING, on.DeadlinePassed()], "too-few-holders"),
        ([*OPENING, on.Answered(1), on.DeadlinePassed()], "too-few-holders"),
        ([*OPENING, *(on.HolderSilent(point, "x") for point in (1, 2, 3))], "too-few-holders"),
        ([*OPENING, on.Answered(1), on.HolderSilent(2, "x"), on.HolderSilent(3, "x")], "too-few-holders"),
        (
            [*OPENING, on.Answered(1), on.Answered(2), on.Answered(3), on.OpeningFailed("residual")],
            "opening-rejected",
        ),
    ],
)
def test_a_round_fails_for_its_cause_and_says_why(events, cause):
    now, effects = run(*events)
    assert now.state is State.FAILED
    assert isinstance(effects[-1], do.Fail) and effects[-1].cause == cause and effects[-1].reason


def test_the_sentence_of_a_failed_round_has_its_numbers():
    _, effects = run(*kept("a"), on.DeadlinePassed())
    assert effects == (do.Fail("too-few-survivors", "1 of 3 updates arrived and 2 are the least that may be opened"),)
    _, effects = run(*OPENING, on.Answered(2), on.DeadlinePassed())
    assert effects == (do.Fail("too-few-holders", "1 of 3 holders answered and 2 are needed to open"),)


def test_a_round_goes_on_early_when_everyone_left_has_failed():
    now, effects = run(*kept("a", "b"), on.Faulted("c", "garbage"))
    assert (now.state, effects) == (State.CHARGING, (do.Reject("c", "garbage"), do.ChargeBudget(("a", "b"))))
    now, effects = run(*kept("a", "b"), sent("c", spec=OTHER))
    assert effects == (do.Reject("c", "another-round"), do.ChargeBudget(("a", "b")))
    now, effects = run(*kept("a", "b"), sent("c"), on.NotKept("c", "no-room"))
    assert effects == (do.Discard("c", "no-room"), do.ChargeBudget(("a", "b")))


# --- asked again


def test_who_found_no_room_is_waited_for_and_asked_again_when_its_time_has_come():
    now, effects = run(*kept("a", "b"), *turned_away("c"))
    assert (now.state, effects) == (State.COLLECTING, (do.Discard("c", "no-room-yet"), do.AskLater("c", 2.5)))
    now, effects = run(on.WaitOver("c"), start=now)
    assert (now.state, effects) == (State.COLLECTING, (do.AskAgain("c"),))
    now, effects = run(*kept("c"), start=now)
    assert effects == (do.ChargeBudget(("a", "b", "c")),) and now.turned_away == ()


def test_who_finds_no_room_is_asked_a_bounded_number_of_times():
    now, asked = run(*kept("a", "b"), *turned_away("c"))[0], 0
    while now.state is State.COLLECTING:
        now, effects = run(on.WaitOver("c"), *turned_away("c"), start=now)
        asked += 1
    assert asked == START.most_asks == 3
    assert effects == (do.Discard("c", "no-room"), do.ChargeBudget(("a", "b")))


def test_however_many_copies_come_each_asking_is_one_attempt():
    now, attempts = run(*turned_away("a"))[0], 1
    while "a" not in now.faulted:
        now, _ = now.handle(on.WaitOver("a"))
        for _ in range(50):
            now, effects = now.handle(sent("a"))
            if effects == (do.Keep("a"),):
                attempts += 1
                now, _ = now.handle(on.NotKept("a", "no-room", 1.0))
    assert attempts == 1 + START.most_asks


def test_nothing_unasked_ends_the_wait_and_everything_else_does_when_it_was_asked():
    waiting, _ = run(*kept("a", "b"), *turned_away("c"))
    for event in (on.Faulted("c", "garbage"), sent("c", b"q"), sent("c"), on.Late("c")):
        assert run(event, start=waiting)[0] == waiting
    for event in (on.Faulted("c", "refused: no"), sent("c", b"q")):
        now, effects = run(on.WaitOver("c"), event, start=waiting)
        assert now.state is State.CHARGING and isinstance(effects[0], do.Reject)


@pytest.mark.parametrize("end", [on.DeadlinePassed(), on.StopAsked()])
@pytest.mark.parametrize("more", [(), (on.WaitOver("c"),)])
def test_a_round_does_not_outlast_its_time_for_who_waits(end, more):
    now, effects = run(*kept("a", "b"), *turned_away("c"), *more, end)
    assert now.survivors == ("a", "b")
    assert effects == (do.ChargeBudget(("a", "b")),) if end == on.DeadlinePassed() else isinstance(effects[0], do.Fail)


def test_a_client_that_failed_before_it_found_no_room_is_waited_for_again():
    now, _ = run(*kept("a", "b"), start=replace(START, invited=frozenset("abcd")))
    now, _ = run(on.Faulted("c", "garbage"), *turned_away("c"), on.Faulted("d", "garbage"), start=now)
    assert now.state is State.COLLECTING
    assert run(on.WaitOver("c"), *kept("c"), start=now)[1] == (do.ChargeBudget(("a", "b", "c")),)


def test_only_who_waits_is_asked_again():
    asked = (*turned_away("a"), on.WaitOver("a"))
    for events in ((), kept("a"), asked, (*asked, *kept("a")), (sent("a"), on.NotKept("a", "no-room"))):
        with pytest.raises(RuntimeError, match="not waiting"):
            run(*events, on.WaitOver("a"))


def test_a_survivor_that_sends_garbage_afterwards_stays_a_survivor():
    now, effects = run(*kept("a", "b"), on.Faulted("a", "garbage"), on.DeadlinePassed())
    assert effects == (do.ChargeBudget(("a", "b")),)
    assert now.survivors == ("a", "b")


def test_nothing_is_charged_while_an_update_is_between_the_store_and_the_survivors():
    now, _ = run(*kept("a", "b"), sent("c"))
    for event in (on.DeadlinePassed(), on.StopAsked(), on.Faulted("c", "garbage"), sent("c"), on.Late("a")):
        with pytest.raises(RuntimeError, match="NotKept of c"):
            now.handle(event)
    assert run(on.Kept("c"), start=now)[1] == (do.ChargeBudget(("a", "b", "c")),)


def test_only_what_is_pending_is_kept_or_not():
    now, _ = run(*kept("a"))
    for event in (*(on.Kept(name) for name in "abz"), *(on.NotKept(name, "no-room") for name in "ab")):
        with pytest.raises(RuntimeError, match="pending"):
            now.handle(event)


def test_the_committee_is_heard_out_before_its_answers_are_put_together():
    now, effects = run(*OPENING, on.Answered(1), on.Answered(2))
    assert not now.combining and effects == ()
    assert run(on.HolderSilent(3, "x"), start=now)[1] == (do.Combine((1, 2)),)
    assert run(on.DeadlinePassed(), start=now)[1] == (do.Combine((1, 2)),)
    assert run(on.Answered(3), start=now)[1] == (do.Combine((1, 2, 3)),)


def test_a_holder_that_failed_first_and_answered_then_is_heard():
    _, effects = run(*OPENING, on.HolderSilent(1, "garbage"), on.Answered(1), on.Answered(2), on.HolderSilent(3, "x"))
    assert effects == (do.Combine((1, 2)),)


def test_an_answer_counts_once_and_only_from_a_holder():
    now, effects = run(*OPENING, *(on.Answered(point) for point in (1, 1, 4, 0)), on.HolderSilent(9, "x"))
    assert effects == () and now.answered == frozenset({1}) and now.silent == frozenset()


def test_answers_are_put_together_once():
    now, effects = run(*OPENING, on.Answered(1), on.Answered(2), on.DeadlinePassed())
    assert effects == (do.Combine((1, 2)),)
    for event in (on.DeadlinePassed(), on.Answered(3), on.HolderSilent(3, "x")):
        assert run(event, start=now) == (now, ())


def test_nothing_is_opened_before_its_answers_were_put_together():
    now, _ = run(*OPENING, on.Answered(1))
    with pytest.raises(RuntimeError, match="opened"):
        now.handle(on.Opened())


def test_a_round_with_nobody_invited_fails_at_its_deadline():
    nobody = Round(SPEC, frozenset(), min_survivors=1, holders=frozenset({1}), threshold=1)
    assert run(on.DeadlinePassed(), start=nobody)[0].state is State.FAILED


def test_a_round_does_not_show_its_receipt():
    assert "Receipt" not in repr(run(*OPENING)[0])


BOXED = replace(START, boxed=True)
LIE = on.HolderSilent(3, "false-complaint")


@pytest.mark.parametrize("before", [[], [on.Checked(3, ())], [on.Checked(3, ("a",))]], ids=["first", "after", "struck"])
def test_a_holder_whose_complaint_is_false_is_out_whatever_else_it_says(before):
    """What it showed to be true before stays true."""
    checking = (*kept("a", "b", "c"), *before, LIE, on.Checked(3, ("b",)), on.Checked(1, ()))
    now, effects = run(*checking, on.Checked(2, ()), start=BOXED)
    struck = tuple(client for event in before for client in event.excluded)
    left = tuple(client for client in "abc" if client not in struck)
    assert effects == ((do.Exclude(struck),) if struck else ()) + (do.Confirm(left),)
    assert now.state is State.CONFIRMING and now.holders == frozenset({1, 2})


def test_false_complaints_of_too_many_holders_fail_the_round_before_the_charge():
    now, effects = run(*kept("a", "b", "c"), LIE, on.Checked(1, ()), on.HolderSilent(2, "false-complaint"), start=BOXED)
    assert now.state is State.FAILED and effects[-1].cause == "too-few-holders" and now.receipt is None
