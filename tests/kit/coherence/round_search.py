"""Breadth-first search: the protocol that a run drives: the real `Downloads` and `ModelCopyStore`, any order of events.

Rounds are not bounded: a world is written with the smallest numbers that tell the same (`kit.coherence.round_parts`).
Within a round nothing is lost for nothing; what goes wrong is bounded on each path: a message lost, a reply that comes
twice, a message still under way when the next round begins, a client silent for a lease; and clients that restart with
an empty copy room, or with one from a backup.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kit.coherence.moves import Violation
from kit.coherence.refinement import check_step
from kit.coherence.round_parts import Down, Model, Part, Round, Shared, Up, in_order, renumbered
from kit.coherence.round_world import ARRAYS, Sides, World

EVERYTHING = (1 << len(ARRAYS)) - 1


@dataclass(frozen=True)
class Trouble:
    """An instance of the round protocol."""

    clients: int
    faults: int = 0
    deaths: int = 0
    sides: Sides = field(default_factory=Sides)
    kinds: frozenset[str] = frozenset({"loss", "twice", "slow", "silent"})
    refines: bool = True
    """Whether each step must be one of the searched `Directory`; off to see what else finds a planted fault."""


class Step(NamedTuple):
    """What can happen to one client within a round."""

    label: str
    part: int
    fault: int = 0
    death: int = 0


@dataclass
class Covered:
    """A finished search."""

    states: int
    transitions: int
    depth: int
    counted: int
    """Steps in which an update was counted."""
    refined: int
    """Unlike steps of the register that were held against the searched `Directory`."""
    search: "RoundSearch"


def search_rounds(trouble: Trouble, *, most: int = 3_000_000) -> Covered:
    """Visit every reachable world once. Raises `Violation` with the shortest way to the first fault found.

    Checked: a client computes from exactly the version that the round names, or one that the bound allows and that was
    everybody's, and so does what is counted; what a client that lost nothing is not sent, it has; everything that the
    node holds for confirmed was confirmed by a reply computed from those very bytes; each step is one of the searched
    `Directory`; and from every world one answered round makes everything held, with nothing sent or stale.
    """
    return RoundSearch(trouble, most).run()


class RoundSearch:
    """One search, under way or over."""

    def __init__(self, trouble: Trouble, most: int) -> None:
        self.trouble, self.most, self.bound = trouble, most, trouble.sides.staleness
        self.world = World(trouble.sides)
        self.parts: list[Part] = []
        self.shareds: list[Shared] = []
        self._numbers: dict[Part | Shared, int] = {}
        self._steps: dict[tuple[int, int, bool], list[Step]] = {}
        self._nexts: dict[tuple, list[tuple]] = {}
        self._taken: dict[tuple, tuple] = {}
        self._calm: set[tuple[Shared, Part]] = set()
        self.refined: set[tuple] = set()
        self.places: dict[tuple, int] = {}
        self.came: list[tuple[int, str]] = []
        self.counted = 0

    def number(self, one: Part | Shared) -> int:
        known = self.shareds if isinstance(one, Shared) else self.parts
        number = self._numbers.setdefault(one, len(known))
        if number == len(known):
            known.append(one)  # type: ignore[arg-type]
        return number

    def run(self) -> Covered:
        first = Model(1, (1,) * len(ARRAYS))
        shared = Shared(Round(0, first), (first,))
        parts = (Part(),) * self.trouble.clients
        queue: deque[tuple[tuple, int]] = deque()
        place, count, depth = 0, 0, 0
        try:
            start = (self.trouble.faults, self.trouble.deaths, *self._numbered(shared, parts))
            self._enter(start, 0, "start")
            queue.append((start, 0))
            while queue:
                world, depth = queue.popleft()
                place = self.places[world]
                for label, after in self._after(world):
                    count += 1
                    if after not in self.places:
                        self._enter(after, place, label)
                        queue.append((after, depth + 1))
        except Violation as fault:
            raise Violation(self._story(str(fault), place)) from None
        return Covered(len(self.places), count, depth, self.counted, len(self.refined), self)

    def _enter(self, world: tuple, origin: int, label: str) -> None:
        self.places[world] = len(self.places)
        if len(self.places) > self.most:
            raise Violation(f"over {self.most} worlds: make the instance smaller")
        self.came.append((origin, label))

    def _after(self, world: tuple) -> Iterator[tuple[str, tuple]]:
        faults, deaths, shared, parts = world
        for place, part in enumerate(parts):
            if place and parts[place - 1] == part:
                continue  # the same client by another name
            for step in self.within(shared, part, tracked=deaths > 0 and self.trouble.sides.durable):
                if step.fault <= faults and step.death <= deaths:
                    after = [*parts[:place], step.part, *parts[place + 1 :]]
                    if step.death and deaths == 1:
                        # nobody goes back to a backup any more
                        after = [self.number(self.parts[one]._replace(before=None)) for one in after]
                    yield step.label, (faults - step.fault, deaths - step.death, shared, tuple(sorted(after)))
        slow = sum(self.parts[part].late(self.shareds[shared].round.number) for part in parts)
        if slow <= faults and (not slow or "slow" in self.trouble.kinds):
            for label, there, after in self._next(shared, parts):
                yield label, (faults - slow, deaths, there, after)

    def _numbered(self, shared: Shared, parts: tuple[Part, ...]) -> tuple[int, tuple[int, ...]]:
        shared, parts = renumbered(shared, parts, self.bound)
        return self.number(shared), tuple(sorted(self.number(part) for part in parts))

    def _story(self, fault: str, place: int) -> str:
        lines: list[str] = []
        while place:
            place, label = self.came[place]
            lines.append(label)
        return "\n  ".join([f"{fault}, after {len(lines) + 1} steps:", *reversed(lines)])

    # --- between rounds

    def _next(self, shared: int, parts: tuple[int, ...]) -> list[tuple[str, int, tuple[int, ...]]]:
        found = self._nexts.get((shared, parts))
        if found is None:
            found = self._nexts[shared, parts] = list(self._find_next(shared, parts))
        return found

    def _find_next(self, shared: int, parts: tuple[int, ...]) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        there, mine = self.shareds[shared], tuple(self.parts[part] for part in parts)
        # a refusal for want of chunks is heard in its own round alone
        mine = tuple(part._replace(up=tuple(m for m in part.up if m.basis is not None)) for part in mine)
        for changed in (None, *range(EVERYTHING + 1)):
            after, told = self.world.next_round(there, mine, changed)
            self._refines(mine, told, changed or 0, 0)
            names = [name for k, name in enumerate(ARRAYS) if (changed or 0) >> k & 1]
            label = "a round fails" if changed is None else f"a release changes {' and '.join(names) or 'nothing'}"
            yield label, *self._numbered(after, told)

    def _refines(self, before: tuple[Part, ...], after: tuple[Part, ...], changed: int, read: int) -> None:
        """`read`: the keys of which a reply shows the newest bytes."""
        held = tuple(part.standing.held for part in before), tuple(part.standing.held for part in after)
        if self.trouble.refines and (*held, changed, read) not in self.refined:
            check_step(*held, changed, read)
            self.refined.add((*held, changed, read))

    # --- within a round

    def within(self, shared: int, part: int, *, tracked: bool) -> list[Step]:
        """`tracked`: whether there may yet be a restart from a backup."""
        found = self._steps.get((shared, part, tracked))
        if found is None:
            one, there = self.parts[part], self.shareds[shared]
            self._check_part(there, one)
            found = [step._replace(part=self.number(after)) for step, after in self.steps(there, one, tracked=tracked)]
            self._steps[shared, part, tracked] = found
            self._check_calm(there, one)
        return found

    def steps(self, shared: Shared, part: Part, *, tracked: bool) -> Iterator[tuple[Step, Part]]:
        """All that can happen to one client within a round, and what it is then."""
        yield from self._troubles(shared, part)
        yield from self._arrivals(shared, part, tracked=tracked)
        yield from self._replies(shared, part)

    def _troubles(self, shared: Shared, part: Part) -> Iterator[tuple[Step, Part]]:
        kinds = self.trouble.kinds
        for name, messages in (("down", part.down), ("up", part.up)):
            for n, message in enumerate(messages if "loss" in kinds else ()):
                # one that was slow is paid for
                price = int(message.round == shared.round)
                lost = part._replace(**{name: _without(messages, n)})
                yield Step(f"a message {name} is lost", 0, price), lost
        # it is forgotten when the next round is planned, so nothing of this one is on its way
        quiet = not part.late(shared.round.number)
        if "silent" in kinds and quiet and part.standing != Part().standing:
            silent = self.world.silent(shared, part)
            self._refines((part,), (silent,), 0, 0)
            yield Step("a client is silent for a lease", 0, 1), silent
        yield Step("a client restarts with nothing", 0, death=1), part._replace(copy=None, before=None)
        if part.before is not None:
            yield Step("a client restarts from a backup", 0, death=1), part._replace(copy=part.before, before=None)

    def _arrivals(self, shared: Shared, part: Part, *, tracked: bool) -> Iterator[tuple[Step, Part]]:
        for n, message in enumerate(part.down):
            after = self._receives(part._replace(down=_without(part.down, n)), message, tracked=tracked)
            late = "" if message.round == shared.round else " late"
            yield Step(f"a request arrives{late}", 0), after

    def _receives(self, part: Part, message: Down, *, tracked: bool = False) -> Part:
        key = (part.copy, message)
        if key not in self._taken:
            self._taken[key] = self.world.take(part.copy, message)
            self._computes_rightly(part.copy, message, self._taken[key][1])
        copy, reply = self._taken[key]
        best = part.best if reply.basis is None or copy is None else max(part.best, copy.model.version)
        backup = part.copy if tracked and copy != part.copy else part.before
        return part._replace(copy=copy, before=backup, best=best, up=_with(part.up, reply))

    def _computes_rightly(self, copy: Round | None, message: Down, reply: Up) -> None:
        named = message.round.model
        if reply.basis is None:
            if message.send == EVERYTHING:
                raise Violation("a client that was sent everything says that chunks are missing")
        elif reply.basis != named and (
            copy is None or reply.basis != copy.model or not 0 < named.version - copy.model.version <= self.bound
        ):
            raise Violation("a client computes from a model that is not the round's")

    def _replies(self, shared: Shared, part: Part) -> Iterator[tuple[Step, Part]]:
        for n, reply in enumerate(part.up):
            after, word = self._answered(shared, part, n)
            yield Step(f"a reply arrives: {word}", 0), after
            if "twice" in self.trouble.kinds:
                yield Step(f"a reply arrives and will again: {word}", 0, 1), after._replace(up=_with(after.up, reply))

    def _answered(self, shared: Shared, part: Part, n: int) -> tuple[Part, str]:
        reply = part.up[n]
        after, resent, word = self.world.replied(shared, part, reply)
        newest = shared.round.model
        if word == "counted":
            self.counted += 1
            if reply.basis not in shared.published or newest.version - reply.basis.version > self.bound:
                raise Violation("an update is counted that was not computed from a model that the bound allows")
        read = sum(
            1 << k for k, at in enumerate(newest.content) if reply.basis is not None and reply.basis.content[k] == at
        )
        self._refines((part,), (after,), 0, read)
        after = after._replace(up=_without(part.up, n))
        return (after if resent is None else after._replace(down=_with(after.down, resent))), word

    # --- what must hold

    def _check_part(self, shared: Shared, part: Part) -> None:
        held, sent, stale, *_ = part.standing
        if held & (sent | stale):
            raise Violation("what may be old is taken for held")
        if part.whole:
            newest = shared.round.model.content
            has = (0,) * len(newest) if part.copy is None else part.copy.model.content
            if any(held >> k & 1 and has[k] != at for k, at in enumerate(newest)):
                raise Violation("what is not sent is not held, and the client lost nothing")

    def _check_calm(self, shared: Shared, part: Part) -> None:
        """Whatever came before: one round that is answered makes everything held, and every wait ends."""
        quiet = Part(part.copy, standing=part.standing, proof=part.proof)
        if (shared, quiet) in self._calm:
            return
        self._calm.add((shared, quiet))
        after, (told,) = self.world.next_round(shared, (quiet,), None)
        self._one_round(after, told, all_held=not self.bound)
        for _ in range(self.bound + 1 if self.bound else 0):
            shared, (quiet,) = self.world.next_round(shared, (quiet._replace(down=()),), EVERYTHING)
        if self.bound:
            self._one_round(shared, quiet, all_held=True)

    def _one_round(self, shared: Shared, part: Part, *, all_held: bool) -> None:
        word = ""
        for _ in range(2):
            part = self._receives(part._replace(down=()), part.down[0])
            part, word = self._answered(shared, part, 0)
            if word != "missing":
                break
        held, sent, stale, *_ = part.standing
        if word != "counted":
            raise Violation(f"a client that gets every message cannot take part: {word}")
        if all_held and (held, sent, stale) != (EVERYTHING, 0, 0):
            raise Violation("a client answered and something is still sent or stale")


def _with(messages: tuple, more: Down | Up) -> tuple:
    return in_order((*messages, more))


def _without(messages: tuple, place: int) -> tuple:
    return (*messages[:place], *messages[place + 1 :])
