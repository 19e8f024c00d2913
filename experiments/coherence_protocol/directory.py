"""The directory: who may have a copy of what, as a pure value. Each event carries the time on the directory's clock."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from coherence_protocol.line import Line, Now, Outgoing
from coherence_protocol.messages import (
    UNKNOWN_KEY,
    Acknowledge,
    Answers,
    Ask,
    Committed,
    CopyState,
    Granted,
    Invalidate,
    Invalidations,
    LeaseTerms,
    Refused,
    Requests,
    ToAgent,
    ToDirectory,
)

Step = Callable[[Line, Now], tuple[Line, tuple[Outgoing, ...]]]


class Commit(NamedTuple):
    """`agent` wrote `version` of `key`: store the value that came with the message."""

    key: str
    agent: str
    version: int


class DirectoryTurn(NamedTuple):
    """The directory after an event, one message for each agent and channel, and the committed writes."""

    directory: "Directory"
    messages: tuple[ToAgent, ...] = ()
    commits: tuple[Commit, ...] = ()


@dataclass(frozen=True, slots=True)
class Directory:
    """All keys that agents may share, each with version, owner, sharers and state."""

    terms: LeaseTerms
    lines: Mapping[str, Line]

    @classmethod
    def of(cls, keys: Iterable[str], terms: LeaseTerms) -> Self:
        """A directory of `keys`, each at version 0 and held by nobody."""
        return cls(terms, dict.fromkeys(keys, Line()))

    def admits(self, message: ToDirectory) -> bool:
        """Whether `message` can be taken now; else leave it at the head of its channel.

        Acknowledgements always can. They need a channel of their own: behind a request that waits for them they would
        never arrive.
        """
        if not isinstance(message, Requests):
            return True
        lines = (self.lines.get(ask.key) for ask in message.items)
        return all(line is None or line.state is not CopyState.PENDING for line in lines)

    def handle(self, message: ToDirectory, now: float) -> DirectoryTurn:
        """Take one message. Raises `RuntimeError` for one that `admits` does not admit."""
        agent = message.agent
        if isinstance(message, Requests):
            asked = [(ask.key, _asking(agent, ask)) for ask in message.items if ask.key in self.lines]
            unknown = tuple(
                (agent, Refused(ask.key, ask.want, ask.number, UNKNOWN_KEY))
                for ask in message.items
                if ask.key not in self.lines
            )
            return self._take(asked, now, agent, unknown)
        steps = [(one.key, _acknowledging(agent, one)) for one in message.items if one.key in self.lines]
        return self._take(steps, now, agent)

    def end_lease(self, agent: str, keys: Iterable[str], now: float) -> DirectoryTurn:
        """The leases of `agent` on `keys` have run out: it has no copies. A write that it had not handed over is
        lost."""
        return self._take([(key, _ending(agent)) for key in keys], now, agent)

    def repeat(self, keys: Iterable[str], now: float) -> DirectoryTurn:
        """Send the outstanding invalidations of `keys` again."""
        return self._take([(key, Line.repeat) for key in keys], now, "")

    def tick(self, now: float) -> DirectoryTurn:
        """Do what is due: end leases, send again."""
        steps: list[tuple[str, Step]] = []
        for key, line in self.lines.items():
            steps += [(key, _ending(holder.agent)) for holder in line.holders if holder.until <= now]
            if line.serving is not None and line.serving.asked_at + self.terms.retry <= now:
                steps.append((key, Line.repeat))
        return self._take(steps, now, "")

    def _take(
        self, steps: Iterable[tuple[str, Step]], now: float, author: str, first: tuple[Outgoing, ...] = ()
    ) -> DirectoryTurn:
        time = Now(now, now + self.terms.lease)
        after: dict[str, Line] = {}
        commits: list[Commit] = []
        outgoing = list(first)
        for key, step in steps:
            before = after.get(key) or self.lines[key]
            after[key], more = step(before, time)
            outgoing += more
            if after[key].version != before.version:
                commits.append(Commit(key, author, after[key].version))
        directory = replace(self, lines={**self.lines, **after}) if after else self
        return DirectoryTurn(directory, _batched(outgoing), tuple(commits))


def _asking(agent: str, ask: Ask) -> Step:
    return lambda line, time: line.ask(agent, ask, time)


def _acknowledging(agent: str, message: Acknowledge) -> Step:
    return lambda line, time: line.acknowledge(agent, message, time)


def _ending(agent: str) -> Step:
    return lambda line, time: line.end_lease(agent, time)


def _batched(outgoing: Iterable[Outgoing]) -> tuple[ToAgent, ...]:
    answers: dict[str, list[Granted | Committed | Refused]] = {}
    recalls: dict[str, list[Invalidate]] = {}
    for agent, item in outgoing:
        if isinstance(item, Invalidate):
            recalls.setdefault(agent, []).append(item)
        else:
            answers.setdefault(agent, []).append(item)
    return (
        *(Invalidations(agent, tuple(items)) for agent, items in recalls.items()),
        *(Answers(agent, tuple(items)) for agent, items in answers.items()),
    )
