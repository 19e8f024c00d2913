"""What each agent can do next in a coherence search, asked of the real `Agent` once for each of its parts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kit.coherence.parts import (
    DOWN,
    READABLE,
    TOP,
    UP,
    Part,
    agent_of,
    canonical,
    in_flight,
    sent,
    without_head,
)

from coherence_protocol.agent import Agent, AgentTurn
from coherence_protocol.line import Line
from coherence_protocol.messages import Acknowledge, Ask, Committed, CopyState, Granted, Invalidate, Refused, Want


@dataclass(frozen=True)
class Rules:
    """An instance. `faults` bounds, on each path, messages lost, messages that come twice, requests given up and leases
    that end at the directory while their agent is still there; `one_fifo` and another `line` are planted faults."""

    agents: int
    keys: str = "k"
    faults: int = 0
    deaths: int = 0
    kinds: frozenset = frozenset({"loss", "twice", "late"})
    wishes: frozenset = frozenset({"reads", "writes", "writes back", "lease ends"})
    one_fifo: bool = False
    line: Line = field(default_factory=Line)


class Violation(Exception):
    """An invariant does not hold; the message says which, then how it came to be."""


class Local(NamedTuple):
    """What one agent can do by itself. `overtaken`: a grant came that a recall had overtaken."""

    label: str
    part: int
    fault: int = 0
    death: int = 0
    progress: bool = False
    overtaken: bool = False


class Remote(NamedTuple):
    """What the directory can be told about one agent: `head` is the message's channel, None where none is taken."""

    label: str
    event: str
    what: object
    head: int | None
    fault: int = 0
    progress: bool = True
    number: int = -1


class Flags(NamedTuple):
    """What the invariants need of a part: keys that may be read, keys that may be written, as bits."""

    readable: int
    writer: int
    stale: bool
    pending: bool


class Rows:
    """The rows of the tables of transitions that a search met: state, event, next state, what is said."""

    def __init__(self) -> None:
        self.directory: set[tuple[str, str, str, str]] = set()
        self.agent: set[tuple[str, str, str, str]] = set()


class Parts:
    """Every part that was met, by number, with what it can do."""

    def __init__(self, rules: Rules, rows: Rows) -> None:
        self.rules, self.rows, self.keys = rules, rows, rules.keys
        self.numbers: dict[Part, int] = {}
        self.parts: list[Part] = []
        self.flags: list[Flags] = []
        self._locals: list[list[Local] | None] = []
        self._remotes: list[list[Remote] | None] = []
        self._remote_numbers: dict[tuple, int] = {}
        self._groups = [(key,) for key in self.keys] + ([tuple(self.keys)] if len(self.keys) > 1 else [])
        self.tops = ((TOP, TOP),) * len(self.keys)

    def number(self, part: Part, tops=None) -> int:
        part = canonical(part, self.keys, tops or self.tops)
        number = self.numbers.setdefault(part, len(self.parts))
        if number == len(self.parts):
            self.parts.append(part)
            self.flags.append(_flags(part))
            self._locals.append(None)
            self._remotes.append(None)
        return number

    def locals(self, number: int) -> list[Local]:
        found = self._locals[number]
        if found is None:
            found = self._locals[number] = list(self._find_locals(self.parts[number]))
        return found

    def remotes(self, number: int) -> list[Remote]:
        found = self._remotes[number]
        if found is None:
            found = [self._numbered(remote) for remote in self._find_remotes(self.parts[number])]
            self._remotes[number] = found
        return found

    def _numbered(self, remote: Remote) -> Remote:
        same = (remote.event, remote.what, remote.head)
        return remote._replace(number=self._remote_numbers.setdefault(same, len(self._remote_numbers)))

    def _find_locals(self, part: Part) -> Iterator[Local]:
        if "loss" in self.rules.kinds:
            for channel in UP + DOWN:
                if part.channels[channel]:
                    yield Local(
                        f"{_words(part.channels[channel][0])} is lost", self.number(without_head(part, channel)), 1
                    )
        if part.copies is None:
            return
        yield from self._wishes(part)
        yield Local("dies", self.number(part._replace(copies=None, channels=(*part.channels[:2], (), ()))), death=1)
        for channel in DOWN:
            if part.channels[channel]:
                yield from self._arrivals(part, channel)
        for key in self.keys:
            if self._repeats(part, key):
                yield self._moved(part, "repeats", agent_of(part, self.keys).repeat((key,), 0.0), progress=True)

    def _wishes(self, part: Part) -> Iterator[Local]:
        agent = agent_of(part, self.keys)
        for group in self._groups:
            states = {agent.copy(key).state for key in group}
            alone = len(group) == 1
            if states == {CopyState.PENDING} and alone and "late" in self.rules.kinds:
                yield self._moved(part, "gives up", agent.give_up(group), fault=1)
            turns = {} if CopyState.PENDING in states else self._turns(agent, group, states, alone)
            for wish, turn in turns.items():
                if wish in self.rules.wishes:
                    yield self._moved(part, wish, turn)

    def _turns(self, agent: Agent, group: tuple[str, ...], states: set[CopyState], alone: bool) -> dict[str, AgentTurn]:
        turns = {}
        if states == {CopyState.INVALID}:
            turns["reads"] = agent.read(group, 0.0)
        if CopyState.MODIFIED not in states:
            turns["writes"] = agent.write(group, 0.0)
        elif alone:
            turns["writes back"] = agent.write_back(group, 0.0)
        if alone and states <= READABLE:
            turns["lease ends"] = agent.drop(group, 0.0)
        return turns

    def _arrivals(self, part: Part, channel: int) -> Iterator[Local]:
        message = part.channels[channel][0]
        turn = agent_of(part, self.keys).handle(message, 0.0)
        event = _words(message)
        self._told_truly(part, message)
        unmoved = turn.agent == agent_of(part, self.keys)
        passed = any(isinstance(item, Granted) for item in message.items) and unmoved
        yield self._moved(without_head(part, channel), event, turn, message, progress=True)._replace(overtaken=passed)
        if "twice" in self.rules.kinds:
            yield self._moved(part, event, turn, message, fault=1)

    def _told_truly(self, part: Part, message) -> None:
        for item in message.items:
            place = self.keys.index(item.key)
            pending = part.copies[place].pending
            if pending is None or pending.want is not Want.WRITE_BACK or getattr(item, "number", -1) != pending.number:
                continue
            if isinstance(item, (Committed, Refused)) and isinstance(item, Committed) is not part.done[place]:
                raise Violation("an agent is told the contrary of what became of its write")

    def _repeats(self, part: Part, key: str) -> bool:
        place = self.keys.index(key)
        pending, view = part.copies[place].pending, part.views[place]
        if pending is None or view.serving is not None or in_flight(part, key, (Ask, Granted, Committed, Refused)):
            return False
        return not (pending.want is Want.WRITE_BACK and view.waiting)

    def _moved(
        self, part: Part, event: str, turn: AgentTurn, message=None, fault: int = 0, progress: bool = False
    ) -> Local:
        copies = tuple(turn.agent.copies[key] for key in self.keys)
        for old, key in zip(part.copies, self.keys, strict=True):
            said = said_of(turn.messages, key)
            if old != turn.agent.copies[key] or said != "nothing":
                row = (old.state.value, event_at(message, key) or event, turn.agent.copies[key].state.value, said)
                self.rows.agent.add(row)
        after = sent(part._replace(copies=copies), turn.messages, self.rules.one_fifo)
        was = ", ".join(copy.state.value for copy in part.copies)
        now = ", ".join(copy.state.value for copy in copies)
        return Local(f"{was}: {event}, now {now}", self.number(after), fault, 0, progress)

    def _find_remotes(self, part: Part) -> Iterator[Remote]:
        for channel in UP:
            if part.channels[channel]:
                message = part.channels[channel][0]
                yield Remote(f"{_words(message)} arrives", "message", message, channel)
                if "twice" in self.rules.kinds:
                    yield Remote(f"{_words(message)} arrives twice", "message", message, None, 1, progress=False)
        for place, key in enumerate(self.keys):
            view = part.views[place]
            if view.waiting and not in_flight(part, key, (Invalidate, Acknowledge)) and part.copies is not None:
                yield Remote("the invalidation is repeated", "repeats", key, None)
            if view.holder is None:
                continue
            if part.copies is None:
                yield Remote("the lease of a dead agent ends", "lease ends", key, None)
            elif "late" in self.rules.kinds and part.copies[place].state not in READABLE:
                yield Remote("a lease ends at the directory", "lease ends", key, None, 1, progress=False)


def _flags(part: Part) -> Flags:
    waiting = any(view.serving is not None for view in part.views)
    if part.copies is None:
        return Flags(0, 0, False, waiting)
    readable = sum(1 << place for place, copy in enumerate(part.copies) if copy.state in READABLE)
    writer = sum(1 << place for place, copy in enumerate(part.copies) if copy.state in READABLE - {CopyState.SHARED})
    stale = any(copy.state in READABLE and copy.version != TOP for copy in part.copies)
    return Flags(readable, writer, stale, waiting or any(copy.pending is not None for copy in part.copies))


def _event(item) -> str:
    if isinstance(item, Ask):
        return item.want.value
    if isinstance(item, Granted):
        return "granted exclusive" if item.exclusive else "granted shared"
    if isinstance(item, Acknowledge):
        return "acknowledge" if item.written is None else "acknowledge, changed"
    return type(item).__name__.lower()


def event_at(message, key: str) -> str:
    """What `message` is for `key`, empty where it is not about it."""
    return next((_event(item) for item in message.items if item.key == key), "") if message is not None else ""


def _words(message) -> str:
    return " + ".join(_event(item) for item in message.items)


def said_of(messages: tuple, key: str) -> str:
    return ", ".join(sorted({_event(i) for m in messages for i in m.items if i.key == key})) or "nothing"
