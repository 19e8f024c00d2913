"""What there is of one agent in a coherence search, in a form in which equal means: cannot be told apart.

A `Part` is the agent's copies, its four channels and its place in each line of the directory. Serials and versions are
only compared, an agent's serials with its own and with the line's only, and new ones are above all others. So each part
is written relative to its lines, which stand at TOP; what can matter no more is blanked; a message that can change
nothing any more, whenever it comes, is delivered at once.
"""

from dataclasses import replace
from typing import NamedTuple

from coherence_protocol.agent import Agent
from coherence_protocol.cached_copy import Copy
from coherence_protocol.directory import Directory
from coherence_protocol.line import LeaseHolder, Line, Serving
from coherence_protocol.messages import (
    Acknowledge,
    Acknowledgements,
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
    Want,
)

TERMS = LeaseTerms(lease=1.0, margin=0.0, retry=1.0, patience=1.0)
TOP = 100
READABLE = frozenset({CopyState.SHARED, CopyState.EXCLUSIVE, CopyState.MODIFIED})
REQUESTS, RECALLS, ANSWERS, INVALIDATIONS = range(4)
UP, DOWN = (REQUESTS, RECALLS), (ANSWERS, INVALIDATIONS)
CHANNEL = {Requests: REQUESTS, Acknowledgements: RECALLS, Answers: ANSWERS, Invalidations: INVALIDATIONS}


class View(NamedTuple):
    """An agent's place in one line."""

    holder: LeaseHolder | None = None
    exclusive: bool = False
    waiting: bool = False
    serving: Serving | None = None
    settled: int = 0


class Part(NamedTuple):
    """One agent; without copies it is dead. `done`: the change that it hands over was committed."""

    copies: tuple[Copy, ...] | None
    done: tuple[bool, ...]
    channels: tuple[tuple, ...]
    views: tuple[View, ...]


def new_part(keys: int) -> Part:
    return Part((Copy(),) * keys, (False,) * keys, ((), (), (), ()), (View(),) * keys)


def agent_of(part: Part, keys: str) -> Agent:
    return Agent("", TERMS, dict(zip(keys, part.copies, strict=True)), 1)


def view_of(line: Line, name: str) -> View:
    """The place of `name` in `line`, without the names."""
    held = next((replace(holder, agent="") for holder in line.holders if holder.agent == name), None)
    serving = line.serving if line.serving is not None and line.serving.agent == name else None
    settled = next((serial for agent, serial in line.settled if agent == name), 0)
    nameless = None if serving is None else replace(serving, agent="")
    return View(held, line.exclusive and held is not None, name in line.waiting, nameless, settled)


def directory_of(views: tuple[tuple[View, ...], ...], keys: str, line: Line) -> Directory:
    """The directory in which agent number n has the place views[n]; `line` says of which kind its lines are."""
    return Directory(TERMS, {key: _line(tuple(view[k] for view in views), line) for k, key in enumerate(keys)})


def _line(views: tuple[View, ...], line: Line) -> Line:
    named = [(str(number), view) for number, view in enumerate(views)]
    return replace(
        line,
        version=TOP,
        serial=TOP,
        holders=tuple(replace(view.holder, agent=name) for name, view in named if view.holder),
        exclusive=any(view.exclusive for view in views),
        serving=next((replace(view.serving, agent=name) for name, view in named if view.serving), None),
        waiting=frozenset(name for name, view in named if view.waiting),
        settled=tuple((name, view.settled) for name, view in named if view.settled),
    )


def in_flight(part: Part, key: str, kinds: tuple) -> bool:
    return any(
        item.key == key and isinstance(item, kinds)
        for channel in part.channels
        for message in channel
        for item in message.items
    )


def sent(part: Part, messages: tuple, one_fifo: bool) -> Part:
    """The part with `messages` at the ends of their channels; nothing goes to a dead agent."""
    channels = list(part.channels)
    for message in messages:
        channel = CHANNEL[type(message)]
        if part.copies is None and channel in DOWN:
            continue
        if one_fifo:
            channel = {RECALLS: REQUESTS, INVALIDATIONS: ANSWERS}.get(channel, channel)
        channels[channel] = (*channels[channel], replace(message, agent=""))
    return part._replace(channels=tuple(channels))


def without_head(part: Part, channel: int) -> Part:
    channels = list(part.channels)
    channels[channel] = channels[channel][1:]
    return part._replace(channels=tuple(channels))


def without_grants(part: Part, key: str) -> Part:
    """The leases of grants on their way are over: they will be no answer to anything."""
    kept = tuple(m for m in part.channels[ANSWERS] if not any(isinstance(i, Granted) and i.key == key for i in m.items))
    channels = list(part.channels)
    channels[ANSWERS] = kept
    return part._replace(channels=tuple(channels))


# --- the one form ----------------------------------------------------------------------------------------------------


def canonical(part: Part, keys: str, lines: tuple[tuple[int, int], ...]) -> Part:
    """The part relative to its lines, which stand at (serial, version)."""
    facts = {key: _Facts(part, place, lines[place]) for place, key in enumerate(keys)}
    tidy = tuple(
        tuple(m for m in channel if not all(facts[item.key].idle(item) for item in m.items))
        for channel in part.channels
    )
    part = part._replace(channels=tidy)
    for key, one in facts.items():
        one.rank(key, tidy)
    channels = tuple(
        tuple(replace(m, items=tuple(facts[item.key].item(item) for item in m.items)) for m in channel)
        for channel in tidy
    )
    copies = None if part.copies is None else tuple(one.new_copy() for one in facts.values())
    done = tuple(flag and one.writing for flag, one in zip(part.done, facts.values(), strict=True))
    return Part(copies, done, channels, tuple(one.new_view() for one in facts.values()))


class _Facts:
    """One agent and one key, with what matters of its numbers."""

    def __init__(self, part: Part, place: int, line: tuple[int, int]) -> None:
        self.dead = part.copies is None
        self.copy = Copy() if part.copies is None else part.copies[place]
        self.view = part.views[place]
        self.serial, self.version = line
        pending = self.copy.pending
        self.writing = pending is not None and pending.want is Want.WRITE_BACK
        self.number = pending.number if pending is not None and not self.writing else -1
        self.handed = self.copy.serial if self.writing else -1
        self.owned = self.view.holder.serial if self.view.exclusive else -1
        self.ranks: dict[int, int] = {}

    def idle(self, item) -> bool:
        """Whether `item` changes nothing whenever it comes; requests are kept, since they may block their channel."""
        kind = type(item)
        if kind is Ask or kind is Invalidate:
            return False
        if kind is Acknowledge:
            return not self._counts(item) and not (item.written is not None and self._matters(item.written))
        if kind is Granted:
            return item.number != self.number
        if kind is Committed or item.want is Want.WRITE_BACK:
            return item.number != self.handed
        return item.number != self.number

    def rank(self, key: str, channels: tuple) -> None:
        items = [item for channel in channels for m in channel for item in m.items if item.key == key]
        told = {item.serial for item in items if type(item) is Invalidate}
        grants = {item.serial for item in items if type(item) is Granted and item.number == self.number}
        live = told | grants | ({self.owned, self.handed} - {-1})
        writer = self.copy.state in (CopyState.EXCLUSIVE, CopyState.MODIFIED)
        self.keep_serial = writer or self.writing or (self.copy.state is CopyState.SHARED and bool(told))
        if self.keep_serial:
            live.add(self.copy.serial)
        # a recall that is behind all grants on their way makes none of them useless
        self.keep_recalled = any(serial < self.copy.recalled for serial in grants)
        if self.keep_recalled:
            live.add(self.copy.recalled)
        self.ranks[self.serial] = TOP
        live.discard(self.serial)
        self.ranks |= {serial: TOP - 1 - place for place, serial in enumerate(sorted(live, reverse=True))}

    def item(self, item):
        kind = type(item)
        if kind is Ask:
            if item.want is Want.WRITE_BACK:
                return replace(item, number=self.ranks[item.number] if self._matters(item.number) else 0)
            return replace(item, number=int(item.number == self.number))
        if kind is Invalidate:
            return replace(item, serial=self.ranks[item.serial])
        if kind is Acknowledge:
            written = item.written if item.written is not None and self._matters(item.written) else None
            return Acknowledge(
                item.key, TOP if self._counts(item) else 0, None if written is None else self.ranks[written]
            )
        if self.idle(item):
            return Refused(item.key, Want.SHARED, 0, "nobody waits for this")
        if kind is Granted:
            newest = TOP if item.version == self.version else TOP - 1
            return replace(item, number=1, version=newest, serial=self.ranks[item.serial])
        return replace(item, number=self.ranks[item.number] if item.number == self.handed else 1)

    def new_copy(self) -> Copy:
        copy, pending = self.copy, self.copy.pending
        serial = self.ranks[copy.serial] if self.keep_serial else 0
        if pending is not None:
            pending = replace(pending, number=serial if self.writing else 1)
        readable = copy.state in READABLE
        version = 0 if not readable else TOP if copy.version == self.version else TOP - 1
        recalled = self.ranks[copy.recalled] if self.keep_recalled else 0
        return Copy(copy.state, version, serial, copy.until if readable else 0.0, recalled, pending)

    def new_view(self) -> View:
        view, serving = self.view, self.view.serving
        holder = view.holder and replace(view.holder, serial=self.ranks[self.owned] if view.exclusive else 0)
        if serving is not None:
            serving = replace(serving, ask=replace(serving.ask, number=int(serving.ask.number == self.number)))
        settled = self.ranks[self.handed] if self.writing and view.settled == self.handed else 0
        return View(holder, view.exclusive, view.waiting, serving, settled)

    def _counts(self, item: Acknowledge) -> bool:
        return self.view.waiting and item.serial == self.serial

    def _matters(self, serial: int) -> bool:
        return serial in (self.owned, self.handed)
