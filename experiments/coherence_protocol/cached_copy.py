"""An agent's copy of one key, as a pure value. All times are seconds on the agent's own clock."""

from dataclasses import dataclass, replace
from typing import Self

from coherence_protocol.messages import (
    NO_ANSWER,
    Acknowledge,
    Ask,
    Committed,
    CopyState,
    Granted,
    Invalidate,
    LeaseTerms,
    Refused,
    Want,
)


@dataclass(frozen=True, slots=True)
class Pending:
    """A request without an answer. Each time it is sent it gets a new `number`, and the time `sent_at`."""

    want: Want
    number: int
    sent_at: float
    give_up_at: float


@dataclass(frozen=True, slots=True)
class Copy:
    """One agent's copy. `serial` is the tenure it was granted under, `until` the end of its lease.

    `recalled` is the newest serial for which it was recalled: a grant under an older one is void.
    """

    state: CopyState = CopyState.INVALID
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
        return replace(self, state=CopyState.MODIFIED)

    def asking(self, pending: Pending) -> Self:
        """The copy while `pending` has no answer: it is neither read nor written."""
        return replace(self, state=CopyState.PENDING, pending=pending)

    def granted(self, message: Granted, now: float, terms: LeaseTerms) -> Self:
        """Take a grant; one for another request, one that was recalled and one that has run out change nothing.

        The lease counts from when the request was sent, which is before the directory began to count.
        """
        pending = self.pending
        if pending is None or pending.want is Want.WRITE_BACK or pending.number != message.number:
            return self
        until = pending.sent_at + terms.lease - terms.margin
        if message.serial < self.recalled or now >= until:
            return self
        state = CopyState.EXCLUSIVE if message.exclusive else CopyState.SHARED
        return replace(self, state=state, version=message.version, serial=message.serial, until=until, pending=None)

    def ended(self, message: Committed | Refused) -> Self:
        """Take the end of a write-back, or a refusal; one for another request changes nothing."""
        pending = self.pending
        want = message.want if isinstance(message, Refused) else Want.WRITE_BACK
        answers = pending is not None and (pending.want, pending.number) == (want, message.number)
        return self.dropped() if answers else self

    def invalidated(self, message: Invalidate, now: float, terms: LeaseTerms) -> tuple[Self, Acknowledge]:
        """Give up the copy if it is from before the recall, and acknowledge in any case.

        A modified copy is handed over with the acknowledgement and stays Pending until it is committed or refused.
        """
        copy = replace(self, recalled=max(self.recalled, message.serial))
        older = self.serial < message.serial
        if self.state is CopyState.MODIFIED and older:
            return copy.handing_over(now, terms), Acknowledge(message.key, message.serial, self.serial)
        if self.pending is not None and self.pending.want is Want.WRITE_BACK and older:
            return copy, Acknowledge(message.key, message.serial, self.serial)
        if self.state in _READABLE and older:
            return copy.dropped(), Acknowledge(message.key, message.serial)
        return copy, Acknowledge(message.key, message.serial)

    def handing_over(self, now: float, terms: LeaseTerms) -> Self:
        """A modified copy on its way to the directory; its serial is the number of the request."""
        return self.asking(Pending(Want.WRITE_BACK, self.serial, now, now + terms.patience))

    def lease_over(self, now: float, terms: LeaseTerms) -> Self:
        """The lease ran out, or the copy is evicted: a modified copy is handed over, another one is dropped."""
        if self.state is CopyState.MODIFIED:
            return self.handing_over(now, terms)
        return self.dropped() if self.state in _READABLE else self

    def given_up(self, key: str) -> tuple[Self, Refused | None]:
        """Stop waiting for an answer."""
        if self.pending is None:
            return self, None
        return self.dropped(), Refused(key, self.pending.want, self.pending.number, NO_ANSWER)

    def dropped(self) -> Self:
        """No copy, and nothing pending."""
        return replace(self, state=CopyState.INVALID, pending=None)

    def repeated(self, key: str, number: int, now: float) -> tuple[Self, Ask | None]:
        """Send again under a new `number`, so that the lease counts from now; a write-back keeps its serial."""
        pending = self.pending
        if pending is None:
            return self, None
        if pending.want is Want.WRITE_BACK:
            number = pending.number
        again = replace(pending, number=number, sent_at=now)
        return replace(self, pending=again), Ask(key, pending.want, number)


_READABLE = frozenset({CopyState.SHARED, CopyState.EXCLUSIVE, CopyState.MODIFIED})
_WRITABLE = frozenset({CopyState.EXCLUSIVE, CopyState.MODIFIED})
