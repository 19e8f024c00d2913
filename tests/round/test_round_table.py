"""The table of a round, written out by hand: what each situation takes, and that it takes nothing else."""

import pytest
from kit.members import some_receipt

from fednode.round import events as on
from fednode.round.machine import ALLOWED, Round, State

SPEC = b"s" * 32
EVENTS = {
    on.Arrived: on.Arrived("b", SPEC, b"payload"),
    on.Kept: on.Kept("a"),
    on.NotKept: on.NotKept("a", "no-room"),
    on.WaitOver: on.WaitOver("a"),
    on.Late: on.Late("b"),
    on.Faulted: on.Faulted("b", "garbage"),
    on.DeadlinePassed: on.DeadlinePassed(),
    on.StopAsked: on.StopAsked(),
    on.Checked: on.Checked(2, ("a",)),
    on.Confirmed: on.Confirmed(2),
    on.Charged: on.Charged(some_receipt()),
    on.ChargeRefused: on.ChargeRefused("no budget"),
    on.Answered: on.Answered(2),
    on.HolderSilent: on.HolderSilent(2, "no-answer"),
    on.Opened: on.Opened(),
    on.OpeningFailed: on.OpeningFailed("residual"),
}
ALWAYS = {on.Arrived, on.Late, on.Faulted}
HOLDERS = {on.Checked, on.Confirmed, on.HolderSilent}
ENDS = {on.DeadlinePassed, on.StopAsked}
TABLE = {
    "collecting": ALWAYS | ENDS,
    "waiting": ALWAYS | ENDS | {on.WaitOver},
    "keeping": {on.Kept, on.NotKept},
    "checking": ALWAYS | ENDS | {on.Checked, on.HolderSilent},
    "confirming": ALWAYS | ENDS | HOLDERS,
    "charging": ALWAYS | {on.Charged, on.ChargeRefused},
    "opening": ALWAYS | HOLDERS | {on.Answered, on.DeadlinePassed, on.OpeningFailed},
    "combining": ALWAYS | HOLDERS | {on.Answered, on.DeadlinePassed, on.OpeningFailed, on.Opened},
    "released": ALWAYS | HOLDERS | {on.Answered},
    "failed": ALWAYS | HOLDERS | {on.Answered},
}


def after(*events, boxed=False) -> Round:
    now = Round(SPEC, frozenset("abc"), min_survivors=1, holders=frozenset({1, 2, 3}), threshold=2, boxed=boxed)
    for event in events:
        now, _ = now.handle(event)
    return now


ONE_IN = (on.Arrived("a", SPEC, b"payload"), on.Kept("a"))
OPENING = (*ONE_IN, on.DeadlinePassed(), on.Charged(some_receipt()))
COMBINING = (*OPENING, on.Answered(1), on.Answered(2), on.HolderSilent(3, "no-answer"))
SITUATIONS = {
    "collecting": after(*ONE_IN),
    "waiting": after(ONE_IN[0], on.NotKept("a", "no-room", 1.0)),
    "keeping": after(ONE_IN[0]),
    "checking": after(*ONE_IN, on.DeadlinePassed(), boxed=True),
    "confirming": after(*ONE_IN, on.DeadlinePassed(), *(on.Checked(point, ()) for point in (1, 2, 3)), boxed=True),
    "charging": after(*ONE_IN, on.DeadlinePassed()),
    "opening": after(*OPENING),
    "combining": after(*COMBINING),
    "released": after(*COMBINING, on.Opened()),
    "failed": after(on.DeadlinePassed()),
}


def test_the_situations_are_what_they_are_called():
    others = {"waiting": State.COLLECTING, "keeping": State.COLLECTING, "combining": State.OPENING}
    for name, now in SITUATIONS.items():
        assert now.state is (others[name] if name in others else State[name.upper()])
    assert {name for name, now in SITUATIONS.items() if now.ended} == {"released", "failed"}
    assert len(EVENTS) == 16


@pytest.mark.parametrize(
    ("situation", "kind"), [(s, kind) for s, allowed in TABLE.items() for kind in EVENTS if kind in allowed]
)
def test_what_the_table_allows_is_handled_and_the_old_value_stays(situation, kind):
    now = SITUATIONS[situation]
    before = repr(now)
    following, effects = now.handle(EVENTS[kind])
    assert isinstance(following, Round) and isinstance(effects, tuple)
    assert repr(now) == before and now == SITUATIONS[situation]


@pytest.mark.parametrize(
    ("situation", "kind"), [(s, kind) for s, allowed in TABLE.items() for kind in EVENTS if kind not in allowed]
)
def test_what_it_does_not_allow_is_the_drivers_mistake_and_changes_nothing(situation, kind):
    now = SITUATIONS[situation]
    before = repr(now)
    with pytest.raises(RuntimeError):
        now.handle(EVENTS[kind])
    assert repr(now) == before


@pytest.mark.parametrize("situation", ["released", "failed"])
@pytest.mark.parametrize("kind", sorted(TABLE["failed"], key=lambda kind: kind.__name__))
def test_an_ended_round_is_the_same_value_whatever_comes(situation, kind):
    following, _ = SITUATIONS[situation].handle(EVENTS[kind])
    assert following is SITUATIONS[situation]


def test_the_code_has_no_wider_table():
    for state, allowed in ALLOWED.items():
        ours = set().union(*(TABLE[name] for name, now in SITUATIONS.items() if now.state is state))
        assert allowed == ours


def test_something_that_is_no_event_is_refused():
    with pytest.raises(RuntimeError, match="COLLECTING"):
        SITUATIONS["collecting"].handle("Arrived")  # type: ignore[arg-type]
