"""The directory's line of one key, as a pure value: an event in, a new line and messages out."""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from coherence_protocol.messages import (
    NOT_OWNER,
    Acknowledge,
    Ask,
    Committed,
    CopyState,
    Granted,
    Invalidate,
    Refused,
    Want,
)

Outgoing = tuple[str, Granted | Committed | Refused | Invalidate]
"""An agent, and an item of a message to it."""

_NOTHING: Final[tuple[Outgoing, ...]] = ()


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """An agent that may have a copy, the serial that it was granted under, and the end of its lease."""

    agent: str
    serial: int
    until: float


@dataclass(frozen=True, slots=True)
class Serving:
    """A request that waits for others to give up their copies; `asked_at`: when they were last recalled."""

    agent: str
    ask: Ask
    asked_at: float


class Now(NamedTuple):
    """The time on the directory's clock, and when a lease granted now runs out."""

    now: float
    until: float


@dataclass(frozen=True, slots=True)
class Line:
    """`version` counts committed writes; `serial` grows with every recall and every exclusive grant.

    A version identifies a value, a serial a tenure: messages under an older serial change nothing.
    """

    version: int = 0
    serial: int = 0
    holders: tuple[LeaseHolder, ...] = ()
    exclusive: bool = False
    serving: Serving | None = None
    waiting: frozenset[str] = frozenset()
    settled: tuple[tuple[str, int], ...] = ()
    """Agents with the serial of their last committed write: a repeated write-back gets the same answer."""

    @property
    def state(self) -> CopyState:
        """Pending while a request waits; else what the holders may do."""
        if self.serving is not None:
            return CopyState.PENDING
        if not self.holders:
            return CopyState.INVALID
        return CopyState.EXCLUSIVE if self.exclusive else CopyState.SHARED

    @property
    def owner(self) -> str | None:
        """The one agent that may write, if there is one."""
        return self.holders[0].agent if self.exclusive else None

    @property
    def sharers(self) -> frozenset[str]:
        """The agents that may have a copy, the owner included."""
        return frozenset(holder.agent for holder in self.holders)

    def ask(self, agent: str, ask: Ask, time: Now) -> tuple[Self, tuple[Outgoing, ...]]:
        """Serve a request, or start to. Raises `RuntimeError` while another request is served."""
        if self.serving is not None:
            raise RuntimeError(f"{ask.key} is Pending; leave the request in its channel until it is not")
        if ask.want is Want.WRITE_BACK:
            return self._take_back(agent, ask.key, ask.number)
        in_the_way = self._in_the_way(agent, ask.want)
        if in_the_way:
            serving = Serving(agent, ask, time.now)
            recalling = replace(self, serial=self.serial + 1, serving=serving, waiting=in_the_way)
            return recalling._recall(time)
        if ask.want is Want.EXCLUSIVE and self.owner != agent:
            return replace(self, serial=self.serial + 1)._grant(agent, ask, time)
        return self._grant(agent, ask, time)

    def acknowledge(self, agent: str, message: Acknowledge, time: Now) -> tuple[Self, tuple[Outgoing, ...]]:
        """Take an acknowledgement; one that nobody waits for changes nothing."""
        line, outgoing = self, _NOTHING
        if message.written is not None:
            line, outgoing = self._take_back(agent, message.key, message.written)
        if agent in line.waiting and message.serial == line.serial:
            line, more = line._without(agent)._granted_if_clear(time)
            outgoing = (*outgoing, *more)
        return line, outgoing

    def end_lease(self, agent: str, time: Now) -> tuple[Self, tuple[Outgoing, ...]]:
        """The lease of `agent` ran out: it counts as acknowledged, and an uncommitted write is lost."""
        return self._without(agent)._granted_if_clear(time)

    def repeat(self, time: Now) -> tuple[Self, tuple[Outgoing, ...]]:
        """Send the outstanding invalidations again."""
        return self._recall(time) if self.serving is not None else (self, ())

    def _in_the_way(self, agent: str, want: Want) -> frozenset[str]:
        if want is Want.SHARED and not self.exclusive:
            return frozenset()
        return self.sharers - {agent}

    def _recall(self, time: Now) -> tuple[Self, tuple[Outgoing, ...]]:
        serving = self.serving
        if serving is None:
            raise RuntimeError("nothing is being served: there is nobody to recall a copy for")
        recall = Invalidate(serving.ask.key, self.serial)
        outgoing = tuple((agent, recall) for agent in sorted(self.waiting))
        return replace(self, serving=replace(serving, asked_at=time.now)), outgoing

    def _granted_if_clear(self, time: Now) -> tuple[Self, tuple[Outgoing, ...]]:
        if self.serving is None or self.waiting:
            return self, ()
        return replace(self, serving=None)._grant(self.serving.agent, self.serving.ask, time)

    def _grant(self, agent: str, ask: Ask, time: Now) -> tuple[Self, tuple[Outgoing, ...]]:
        exclusive = ask.want is Want.EXCLUSIVE or self.owner == agent
        # an owner that asks again keeps its tenure: its write since the first grant can still be committed
        serial = self.holders[0].serial if self.owner == agent else self.serial
        others = tuple(holder for holder in self.holders if holder.agent != agent)
        holders = tuple(sorted((*others, LeaseHolder(agent, serial, time.until)), key=lambda holder: holder.agent))
        line = replace(self, holders=holders, exclusive=exclusive)
        return line, ((agent, Granted(ask.key, ask.number, self.version, serial, exclusive)),)

    def _take_back(self, agent: str, key: str, serial: int) -> tuple[Self, tuple[Outgoing, ...]]:
        if (agent, serial) in self.settled:
            return self, ((agent, Committed(key, serial)),)
        if self.owner != agent or serial != self.holders[0].serial:
            return self, ((agent, Refused(key, Want.WRITE_BACK, serial, NOT_OWNER)),)
        settled = (*(pair for pair in self.settled if pair[0] != agent), (agent, serial))
        # while we wait for it, it stays a holder: only its acknowledgement, or its lease, ends the wait
        line = self if agent in self.waiting else self._without(agent)
        return replace(line, version=self.version + 1, settled=settled), ((agent, Committed(key, serial)),)

    def _without(self, agent: str) -> Self:
        holders = tuple(holder for holder in self.holders if holder.agent != agent)
        return replace(
            self, holders=holders, exclusive=self.exclusive and bool(holders), waiting=self.waiting - {agent}
        )
