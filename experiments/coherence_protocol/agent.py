"""An agent: the copies of one cache, as a pure value. Each event carries the time on the agent's own clock."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from coherence_protocol.cached_copy import Copy, Pending
from coherence_protocol.messages import (
    Acknowledge,
    Acknowledgements,
    Answers,
    Ask,
    CopyState,
    Granted,
    Invalidations,
    LeaseTerms,
    Refused,
    Requests,
    ToAgent,
    ToDirectory,
    Want,
)

_NOTHING = Copy()


class AgentTurn(NamedTuple):
    """The agent after an event, the messages that it sends, and its requests that were refused."""

    agent: "Agent"
    messages: tuple[ToDirectory, ...] = ()
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True)
class Agent:
    """The copies of the agent `name`. An agent that lost its memory must come back under a new name.

    The cache that holds the values calls `version` before each read, and sends the value of a written copy along with
    the write-back or acknowledgement that names it.
    """

    name: str
    terms: LeaseTerms
    copies: Mapping[str, Copy] = field(default_factory=dict)
    asked: int = 0

    def copy(self, key: str) -> Copy:
        """The copy of `key`; an Invalid one if there never was any."""
        return self.copies.get(key, _NOTHING)

    def version(self, key: str, now: float) -> int | None:
        """The version that may be read now, or None. A modified copy has the version that it was made from."""
        copy = self.copy(key)
        return copy.version if copy.readable(now) else None

    def read(self, keys: Iterable[str], now: float) -> AgentTurn:
        """Request what cannot be read and is not requested yet."""
        missing = [key for key in keys if not self.copy(key).readable(now)]
        return self._ask(missing, Want.SHARED, now)

    def write(self, keys: Iterable[str], now: float) -> AgentTurn:
        """Mark as Modified what may be written; request the rest, unless it is requested already."""
        wanted = tuple(keys)
        ready = {key: self.copy(key).written() for key in wanted if self.copy(key).writable(now)}
        return self._with(ready)._ask([key for key in wanted if key not in ready], Want.EXCLUSIVE, now)

    def write_back(self, keys: Iterable[str], now: float) -> AgentTurn:
        """Hand modified copies over to be committed; other copies stay as they are."""
        changed = {key: self.copy(key) for key in keys if self.copy(key).state is CopyState.MODIFIED}
        pending = {key: copy.handing_over(now, self.terms) for key, copy in changed.items()}
        asks = tuple(Ask(key, Want.WRITE_BACK, copy.serial) for key, copy in changed.items())
        return AgentTurn(self._with(pending), self._requests(asks))

    def handle(self, message: ToAgent, now: float) -> AgentTurn:
        """Take one message. An old or repeated one changes nothing that is newer."""
        if isinstance(message, Invalidations):
            return self._invalidated(message, now)
        return self._answered(message, now)

    def drop(self, keys: Iterable[str], now: float) -> AgentTurn:
        """End the leases of `keys` at once, as an eviction does: modified copies are handed over."""
        before = {key: self.copy(key) for key in keys}
        after = {key: copy.lease_over(now, self.terms) for key, copy in before.items()}
        asks = tuple(
            Ask(key, Want.WRITE_BACK, copy.serial) for key, copy in before.items() if copy.state is CopyState.MODIFIED
        )
        return AgentTurn(self._with(after), self._requests(asks))

    def repeat(self, keys: Iterable[str], now: float) -> AgentTurn:
        """Send pending requests again."""
        number = self.asked + 1
        again = {key: self.copy(key).repeated(key, number, now) for key in keys}
        asks = tuple(ask for _, ask in again.values() if ask is not None)
        after = replace(self, asked=number) if asks else self
        return AgentTurn(after._with({key: copy for key, (copy, _) in again.items()}), self._requests(asks))

    def give_up(self, keys: Iterable[str]) -> AgentTurn:
        """Stop waiting for answers."""
        given = {key: self.copy(key).given_up(key) for key in keys}
        refused = tuple(refusal for _, refusal in given.values() if refusal is not None)
        return AgentTurn(self._with({key: copy for key, (copy, _) in given.items()}), (), refused)

    def tick(self, now: float) -> AgentTurn:
        """Do what is due: end leases, give up, send again."""
        over = [key for key, copy in self.copies.items() if copy.pending is None and copy.until <= now]
        pending = [(key, copy.pending) for key, copy in self.copies.items() if copy.pending is not None]
        late = [key for key, what in pending if what.give_up_at <= now]
        again = [key for key, what in pending if what.give_up_at > now >= what.sent_at + self.terms.retry]
        first = self.drop(over, now)
        second = first.agent.give_up(late)
        third = second.agent.repeat(again, now)
        return AgentTurn(third.agent, first.messages + third.messages, second.refused)

    def _ask(self, keys: list[str], want: Want, now: float) -> AgentTurn:
        free = [key for key in keys if self.copy(key).state is not CopyState.PENDING]
        # a modified copy whose lease ran out is handed over before it is requested again
        changed = [key for key in free if self.copy(key).state is CopyState.MODIFIED]
        plain = [key for key in free if self.copy(key).state is not CopyState.MODIFIED]
        handed = self.write_back(changed, now)
        if not plain:
            return handed
        pending = Pending(want, self.asked + 1, now, now + self.terms.patience)
        after = replace(handed.agent, asked=pending.number)
        asks = tuple(Ask(key, want, pending.number) for key in plain)
        copies = {key: self.copy(key).asking(pending) for key in plain}
        return AgentTurn(after._with(copies), handed.messages + self._requests(asks))

    def _answered(self, message: Answers, now: float) -> AgentTurn:
        after: dict[str, Copy] = {}
        refused = []
        for item in message.items:
            copy = after.get(item.key, self.copy(item.key))
            if isinstance(item, Granted):
                after[item.key] = copy.granted(item, now, self.terms)
                continue
            after[item.key] = copy.ended(item)
            if isinstance(item, Refused) and after[item.key] is not copy:
                refused.append(item)
        return AgentTurn(self._with(after), (), tuple(refused))

    def _invalidated(self, message: Invalidations, now: float) -> AgentTurn:
        after: dict[str, Copy] = {}
        item: list[Acknowledge] = []
        for recall in message.items:
            copy = after.get(recall.key, self.copy(recall.key))
            after[recall.key], acknowledged = copy.invalidated(recall, now, self.terms)
            item.append(acknowledged)
        return AgentTurn(self._with(after), (Acknowledgements(self.name, tuple(item)),))

    def _requests(self, asks: tuple[Ask, ...]) -> tuple[Requests, ...]:
        return (Requests(self.name, asks),) if asks else ()

    def _with(self, copies: Mapping[str, Copy]) -> Self:
        return replace(self, copies={**self.copies, **copies}) if copies else self
