"""The directory: who may have a copy of what, as a pure value. Events come with the time on the directory's clock."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from fednode.cache.coherence.line import Line, Now, Said
from fednode.cache.coherence.messages import (
    UNKNOWN_KEY,
    Acknowledge,
    Answers,
    Ask,
    Committed,
    Granted,
    Invalidate,
    Invalidations,
    Refused,
    Requests,
    State,
    Terms,
    ToAgent,
    ToDirectory,
)

Step = Callable[[Line, Now], tuple[Line, tuple[Said, ...]]]


class Commit(NamedTuple):
    """`agent` wrote `version` of `key`: whoever holds the values stores what came with the message under it."""

    key: str
    agent: str
    version: int


class DirectoryTurn(NamedTuple):
    """The directory after an event, what it sends (one message an agent and channel), and what was committed."""

    directory: "Directory"
    messages: tuple[ToAgent, ...] = ()
    commits: tuple[Commit, ...] = ()


@dataclass(frozen=True, slots=True)
class Directory:
    """All keys that agents may share, each with version, owner, sharers and state."""

    terms: Terms
    lines: Mapping[str, Line]

    @classmethod
    def of(cls, keys: Iterable[str], terms: Terms) -> Self:
        """A directory of `keys`, each at version 0 and held by nobody."""
        return cls(terms, dict.fromkeys(keys, Line()))

    def admits(self, message: ToDirectory) -> bool:
        """Whether `message` can be taken now; else it stays at the head of its channel.

        Acknowledgements always can. That is why they need a channel of their own: behind a request that waits for
        them they would never arrive.
        """
        if not isinstance(message, Requests):
            return True
        lines = (self.lines.get(ask.key) for ask in message.items)
        return all(line is None or line.state is not State.PENDING for line in lines)

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
        said = [(one.key, _acknowledging(agent, one)) for one in message.items if one.key in self.lines]
        return self._take(said, now, agent)

    def end_lease(self, agent: str, keys: Iterable[str], now: float) -> DirectoryTurn:
        """Take it that `agent` has no copy of `keys` any more: its leases have run out. A write it had not handed
        over is lost."""
        return self._take([(key, _ending(agent)) for key in keys], now, agent)

    def repeat(self, keys: Iterable[str], now: float) -> DirectoryTurn:
        """Say the outstanding invalidations of `keys` again."""
        return self._take([(key, Line.repeat) for key in keys], now, "")

    def tick(self, now: float) -> DirectoryTurn:
        """Do what the time asks for: end leases, say again."""
        steps: list[tuple[str, Step]] = []
        for key, line in self.lines.items():
            steps += [(key, _ending(holder.agent)) for holder in line.holders if holder.until <= now]
            if line.serving is not None and line.serving.asked_at + self.terms.retry <= now:
                steps.append((key, Line.repeat))
        return self._take(steps, now, "")

    def _take(
        self, steps: Iterable[tuple[str, Step]], now: float, author: str, told: tuple[Said, ...] = ()
    ) -> DirectoryTurn:
        time = Now(now, now + self.terms.lease)
        after: dict[str, Line] = {}
        commits: list[Commit] = []
        spoken = list(told)
        for key, step in steps:
            before = after.get(key) or self.lines[key]
            after[key], more = step(before, time)
            spoken += more
            if after[key].version != before.version:
                commits.append(Commit(key, author, after[key].version))
        directory = replace(self, lines={**self.lines, **after}) if after else self
        return DirectoryTurn(directory, _batched(spoken), tuple(commits))


def _asking(agent: str, ask: Ask) -> Step:
    return lambda line, time: line.ask(agent, ask, time)


def _acknowledging(agent: str, said: Acknowledge) -> Step:
    return lambda line, time: line.acknowledge(agent, said, time)


def _ending(agent: str) -> Step:
    return lambda line, time: line.end_lease(agent, time)


def _batched(told: Iterable[Said]) -> tuple[ToAgent, ...]:
    answers: dict[str, list[Granted | Committed | Refused]] = {}
    recalls: dict[str, list[Invalidate]] = {}
    for agent, item in told:
        if isinstance(item, Invalidate):
            recalls.setdefault(agent, []).append(item)
        else:
            answers.setdefault(agent, []).append(item)
    return (
        *(Invalidations(agent, tuple(items)) for agent, items in recalls.items()),
        *(Answers(agent, tuple(items)) for agent, items in answers.items()),
    )
