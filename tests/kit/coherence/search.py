"""Breadth-first search of the coherence protocol: the real `Directory` and `Agent`, over channels that it controls.

Time is abstract: a lease ends when the search says so, at the directory only where it cannot run at the agent any more
(which is what the margin buys; `kit.coherence.timed` searches that with clocks). What one agent does depends on its own
`Part` only, what the directory does on the agents' places in its lines: both are asked of the real code once and kept.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from kit.coherence.moves import Parts, Remote, Rows, Rules, Violation, event_at, said_of
from kit.coherence.parts import directory_of, new_part, sent, view_of, without_grants, without_head

from coherence_protocol.directory import Directory, DirectoryTurn
from coherence_protocol.messages import Want


class Effect(NamedTuple):
    """What one agent has of a turn of the directory."""

    views: tuple
    messages: tuple
    tops: tuple
    commits: tuple = ()
    head: int | None = None
    over: str = ""


class Turns:
    """What the directory does, asked of the real one once for each of its situations."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.rules = parts, parts.rules
        self._effects: dict[tuple, tuple[int, ...] | None] = {}
        self._numbers: dict[Effect, int] = {}
        self._list: list[Effect] = []
        self._after: dict[tuple[int, int], int] = {}
        self._views: dict[tuple, int] = {}
        self._view_of: list[int] = []

    def views(self, world: tuple[int, ...]) -> tuple[int, ...]:
        """What the directory sees of a world, as numbers."""
        known = self._view_of
        while len(known) < len(self.parts.parts):
            views = self.parts.parts[len(known)].views
            known.append(self._views.setdefault(views, len(self._views)))
        return tuple([known[part] for part in world])

    def take(self, world: tuple[int, ...], views: tuple, place: int, remote: Remote) -> list[int] | None:
        """The parts after the directory took `remote` from the agent at `place`; None where it does not admit it."""
        situation = (remote.number, place, views)
        if situation not in self._effects:
            self._effects[situation] = self._ask(world, place, remote)
        effects = self._effects[situation]
        if effects is None:
            return None
        after = self._after
        return [after[pair] if pair in after else self._apply(*pair) for pair in zip(world, effects, strict=True)]

    def _ask(self, world: tuple[int, ...], place: int, remote: Remote) -> tuple[int, ...] | None:
        parts = [self.parts.parts[number] for number in world]
        before = directory_of(tuple(part.views for part in parts), self.rules.keys, self.rules.line)
        turn = _turn(before, str(place), remote)
        if turn is None:
            return None
        self._rows(before, turn, remote)
        tops = tuple((line.serial, line.version) for line in turn.directory.lines.values())
        effects = []
        for number in range(len(world)):
            name = str(number)
            views = tuple(view_of(line, name) for line in turn.directory.lines.values())
            messages = tuple(m for m in turn.messages if m.agent == name)
            mine = Effect(views, messages, tops)
            if number == place:
                over = remote.what if remote.event == "lease ends" else ""
                mine = mine._replace(commits=tuple(c.key for c in turn.commits), head=remote.head, over=over)
            effects.append(self._number(mine))
        return tuple(effects)

    def _rows(self, before: Directory, turn: DirectoryTurn, remote: Remote) -> None:
        message = remote.what if remote.event == "message" else None
        for key in self.rules.keys:
            event = event_at(message, key) or remote.event
            said = said_of(turn.messages, key)
            old, new = before.lines[key], turn.directory.lines[key]
            if old != new or said != "nothing":
                self.parts.rows.directory.add((old.state.value, event, new.state.value, said))

    def _number(self, effect: Effect) -> int:
        number = self._numbers.setdefault(effect, len(self._list))
        if number == len(self._list):
            self._list.append(effect)
        return number

    def _apply(self, number: int, which: int) -> int:
        part, effect = self.parts.parts[number], self._list[which]
        done = list(part.done)
        for key in effect.commits:
            place = self.rules.keys.index(key)
            if done[place]:
                raise Violation("one write is committed twice")
            pending = part.copies[place].pending if part.copies is not None else None
            done[place] = pending is not None and pending.want is Want.WRITE_BACK
        if effect.head is not None:
            part = without_head(part, effect.head)
        if effect.over:
            part = without_grants(part, effect.over)
        after = sent(part._replace(done=tuple(done), views=effect.views), effect.messages, self.rules.one_fifo)
        self._after[number, which] = found = self.parts.number(after, effect.tops)
        return found


def _turn(directory: Directory, name: str, remote: Remote) -> DirectoryTurn | None:
    if remote.event == "repeats":
        turn = directory.repeat((remote.what,), 0.0)
        return turn._replace(messages=tuple(m for m in turn.messages if m.agent == name))
    if remote.event == "lease ends":
        return directory.end_lease(name, (remote.what,), 0.0)
    message = type(remote.what)(name, remote.what.items)
    return directory.handle(message, 0.0) if directory.admits(message) else None


# --- the search ------------------------------------------------------------------------------------------------------


@dataclass
class Found:
    """A finished search: what it covered, and that everything held."""

    states: int
    transitions: int
    depth: int
    rows: Rows
    worlds: dict
    parts: Parts


def search(rules: Rules, *, symmetric: bool = True, most: int = 3_000_000) -> Found:
    """Visit every reachable state once. Raises `Violation` with the shortest way to the first fault found.

    Checked: in each state, that one agent writes or many read, that what can be read is the last committed version, and
    that where something is Pending a delivery, a repeat or the end of a dead agent's lease is possible (no deadlock);
    at each answer, that it says what became of the write; after all, that from each state one with nothing Pending is
    reached by such steps alone, and that they form no cycle but one in which recalls overtake grants time after time.
    """
    return _Search(rules, symmetric, most).run()


class _Search:
    def __init__(self, rules: Rules, symmetric: bool, most: int) -> None:
        self.rules, self.symmetric, self.most = rules, symmetric, most
        self.rows = Rows()
        self.parts = Parts(rules, self.rows)
        self.turns = Turns(self.parts)
        self.places: dict[tuple, int] = {}
        self.came: list[tuple[int, str]] = []
        self.back: list[list[int]] = []
        self.quiets: list[int] = []

    def run(self) -> Found:
        first = self.parts.number(new_part(len(self.rules.keys)))
        start = (self.rules.faults, self.rules.deaths, (first,) * self.rules.agents)
        queue = deque([(start, 0)])
        self._enter(start, 0, "start")
        count = depth = 0
        while queue:
            world, depth = queue.popleft()
            place = self.places[world]
            moved = False
            try:
                steps = self._steps(world)
            except Violation as fault:
                raise Violation(self._story(str(fault), place)) from None
            for after, label, progress, overtaken in steps:
                count += 1
                there = self.places.get(after)
                if there is None:
                    there = self._enter(after, place, label)
                    queue.append((after, depth + 1))
                if progress:
                    moved = True
                    self.back[there].append(-1 - place if overtaken else place)
            if not moved and self._pending(world):
                raise Violation(self._story("deadlock: something is Pending and nothing can be delivered", place))
        self._every_pending_ends()
        return Found(len(self.places), count, depth, self.rows, self.places, self.parts)

    def _steps(self, world: tuple) -> list[tuple]:
        faults, deaths, parts = world
        found = []
        views = self.turns.views(parts)
        for place, part in enumerate(parts):
            if self.symmetric and place and parts[place - 1] == part:
                continue  # the same agent by another name
            for label, new, fault, death, progress, overtaken in self.parts.locals(part):
                if fault <= faults and death <= deaths:
                    after = self._sorted([*parts[:place], new, *parts[place + 1 :]])
                    found.append(((faults - fault, deaths - death, after), label, progress, overtaken))
            for remote in self.parts.remotes(part):
                taken = self.turns.take(parts, views, place, remote) if remote.fault <= faults else None
                if taken is not None:
                    after = (faults - remote.fault, deaths, self._sorted(taken))
                    found.append((after, remote.label, remote.progress, False))
        return found

    def _sorted(self, parts: list[int]) -> tuple[int, ...]:
        if self.symmetric:
            parts.sort()
        return tuple(parts)

    def _pending(self, world: tuple) -> bool:
        return any(self.parts.flags[part].pending for part in world[2])

    def _enter(self, world: tuple, origin: int, label: str) -> int:
        place = self.places[world] = len(self.places)
        if place > self.most:
            raise Violation(f"over {self.most} states: make the instance smaller")
        self.came.append((origin, label))
        self.back.append([])
        seen = shared = written = 0
        old = pending = False
        for part in world[2]:
            readable, writer, stale, waiting = self.parts.flags[part]
            shared |= seen & readable
            seen |= readable
            written |= writer
            old, pending = old or stale, pending or waiting
        if old:
            raise Violation(self._story("a copy that may be read is not the last committed version", place))
        if shared & written:
            raise Violation(self._story("a writer beside another copy", place))
        if not pending:
            self.quiets.append(place)
        return place

    def _every_pending_ends(self) -> None:
        reached = bytearray(len(self.came))
        ahead = list(self.quiets)
        for place in ahead:
            reached[place] = 1
        while ahead:
            for source in self.back[ahead.pop()]:
                before = source if source >= 0 else -1 - source
                if not reached[before]:
                    reached[before] = 1
                    ahead.append(before)
        stuck = reached.find(0)
        if stuck >= 0:
            raise Violation(self._story("something stays Pending whatever is delivered", stuck))
        self._no_cycle()

    def _no_cycle(self) -> None:
        leaving = [0] * len(self.came)
        for sources in self.back:
            for source in sources:
                if source >= 0:
                    leaving[source] += 1
        done = [place for place, count in enumerate(leaving) if not count]
        ended = len(done)
        while done:
            for source in self.back[done.pop()]:
                if source >= 0:
                    leaving[source] -= 1
                    if not leaving[source]:
                        done.append(source)
                        ended += 1
        if ended < len(self.came):
            looping = next(place for place, count in enumerate(leaving) if count)
            raise Violation(self._story("deliveries and repeats alone can go on for ever", looping))

    def _story(self, fault: str, place: int) -> str:
        lines: list[str] = []
        while place:
            place, label = self.came[place]
            lines.append(label)
        return "\n  ".join([f"{fault}, after {len(lines)} steps:", *reversed(lines)])
