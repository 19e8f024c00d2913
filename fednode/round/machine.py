"""The state machine of one round, as a frozen value: events in, effects out. No clock, no store, no network.

    COLLECTING --enough--> [CHECKING --boxes open--> CONFIRMING --signed-->] CHARGING --charged--> OPENING --> RELEASED
        |                     |                         |                       |                    |
        +--- too few, stopped +-------------------------+----------------> FAILED <-- refused, too few holders, rejected

The states CHECKING and CONFIRMING exist only where clients box shares for the holders (`boxed`). A client whose box is
shown to be wrong is excluded from the roster; a holder that says so of a good one is out of the round. `threshold`
holders sign the remaining roster before anything is charged.

The node may have no room for an update. Its client is then asked again, up to `most_asks` times:
    Arrived -> Keep -> NotKept(wait) -> AskLater -> WaitOver -> AskAgain -> Arrived, with the same bytes
Until then the round counts the client as missing and waits for it. Only the update that found no room is accepted.

`ALLOWED` is the whole table. An event that the present state does not list is a bug in the driver and raises. A peer's
fault never raises: it ends as `Reject` or `Discard`. Everything that affects the state is in this file.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

from fednode.privacy.ledger import Receipt
from fednode.reasons import Reason
from fednode.round import effects
from fednode.round.events import (
    Answered,
    Arrived,
    Charged,
    ChargeRefused,
    Checked,
    Confirmed,
    DeadlinePassed,
    Event,
    Faulted,
    HolderSilent,
    Kept,
    Late,
    NotKept,
    Opened,
    OpeningFailed,
    StopAsked,
    WaitOver,
)

MOST_ASKS = 3
"""How often one round asks a client again for an update that found no room."""


class State(Enum):
    """The state of a round."""

    COLLECTING = auto()
    CHECKING = auto()
    CONFIRMING = auto()
    CHARGING = auto()
    OPENING = auto()
    RELEASED = auto()
    FAILED = auto()


_FROM_CLIENTS = frozenset({Arrived, Late, Faulted})
_FROM_HOLDERS = frozenset({Checked, Confirmed, HolderSilent})
_INTERRUPTIONS = frozenset({DeadlinePassed, StopAsked})

ALLOWED: dict[State, frozenset[type]] = {
    State.COLLECTING: _FROM_CLIENTS | _INTERRUPTIONS | {Kept, NotKept, WaitOver},
    State.CHECKING: _FROM_CLIENTS | _INTERRUPTIONS | {Checked, HolderSilent},
    State.CONFIRMING: _FROM_CLIENTS | _INTERRUPTIONS | _FROM_HOLDERS,
    State.CHARGING: _FROM_CLIENTS | {Charged, ChargeRefused},
    State.OPENING: _FROM_CLIENTS | _FROM_HOLDERS | {Answered, DeadlinePassed, Opened, OpeningFailed},
    State.RELEASED: _FROM_CLIENTS | _FROM_HOLDERS | {Answered},
    State.FAILED: _FROM_CLIENTS | _FROM_HOLDERS | {Answered},
}


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A client whose update found no room. `asks` counts how often it was asked again; `asked` is True while its answer
    to that is awaited."""

    client: str
    update_digest: bytes
    asks: int = 0
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """One round. `handle` returns the next value and the effects; `self` never changes.

    `survivors` are the clients whose update is in the sum, in order of arrival. `holders` are the points of the holders
    that can still open; `checked`, `confirmed` and `answered` those that did their part of each step; `silent` those
    that failed or timed out in the present step.
    """

    spec_digest: bytes
    invited: frozenset[str]
    min_survivors: int
    holders: frozenset[int]
    threshold: int
    boxed: bool = False
    most_asks: int = MOST_ASKS
    state: State = State.COLLECTING
    arrived: tuple[tuple[str, bytes], ...] = ()
    survivors: tuple[str, ...] = ()
    turned_away: tuple[TurnedAway, ...] = ()
    faulted: frozenset[str] = frozenset()
    checked: frozenset[int] = frozenset()
    excluded: frozenset[str] = frozenset()
    confirmed: frozenset[int] = frozenset()
    answered: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    combining: bool = False
    receipt: Receipt | None = field(default=None, repr=False)

    @property
    def ended(self) -> bool:
        """True once the round is released or has failed."""
        return self.state in (State.RELEASED, State.FAILED)

    def handle(self, event: Event) -> "tuple[Round, tuple[effects.Effect, ...]]":
        """Return the next value of the round, and the effects to execute in order.

        The driver answers `Keep` with `Kept` or `NotKept` before any other event. Otherwise the round could charge and
        open a sum that holds an update of a client that is not among the survivors.

        Raises `RuntimeError` for an event that the present state does not allow: that is a bug in the driver.
        """
        if type(event) not in ALLOWED[self.state]:
            raise RuntimeError(f"{type(event).__name__} is not allowed in state {self.state.name}")
        if len(self.arrived) > len(self.survivors) + len(self.excluded) and not isinstance(event, Kept | NotKept):
            raise RuntimeError(f"{type(event).__name__} before Kept or NotKept of {self.arrived[-1][0]}")
        return _HANDLERS[type(event)](self, event)


Step = tuple[Round, tuple[effects.Effect, ...]]


def _arrived(now: Round, event: Arrived) -> Step:
    if event.client not in now.invited:
        return now, (effects.Reject(event.client, Reason.STRANGER),)
    known = dict(now.arrived)
    if event.client in known:
        same = known[event.client] == event.update_digest
        return now, (effects.Discard(event.client, Reason.REPEAT),) if same else (
            effects.Reject(event.client, Reason.SECOND_UPDATE),
        )
    turned = _turned_away(now, event.client)
    if turned is not None and turned.update_digest != event.update_digest:
        return _count_fault(now, event.client, Reason.SECOND_UPDATE)
    if event.spec_digest != now.spec_digest:
        return _count_fault(now, event.client, Reason.ANOTHER_ROUND)
    if now.state is not State.COLLECTING:
        return now, (effects.Discard(event.client, Reason.LATE),)
    if turned is not None and not turned.asked:
        # try the store once each time the client is asked, however many copies arrive
        return now, (effects.Discard(event.client, Reason.REPEAT),)
    return replace(now, arrived=(*now.arrived, (event.client, event.update_digest))), (effects.Keep(event.client),)


def _turned_away(now: Round, client: str) -> TurnedAway | None:
    return next((turned for turned in now.turned_away if turned.client == client), None)


def _others(now: Round, client: str) -> tuple[TurnedAway, ...]:
    return tuple(turned for turned in now.turned_away if turned.client != client)


def _kept(now: Round, event: Kept) -> Step:
    _require_pending(now, event.client)
    after = replace(now, survivors=(*now.survivors, event.client), turned_away=_others(now, event.client))
    return _when_complete(after)


def _require_pending(now: Round, client: str) -> None:
    # what arrived last, if it is not in the sum yet: `handle` lets nothing come in between
    pending = len(now.arrived) > len(now.survivors) + len(now.excluded)
    if not pending or now.arrived[-1][0] != client:
        raise RuntimeError(f"no update of {client} is pending: it has not arrived, or it is in the sum already")


def _not_kept(now: Round, event: NotKept) -> Step:
    _require_pending(now, event.client)
    client, digest = now.arrived[-1]
    arrived = now.arrived[:-1]
    before = _turned_away(now, client) or TurnedAway(client, digest)
    turned = (*_others(now, client), replace(before, asked=False))
    after = replace(now, arrived=arrived, turned_away=turned)
    if event.wait is None or before.asks >= now.most_asks:
        after = replace(after, faulted=now.faulted | {client})
        return _when_complete(after, (effects.Discard(client, event.reason),))
    after = replace(after, faulted=now.faulted - {client})
    return after, (effects.Discard(client, Reason.NO_ROOM_YET), effects.AskLater(client, event.wait))


def _wait_over(now: Round, event: WaitOver) -> Step:
    turned = _turned_away(now, event.client)
    if turned is None or not _waits(now, event.client):
        raise RuntimeError(f"{event.client} is not waiting to be asked again")
    asked = replace(turned, asks=turned.asks + 1, asked=True)
    return replace(now, turned_away=(*_others(now, event.client), asked)), (effects.AskAgain(event.client),)


def _waits(now: Round, client: str) -> bool:
    """True while a client waits to be asked again. Nothing that it sends unasked ends the wait."""
    turned = _turned_away(now, client)
    return turned is not None and not turned.asked and client not in now.faulted


def _late(now: Round, event: Late) -> Step:
    return now, (effects.Discard(event.client, Reason.LATE),)


def _faulted(now: Round, event: Faulted) -> Step:
    return _count_fault(now, event.client, event.reason)


def _count_fault(now: Round, client: str, reason: str) -> Step:
    rejected = (effects.Reject(client, reason),)
    if now.state is not State.COLLECTING or client not in now.invited or _waits(now, client):
        return now, rejected
    return _when_complete(replace(now, faulted=now.faulted | {client}), rejected)


def _when_complete(now: Round, first: tuple[effects.Effect, ...] = ()) -> Step:
    """Return `first`, and close the collection before the deadline if no invited client is missing."""
    some_missing = len(now.survivors) + len(now.faulted) < len(now.invited)
    if some_missing or now.invited - set(now.survivors) - now.faulted:
        return now, first
    after, more = _close(now)
    return after, first + more


def _close(now: Round) -> Step:
    if len(now.survivors) < now.min_survivors:
        there = f"{len(now.survivors)} of {len(now.invited)} updates {'are left' if now.excluded else 'arrived'}"
        reason = f"{there} and {now.min_survivors} are the least that may be opened"
        return replace(now, state=State.FAILED), (effects.Fail("too-few-survivors", reason),)
    if now.boxed and now.state is State.COLLECTING:
        return replace(now, state=State.CHECKING), (effects.CheckBoxes(now.survivors),)
    if now.state is State.CHECKING:
        return replace(now, state=State.CONFIRMING), (effects.Confirm(now.survivors),)
    return replace(now, state=State.CHARGING), (effects.ChargeBudget(now.survivors),)


def _checked(now: Round, event: Checked) -> Step:
    if now.state is not State.CHECKING or event.point not in now.holders:
        return now, ()
    excluded = now.excluded | (frozenset(event.excluded) & set(now.survivors))
    return _when_checked(replace(now, checked=now.checked | {event.point}, excluded=excluded))


def _when_checked(now: Round) -> Step:
    """Once every holder has checked or failed, go on with the holders that checked, without the excluded clients."""
    if now.holders - now.checked - now.silent:
        return now, ()
    if len(now.checked) < now.threshold:
        return replace(now, state=State.FAILED), (_too_few_holders(now, len(now.checked)),)
    excluded = tuple(client for client in now.survivors if client in now.excluded)
    kept = tuple(client for client in now.survivors if client not in now.excluded)
    first = (effects.Exclude(excluded),) if excluded else ()
    after, more = _close(replace(now, holders=now.checked, silent=frozenset(), survivors=kept))
    return after, first + more


def _confirmed(now: Round, event: Confirmed) -> Step:
    if now.state is not State.CONFIRMING or event.point not in now.holders:
        return now, ()
    return _when_confirmed(replace(now, confirmed=now.confirmed | {event.point}))


def _when_confirmed(now: Round) -> Step:
    """Once every holder has signed or failed, charge, if enough signed to open the sum."""
    if now.holders - now.confirmed - now.silent:
        return now, ()
    if len(now.confirmed) < now.threshold:
        return replace(now, state=State.FAILED), (_too_few_holders(now, len(now.confirmed)),)
    return _close(replace(now, holders=now.confirmed, silent=frozenset()))


def _too_few_holders(now: Round, there: int) -> effects.Fail:
    reason = f"{there} of {len(now.holders)} holders answered and {now.threshold} are needed to open"
    return effects.Fail("too-few-holders", reason)


def _deadline(now: Round, _: DeadlinePassed) -> Step:
    if now.state is State.COLLECTING:
        return _close(now)
    if now.state is State.CHECKING:
        return _when_checked(replace(now, silent=now.holders - now.checked))
    if now.state is State.CONFIRMING:
        return _when_confirmed(replace(now, silent=now.holders - now.confirmed))
    if now.combining:
        return now, ()
    return _combine_or_fail(replace(now, silent=now.holders - now.answered))


def _stop(now: Round, _: StopAsked) -> Step:
    return replace(now, state=State.FAILED), (
        effects.Fail("stopped", "the operator asked to stop; nothing was opened"),
    )


def _charged(now: Round, event: Charged) -> Step:
    return replace(now, state=State.OPENING, receipt=event.receipt), (effects.Open(event.receipt),)


def _charge_refused(now: Round, event: ChargeRefused) -> Step:
    return replace(now, state=State.FAILED), (effects.Fail("budget", event.reason),)


def _answered(now: Round, event: Answered) -> Step:
    if now.state is not State.OPENING or now.combining or event.point not in now.holders:
        return now, ()
    return _combine_or_fail(replace(now, answered=now.answered | {event.point}))


def _silent(now: Round, event: HolderSilent) -> Step:
    if now.state is State.CHECKING and event.point in now.holders:
        if event.reason == Reason.FALSE_COMPLAINT:
            # out of the round, whatever it said before or says later
            return _when_checked(replace(now, holders=now.holders - {event.point}, checked=now.checked - {event.point}))
        return _when_checked(replace(now, silent=now.silent | {event.point}))
    if now.state is State.CONFIRMING and event.point in now.holders:
        return _when_confirmed(replace(now, silent=now.silent | {event.point}))
    if now.state is not State.OPENING or now.combining or event.point not in now.holders:
        return now, ()
    return _combine_or_fail(replace(now, silent=now.silent | {event.point}))


def _combine_or_fail(now: Round) -> Step:
    """Once every holder has answered or failed, combine. Each answer beyond the threshold is a check on the others."""
    if now.holders - now.answered - now.silent:
        return now, ()
    if len(now.answered) < now.threshold:
        return replace(now, state=State.FAILED), (_too_few_holders(now, len(now.answered)),)
    return replace(now, combining=True), (effects.Combine(tuple(sorted(now.answered))),)


def _opened(now: Round, _: Opened) -> Step:
    if now.receipt is None or not now.combining:
        raise RuntimeError("opened without a receipt, or before the answers were combined")
    return replace(now, state=State.RELEASED), (effects.Publish(now.receipt),)


def _opening_failed(now: Round, event: OpeningFailed) -> Step:
    return replace(now, state=State.FAILED), (effects.Fail("opening-rejected", event.reason),)


_HANDLERS: dict[type, Callable[[Round, Any], Step]] = {
    Arrived: _arrived,
    Kept: _kept,
    NotKept: _not_kept,
    WaitOver: _wait_over,
    Late: _late,
    Faulted: _faulted,
    DeadlinePassed: _deadline,
    StopAsked: _stop,
    Checked: _checked,
    Confirmed: _confirmed,
    Charged: _charged,
    ChargeRefused: _charge_refused,
    Answered: _answered,
    HolderSilent: _silent,
    Opened: _opened,
    OpeningFailed: _opening_failed,
}
