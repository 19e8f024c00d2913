"""The table of a round, written out by hand: what each situation takes, and that it takes nothing else."""

import pytest
from kit.members import some_receipt

from fednode.round import (
    ALLOWED,
    Answered,
    Arrived,
    Charged,
    ChargeRefused,
    Checked,
    Confirmed,
    DeadlinePassed,
    Faulted,
    HolderSilent,
    Kept,
    Late,
    NotKept,
    Opened,
    OpeningFailed,
    Round,
    State,
    StopAsked,
    WaitOver,
)

SPEC = b"s" * 32
EVENTS = {
    Arrived: Arrived("b", SPEC, b"payload"),
    Kept: Kept("a"),
    NotKept: NotKept("a", "no-room"),
    WaitOver: WaitOver("a"),
    Late: Late("b"),
    Faulted: Faulted("b", "garbage"),
    DeadlinePassed: DeadlinePassed(),
    StopAsked: StopAsked(),
    Checked: Checked(2, ("a",)),
    Confirmed: Confirmed(2),
    Charged: Charged(some_receipt()),
    ChargeRefused: ChargeRefused("no budget"),
    Answered: Answered(2),
    HolderSilent: HolderSilent(2, "no-answer"),
    Opened: Opened(),
    OpeningFailed: OpeningFailed("residual"),
}
ALWAYS = {Arrived, Late, Faulted}
TABLE = {
    "collecting": ALWAYS | {DeadlinePassed, StopAsked},
    "waiting": ALWAYS | {WaitOver, DeadlinePassed, StopAsked},
    "keeping": {Kept, NotKept},
    "checking": ALWAYS | {Checked, HolderSilent, DeadlinePassed, StopAsked},
    "confirming": ALWAYS | {Checked, Confirmed, HolderSilent, DeadlinePassed, StopAsked},
    "charging": ALWAYS | {Charged, ChargeRefused},
    "opening": ALWAYS | {Checked, Confirmed, Answered, HolderSilent, DeadlinePassed, OpeningFailed},
    "combining": ALWAYS | {Checked, Confirmed, Answered, HolderSilent, DeadlinePassed, OpeningFailed, Opened},
    "released": ALWAYS | {Checked, Confirmed, Answered, HolderSilent},
    "failed": ALWAYS | {Checked, Confirmed, Answered, HolderSilent},
}


def after(*events, boxed=False) -> Round:
    now = Round(SPEC, frozenset("abc"), min_survivors=1, holders=frozenset({1, 2, 3}), threshold=2, boxed=boxed)
    for event in events:
        now, _ = now.handle(event)
    return now


ONE_IN = (Arrived("a", SPEC, b"payload"), Kept("a"))
OPENING = (*ONE_IN, DeadlinePassed(), Charged(some_receipt()))
COMBINING = (*OPENING, Answered(1), Answered(2), HolderSilent(3, "no-answer"))
SITUATIONS = {
    "collecting": after(*ONE_IN),
    "waiting": after(ONE_IN[0], NotKept("a", "no-room", 1.0)),
    "keeping": after(ONE_IN[0]),
    "checking": after(*ONE_IN, DeadlinePassed(), boxed=True),
    "confirming": after(*ONE_IN, DeadlinePassed(), Checked(1, ()), Checked(2, ()), Checked(3, ()), boxed=True),
    "charging": after(*ONE_IN, DeadlinePassed()),
    "opening": after(*OPENING),
    "combining": after(*COMBINING),
    "released": after(*COMBINING, Opened()),
    "failed": after(DeadlinePassed()),
}


def test_the_situations_are_what_they_are_called():
    states = {name: now.state for name, now in SITUATIONS.items()}
    assert states == {
        "collecting": State.COLLECTING,
        "waiting": State.COLLECTING,
        "keeping": State.COLLECTING,
        "checking": State.CHECKING,
        "confirming": State.CONFIRMING,
        "charging": State.CHARGING,
        "opening": State.OPENING,
        "combining": State.OPENING,
        "released": State.RELEASED,
        "failed": State.FAILED,
    }
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
@pytest.mark.parametrize(
    "kind", sorted(ALWAYS | {Checked, Confirmed, Answered, HolderSilent}, key=lambda kind: kind.__name__)
)
def test_an_ended_round_is_the_same_value_whatever_comes(situation, kind):
    following, _ = SITUATIONS[situation].handle(EVENTS[kind])
    assert following is SITUATIONS[situation]


def test_the_code_has_no_wider_table():
    for state, allowed in ALLOWED.items():
        ours = set().union(*(TABLE[name] for name, now in SITUATIONS.items() if now.state is state))
        assert allowed == ours


def test_something_that_is_no_event_is_refused():
    with pytest.raises(RuntimeError, match="out of order"):
        SITUATIONS["collecting"].handle("Arrived")  # type: ignore[arg-type]
