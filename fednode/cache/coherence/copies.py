"""One key as an agent sees it: a pure value. All times are seconds on the agent's own clock."""

from dataclasses import dataclass, replace
from typing import Self

from fednode.cache.coherence.messages import (
    NO_ANSWER,
    Acknowledge,
    Ask,
    Committed,
    Granted,
    Invalidate,
    Refused,
    State,
    Terms,
    Want,
)


@dataclass(frozen=True, slots=True)
class Pending:
    """A request without an answer. Each time it is said again it has a new `number`, sent at `sent_at`."""

    want: Want
    number: int
    sent_at: float
    give_up_at: float


@dataclass(frozen=True, slots=True)
class Copy:
    """One agent's copy. `serial` is the tenure it was granted under, `until` the end of its lease.

    `recalled` is the newest serial that it was told to give up for: a grant under an older one is no use any more.
    """

    state: State = State.INVALID
    version: int = 0
    serial: int = 0
    until: float = 0.0
    recalled: int = 0
    pending: Pending | None = None

    def readable(self, now: float) -> bool:
        """Whether this copy may be read: its state allows it and its lease runs."""
        return self.state in _READABLE and now < self.until

    def writable(self, now: float) -> bool:
        """Whether this copy may be written."""
        return self.state in _WRITABLE and now < self.until

    def written(self) -> Self:
        """The copy after a write. Only where `writable`."""
        return replace(self, state=State.MODIFIED)

    def asking(self, pending: Pending) -> Self:
        """The copy while `pending` has no answer: nobody reads it or writes to it."""
        return replace(self, state=State.PENDING, pending=pending)

    def granted(self, said: Granted, now: float, terms: Terms) -> Self:
        """Take a grant; one that answers another request, was recalled or has already run out is no answer.

        The lease counts from when the request was sent, which is before the directory began to count.
        """
        pending = self.pending
        if pending is None or pending.want is Want.WRITE_BACK or pending.number != said.number:
            return self
        until = pending.sent_at + terms.lease - terms.margin
        if said.serial < self.recalled or now >= until:
            return self
        state = State.EXCLUSIVE if said.exclusive else State.SHARED
        return replace(self, state=state, version=said.version, serial=said.serial, until=until, pending=None)

    def ended(self, said: Committed | Refused) -> Self:
        """Take the end of a write-back or a refusal; the same copy where it answers something else."""
        pending = self.pending
        want = said.want if isinstance(said, Refused) else Want.WRITE_BACK
        answers = pending is not None and (pending.want, pending.number) == (want, said.number)
        return self.dropped() if answers else self

    def invalidated(self, said: Invalidate, now: float, terms: Terms) -> tuple[Self, Acknowledge]:
        """Give up the copy if it is from before the recall, and acknowledge in any case.

        A changed copy is handed over with the acknowledgement and stays Pending until it is known to be committed.
        """
        copy = replace(self, recalled=max(self.recalled, said.serial))
        older = self.serial < said.serial
        if self.state is State.MODIFIED and older:
            return copy.handing_over(now, terms), Acknowledge(said.key, said.serial, self.serial)
        if self.pending is not None and self.pending.want is Want.WRITE_BACK and older:
            return copy, Acknowledge(said.key, said.serial, self.serial)
        if self.state in _READABLE and older:
            return copy.dropped(), Acknowledge(said.key, said.serial)
        return copy, Acknowledge(said.key, said.serial)

    def handing_over(self, now: float, terms: Terms) -> Self:
        """A changed copy on its way back to the directory; its serial is its number."""
        return self.asking(Pending(Want.WRITE_BACK, self.serial, now, now + terms.patience))

    def lease_over(self, now: float, terms: Terms) -> Self:
        """The lease ran out, or the copy is evicted: a changed copy is handed over, another one goes."""
        if self.state is State.MODIFIED:
            return self.handing_over(now, terms)
        return self.dropped() if self.state in _READABLE else self

    def given_up(self, key: str) -> tuple[Self, Refused | None]:
        """Stop waiting for an answer."""
        if self.pending is None:
            return self, None
        return self.dropped(), Refused(key, self.pending.want, self.pending.number, NO_ANSWER)

    def dropped(self) -> Self:
        """No copy, and nothing pending."""
        return replace(self, state=State.INVALID, pending=None)

    def repeated(self, key: str, number: int, now: float) -> tuple[Self, Ask | None]:
        """Ask again under a new `number`, so that the lease counts from this time; a write-back keeps its serial."""
        pending = self.pending
        if pending is None:
            return self, None
        if pending.want is Want.WRITE_BACK:
            number = pending.number
        again = replace(pending, number=number, sent_at=now)
        return replace(self, pending=again), Ask(key, pending.want, number)


_READABLE = frozenset({State.SHARED, State.EXCLUSIVE, State.MODIFIED})
_WRITABLE = frozenset({State.EXCLUSIVE, State.MODIFIED})
