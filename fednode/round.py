"""A round as a pure value: events in, effects out. No clock, no store, no network.

    COLLECTING --enough--> [CHECKING --boxes open--> CONFIRMING --signed-->] CHARGING --charged--> OPENING --> RELEASED
        |                     |                         |                       |                    |
        +--- too few, stopped +-------------------------+----------------> FAILED <-- refused, too few holders, rejected

CHECKING and CONFIRMING are there where clients box shares for the holders (`boxed`): a client whose box does not open
is struck from the roster, and as many holders as it takes to open sign what is left, before anything is charged.

`ALLOWED` is the whole table: an event that its state does not list is a mistake of ours and raises; a peer's mistake
never does, it ends as `Reject` or `Discard`. Everything that affects the state stands in this file.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

from fednode.privacy.ledger import Receipt


class State(Enum):
    """Where a round stands."""

    COLLECTING = auto()
    CHECKING = auto()
    CONFIRMING = auto()
    CHARGING = auto()
    OPENING = auto()
    RELEASED = auto()
    FAILED = auto()


# --- events: what happened -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """A well-formed update, signed by `client`: for which spec, and which bytes."""

    client: str
    spec_digest: bytes
    payload_digest: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """The update of `client` is in the store and in the sum."""

    client: str


@dataclass(frozen=True, slots=True)
class NotKept:
    """There was no room for the update of `client`; it is not in the sum and may be sent again."""

    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class Late:
    """An answer of `client` to an earlier round."""

    client: str


@dataclass(frozen=True, slots=True)
class Faulted:
    """Something from (or about) `client` that is no update: garbage, a refusal, an error on its side."""

    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The time to answer is over."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The operator wants the run to end."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A holder opened its boxes: `struck` are the clients whose box is no good."""

    point: int
    struck: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A holder signed that this roster is the one that it will open, and no other."""

    point: int


@dataclass(frozen=True, slots=True)
class Charged:
    """The ledger holds the charge, on disk."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class ChargeRefused:
    """The budget does not hold what these survivors cost; nothing was spent."""

    reason: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A holder's partial opening, well-formed and signed."""

    point: int


@dataclass(frozen=True, slots=True)
class HolderSilent:
    """A holder refused, failed or ran out of time."""

    point: int
    reason: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The sum is open and passed its checks."""


@dataclass(frozen=True, slots=True)
class OpeningFailed:
    """What came out is not what honest holders open."""

    reason: str


Event = (
    Arrived
    | Kept
    | NotKept
    | Late
    | Faulted
    | DeadlinePassed
    | StopAsked
    | Checked
    | Confirmed
    | Charged
    | ChargeRefused
    | Answered
    | HolderSilent
    | Opened
    | OpeningFailed
)

# --- effects: what the driver has to do ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Keep:
    """Store this client's update and fold it into the sum."""

    client: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Count a fault against `client`."""

    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Count something harmless that came too late or twice."""

    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class Check:
    """Give every holder its boxes of these clients."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Strike:
    """Take the updates of these clients out of the sum: a holder could not open their boxes."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confirm:
    """Have every holder that could check sign the final roster: these clients."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Charge:
    """Charge the ledger with what these survivors added."""

    survivors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """Ask every holder for its part; the receipt is the right to do so."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Combine:
    """Put the answers of these holders together."""

    points: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the new model back: the receipt goes into the release."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Fail:
    """End the round without a release."""

    cause: str
    reason: str


Effect = Keep | Reject | Discard | Check | Strike | Confirm | Charge | Open | Combine | Publish | Fail

ALLOWED: dict[State, frozenset[type]] = {
    State.COLLECTING: frozenset({Arrived, Kept, NotKept, Late, Faulted, DeadlinePassed, StopAsked}),
    State.CHECKING: frozenset({Arrived, Late, Faulted, Checked, HolderSilent, DeadlinePassed, StopAsked}),
    State.CONFIRMING: frozenset({Arrived, Late, Faulted, Checked, Confirmed, HolderSilent, DeadlinePassed, StopAsked}),
    State.CHARGING: frozenset({Arrived, Late, Faulted, Charged, ChargeRefused}),
    State.OPENING: frozenset(
        {Arrived, Late, Faulted, Checked, Confirmed, Answered, HolderSilent, DeadlinePassed, Opened, OpeningFailed}
    ),
    State.RELEASED: frozenset({Arrived, Late, Faulted, Checked, Confirmed, Answered, HolderSilent}),
    State.FAILED: frozenset({Arrived, Late, Faulted, Checked, Confirmed, Answered, HolderSilent}),
}


@dataclass(frozen=True, slots=True)
class Round:
    """One round. `handle` returns the next value and the effects; `self` never changes.

    `survivors` are the clients whose update is in the sum, in the order in which they came.
    """

    spec_digest: bytes
    invited: frozenset[str]
    min_survivors: int
    holders: frozenset[int]
    threshold: int
    boxed: bool = False
    state: State = State.COLLECTING
    arrived: tuple[tuple[str, bytes], ...] = ()
    survivors: tuple[str, ...] = ()
    faulted: frozenset[str] = frozenset()
    checked: frozenset[int] = frozenset()
    struck: frozenset[str] = frozenset()
    confirmed: frozenset[int] = frozenset()
    answered: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    combining: bool = False
    receipt: Receipt | None = field(default=None, repr=False)

    @property
    def ended(self) -> bool:
        """Whether nothing can change any more."""
        return self.state in (State.RELEASED, State.FAILED)

    def handle(self, event: Event) -> "tuple[Round, tuple[Effect, ...]]":
        """The next value of the round and what is to be done now.

        `Keep` is answered with `Kept` or `NotKept` before anything else happens: an update that is in the sum but not
        yet among the survivors must never be charged or opened over.

        Raises `RuntimeError` for an event that this state does not allow: that is a mistake of the driver.
        """
        if type(event) not in ALLOWED[self.state]:
            raise RuntimeError(f"{type(event).__name__} in {self.state.name}: the driver asked out of order")
        if len(self.arrived) > len(self.survivors) + len(self.struck) and not isinstance(event, Kept | NotKept):
            raise RuntimeError(f"{type(event).__name__} before {self.arrived[-1][0]} was kept or not")
        return _HANDLERS[type(event)](self, event)


Step = tuple[Round, tuple[Effect, ...]]


def _arrived(now: Round, event: Arrived) -> Step:
    if event.client not in now.invited:
        return now, (Reject(event.client, "stranger"),)
    known = dict(now.arrived)
    if event.client in known:
        same = known[event.client] == event.payload_digest
        return now, (Discard(event.client, "repeat"),) if same else (Reject(event.client, "second-update"),)
    if event.spec_digest != now.spec_digest:
        return _count_fault(now, event.client, "another-round")
    if now.state is not State.COLLECTING:
        return now, (Discard(event.client, "late"),)
    return replace(now, arrived=(*now.arrived, (event.client, event.payload_digest))), (Keep(event.client),)


def _kept(now: Round, event: Kept) -> Step:
    _require_pending(now, event.client)
    return _when_complete(replace(now, survivors=(*now.survivors, event.client)), ())


def _require_pending(now: Round, client: str) -> None:
    if client not in dict(now.arrived) or client in now.survivors:
        raise RuntimeError(f"there is nothing of {client} to keep: it has not arrived, or it is in the sum already")


def _not_kept(now: Round, event: NotKept) -> Step:
    _require_pending(now, event.client)
    arrived = tuple(item for item in now.arrived if item[0] != event.client)
    after = replace(now, arrived=arrived, faulted=now.faulted | {event.client})
    return _when_complete(after, (Discard(event.client, event.reason),))


def _late(now: Round, event: Late) -> Step:
    return now, (Discard(event.client, "late"),)


def _faulted(now: Round, event: Faulted) -> Step:
    return _count_fault(now, event.client, event.reason)


def _count_fault(now: Round, client: str, reason: str) -> Step:
    effects: tuple[Effect, ...] = (Reject(client, reason),)
    if now.state is not State.COLLECTING or client not in now.invited:
        return now, effects
    return _when_complete(replace(now, faulted=now.faulted | {client}), effects)


def _when_complete(now: Round, effects: tuple[Effect, ...]) -> Step:
    """Go on early when nobody is left to wait for."""
    if now.invited - set(now.survivors) - now.faulted:
        return now, effects
    after, more = _close(now)
    return after, effects + more


def _close(now: Round) -> Step:
    if len(now.survivors) < now.min_survivors:
        there = f"{len(now.survivors)} of {len(now.invited)} updates {'are left' if now.struck else 'arrived'}"
        reason = f"{there} and {now.min_survivors} are the least that may be opened"
        return replace(now, state=State.FAILED), (Fail("too-few-survivors", reason),)
    if now.boxed and now.state is State.COLLECTING:
        return replace(now, state=State.CHECKING), (Check(now.survivors),)
    if now.state is State.CHECKING:
        return replace(now, state=State.CONFIRMING), (Confirm(now.survivors),)
    return replace(now, state=State.CHARGING), (Charge(now.survivors),)


def _checked(now: Round, event: Checked) -> Step:
    if now.state is not State.CHECKING or event.point not in now.holders:
        return now, ()
    struck = now.struck | (frozenset(event.struck) & set(now.survivors))
    return _when_checked(replace(now, checked=now.checked | {event.point}, struck=struck))


def _when_checked(now: Round) -> Step:
    """Go on with the holders that could check, and without the clients that any of them struck."""
    if now.holders - now.checked - now.silent:
        return now, ()
    if len(now.checked) < now.threshold:
        return replace(now, state=State.FAILED), (_too_few_holders(now, len(now.checked)),)
    struck = tuple(client for client in now.survivors if client in now.struck)
    kept = tuple(client for client in now.survivors if client not in now.struck)
    effects: tuple[Effect, ...] = (Strike(struck),) if struck else ()
    after, more = _close(replace(now, holders=now.checked, silent=frozenset(), survivors=kept))
    return after, effects + more


def _confirmed(now: Round, event: Confirmed) -> Step:
    if now.state is not State.CONFIRMING or event.point not in now.holders:
        return now, ()
    return _when_confirmed(replace(now, confirmed=now.confirmed | {event.point}))


def _when_confirmed(now: Round) -> Step:
    """Charge once all have signed that can: fewer than it takes to open would open nothing."""
    if now.holders - now.confirmed - now.silent:
        return now, ()
    if len(now.confirmed) < now.threshold:
        return replace(now, state=State.FAILED), (_too_few_holders(now, len(now.confirmed)),)
    return _close(replace(now, holders=now.confirmed, silent=frozenset()))


def _too_few_holders(now: Round, there: int) -> Fail:
    reason = f"{there} of {len(now.holders)} holders answered and {now.threshold} are needed to open"
    return Fail("too-few-holders", reason)


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
    return replace(now, state=State.FAILED), (Fail("stopped", "the operator asked to stop; nothing was opened"),)


def _charged(now: Round, event: Charged) -> Step:
    return replace(now, state=State.OPENING, receipt=event.receipt), (Open(event.receipt),)


def _charge_refused(now: Round, event: ChargeRefused) -> Step:
    return replace(now, state=State.FAILED), (Fail("budget", event.reason),)


def _answered(now: Round, event: Answered) -> Step:
    if now.state is not State.OPENING or now.combining or event.point not in now.holders:
        return now, ()
    return _combine_or_fail(replace(now, answered=now.answered | {event.point}))


def _silent(now: Round, event: HolderSilent) -> Step:
    if now.state is State.CHECKING and event.point in now.holders:
        return _when_checked(replace(now, silent=now.silent | {event.point}))
    if now.state is State.CONFIRMING and event.point in now.holders:
        return _when_confirmed(replace(now, silent=now.silent | {event.point}))
    if now.state is not State.OPENING or now.combining or event.point not in now.holders:
        return now, ()
    return _combine_or_fail(replace(now, silent=now.silent | {event.point}))


def _combine_or_fail(now: Round) -> Step:
    """Wait for every holder that may still answer: each answer beyond the threshold is a check on the others."""
    if now.holders - now.answered - now.silent:
        return now, ()
    if len(now.answered) < now.threshold:
        return replace(now, state=State.FAILED), (_too_few_holders(now, len(now.answered)),)
    return replace(now, combining=True), (Combine(tuple(sorted(now.answered))),)


def _opened(now: Round, _: Opened) -> Step:
    if now.receipt is None or not now.combining:
        raise RuntimeError("opened without a receipt, or before the answers were put together")
    return replace(now, state=State.RELEASED), (Publish(now.receipt),)


def _opening_failed(now: Round, event: OpeningFailed) -> Step:
    return replace(now, state=State.FAILED), (Fail("opening-rejected", event.reason),)


_HANDLERS: dict[type, Callable[[Round, Any], Step]] = {
    Arrived: _arrived,
    Kept: _kept,
    NotKept: _not_kept,
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
