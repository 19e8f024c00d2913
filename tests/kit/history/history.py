"""What threads saw of a cache, and whether some order of their calls explains it (in the manner of CacheLib's checker).

`hammer` lets threads at a cache and logs each call: when it began and when it ended, as numbers from one shared
counter, and what the clock said before and after. `unexplained` then looks, key by key, for an order of the calls in
which every answer is right and which keeps apart what did not overlap (linearizability). It tries every order there
is: at each end of a call it keeps every state that the cache may be in, and which of the unfinished calls have had
their effect (W. Lowe, Testing for linearizability, 2017). A call on many keys is one call on each.

No false alarms: an expiry may be read anywhere between the two looks at the clock, and `lossy` allows every miss.
"""

import itertools
import random
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kit.clocks import FakeClock

from fednode.cache import MISSING, CacheBackend

NEVER = float("inf")


class Seen(NamedTuple):
    """One call on one key. `value`: written or read, or whether `delete` said that something was there."""

    kind: str
    key: str
    value: object
    start: int
    end: int
    earliest: float
    """The clock before the call; `latest` the clock after it."""
    latest: float
    ttl: float | None = None
    node: int = 0
    """Which of the nodes that share the cache called."""


class Register(NamedTuple):
    """What one key may hold: a value that expires somewhere from `soonest` to `last`, or `MISSING`."""

    value: object
    soonest: float = NEVER
    last: float = NEVER


EMPTY = Register(MISSING)


def outcomes(state: Register, call: Seen, lossy: bool) -> Iterator[Register]:
    """The states that the key may be in after `call` found it in `state`; none if the answer was wrong."""
    alive = state.value is not MISSING and call.earliest < state.last
    gone = state.value is MISSING or lossy or call.latest >= state.soonest
    if call.kind == "set":
        ttl = NEVER if call.ttl is None else call.ttl
        yield Register(call.value, call.earliest + ttl, call.latest + ttl)
    elif call.kind == "get":
        if call.value is MISSING:
            if gone:
                yield EMPTY
        elif alive and call.value == state.value:
            # having been seen at `earliest` or later, it had not expired by then
            yield state
    elif call.kind == "delete":
        if alive if call.value else gone:
            yield EMPTY
    elif call.kind == "load":
        if alive and call.value == state.value:
            yield state
        if gone:
            ttl = NEVER if call.ttl is None else call.ttl
            yield Register(call.value, call.earliest + ttl, call.latest + ttl)
            # a write may have overtaken it: handed out, never stored
            yield EMPTY
    else:
        raise ValueError(f"{call.kind} is no call that the checker knows")


def unexplained(calls: Iterable[Seen], lossy: bool = False) -> list[str]:
    """One sentence for each key whose calls no order explains: the first answer at which it shows."""
    by_key: dict[str, list[Seen]] = defaultdict(list)
    for call in calls:
        by_key[call.key].append(call)
    found = (_first_unexplained(history, lossy) for _, history in sorted(by_key.items()))
    return [words for words in found if words]


def _first_unexplained(history: list[Seen], lossy: bool) -> str | None:
    events = sorted(
        [(call.start, True, n) for n, call in enumerate(history)] + [(c.end, False, n) for n, c in enumerate(history)]
    )
    pending: set[int] = set()
    states: set[tuple[Register, frozenset[int]]] = {(EMPTY, frozenset())}
    for _, begins, number in events:
        if begins:
            pending.add(number)
            continue
        reached = _with_effect(number, states, pending, lambda state, n: outcomes(state, history[n], lossy))
        if not reached:
            return _words(history, number, states)
        pending.discard(number)
        states = {(state, done - {number}) for state, done in reached}
    return None


def _with_effect(
    number: int,
    states: set[tuple[Register, frozenset[int]]],
    pending: set[int],
    step: Callable[[Register, int], Iterator[Register]],
) -> set[tuple[Register, frozenset[int]]]:
    """Every state in which call `number` has had its effect, after any of the pending ones, in any order."""
    reached: set[tuple[Register, frozenset[int]]] = set()
    tried = set(states)
    waiting = list(states)
    while waiting:
        state, done = waiting.pop()
        if number in done:
            reached.add((state, done))
            continue
        for other in pending - done:
            for after in step(state, other):
                found = (after, done | {other})
                if found not in tried:
                    tried.add(found)
                    waiting.append(found)
    return reached


def _words(history: list[Seen], number: int, states: set[tuple[Register, frozenset[int]]]) -> str:
    call = history[number]
    given = {repr(one.value) for one in history if one.kind in ("set", "load")}
    torn = call.kind == "get" and call.value is not MISSING and repr(call.value) not in given
    could = sorted({_short(state.value) for state, _ in states})
    what = "which nobody wrote" if torn else f"where only {', '.join(could)} could be"
    return f"{call.key}: {call.kind} at {call.start} to {call.end} answered {_short(call.value)}, {what}"


def _short(value: object) -> str:
    return "a miss" if value is MISSING else repr(value)[:40]


@dataclass(frozen=True, slots=True)
class Load:
    """How a cache is hammered: `turns` calls a thread over `keys` keys; `seed` draws who does what."""

    threads: int = 8
    keys: int = 16
    turns: int = 150
    seed: int = 1
    ttls: tuple[float | None, ...] = (None, None, 2.0, 5.0)
    loads: bool = False
    """Whether `get_or_load` is called too."""
    reads: int = 8
    """How often a key is read for each four times that one is set."""
    step: float = 0.25
    """Seconds that the clock moves with each turn of the first thread."""


class Recorder:
    """A cache, as `node` has it, whose calls are logged. The log is complete once every thread has ended."""

    def __init__(
        self, cache: CacheBackend, clock: FakeClock, node: int = 0, order: Iterator[int] | None = None
    ) -> None:
        self._cache, self._clock, self._node = cache, clock, node
        self._order = order or itertools.count()
        self.calls: list[Seen] = []

    def get(self, key: str) -> None:
        start, earliest = next(self._order), self._clock.now()
        value = self._cache.get(key)
        self._log("get", {key: value}, None, (start, earliest))

    def get_many(self, keys: list[str]) -> None:
        start, earliest = next(self._order), self._clock.now()
        found = self._cache.get_many(keys)
        self._log("get", {key: found.get(key, MISSING) for key in keys}, None, (start, earliest))

    def set(self, key: str, value: object, ttl: float | None) -> None:
        start, earliest = next(self._order), self._clock.now()
        self._cache.set(key, value, ttl)
        self._log("set", {key: value}, ttl, (start, earliest))

    def set_many(self, items: dict[str, object], ttl: float | None) -> None:
        start, earliest = next(self._order), self._clock.now()
        self._cache.set_many(items, ttl)
        self._log("set", items, ttl, (start, earliest))

    def delete(self, key: str) -> None:
        start, earliest = next(self._order), self._clock.now()
        was_there = self._cache.delete(key)
        self._log("delete", {key: was_there}, None, (start, earliest))

    def load(self, key: str, value: object, ttl: float | None) -> None:
        start, earliest = next(self._order), self._clock.now()
        found = self._cache.get_or_load(key, lambda: value, ttl)  # type: ignore[attr-defined]
        self._log("load", {key: found}, ttl, (start, earliest))

    def _log(self, kind: str, values: dict[str, object], ttl: float | None, began: tuple[int, float]) -> None:
        latest, (start, earliest) = self._clock.now(), began
        end = next(self._order)
        self.calls += [
            Seen(kind, key, value, start, end, earliest, latest, ttl, self._node) for key, value in values.items()
        ]


def hammer(
    cache: CacheBackend, clock: FakeClock, load: Load | None = None, others: Sequence[CacheBackend] = ()
) -> list[Seen]:
    """Let threads at `cache`, whose clock is `clock`; what each call saw. Raises what a call raised.

    `others` are the same cache as further nodes have it: each thread goes from node to node, one call at each.
    """
    load, order = load or Load(), itertools.count()
    recorders = [Recorder(one, clock, node, order) for node, one in enumerate((cache, *others))]
    failed: list[Exception] = []
    together = threading.Barrier(load.threads)

    def work(thread: int) -> None:
        try:
            together.wait(30)
            for turn in _turns(recorders, load, thread):
                turn()
                # one thread alone moves the clock, so that its steps are not lost
                if thread == 0:
                    clock.sleep(load.step)
                    cache.sweep()
        except Exception as error:  # noqa: BLE001 (raised again by the thread that waits)
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(load.threads)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
            if one.is_alive():
                raise AssertionError("a thread hangs in the cache")
    finally:
        sys.setswitchinterval(before)
    if failed:
        raise failed[0]
    return [call for recorder in recorders for call in recorder.calls]


def _turns(recorders: Sequence[Recorder], load: Load, thread: int) -> Iterator[Callable[[], None]]:
    draws = random.Random(f"{load.seed} {thread}")
    for turn in range(load.turns):
        recorder = recorders[(thread + turn) % len(recorders)]
        names = [f"key {number}" for number in draws.sample(range(load.keys), 3)]
        values = [_value(name, thread, turn) for name in names]
        ttl = draws.choice(load.ttls)
        calls: list[tuple[int, Callable[[], None]]] = [
            (load.reads, lambda r=recorder, n=names[0]: r.get(n)),
            (4, lambda r=recorder, n=names[0], v=values[0], t=ttl: r.set(n, v, t)),
            (2, lambda r=recorder, n=names[0]: r.delete(n)),
            (2, lambda r=recorder, n=names: r.get_many(n)),
            (2, lambda r=recorder, n=names, v=values, t=ttl: r.set_many(dict(zip(n, v, strict=True)), t)),
            (4 if load.loads else 0, lambda r=recorder, n=names[0], v=values[0], t=ttl: r.load(n, v, t)),
        ]
        yield draws.choices([call for _, call in calls], [weight for weight, _ in calls])[0]


def _value(key: str, thread: int, turn: int) -> bytes:
    """Unlike every other value, and so repetitive that half of one and half of another is neither."""
    return f"{key}|{thread}|{turn};".encode() * 8


def overlapping(history: list[Seen]) -> int:
    """Calls of one key that began while another of it was under way: without any, nothing was tested."""
    open_until: dict[str, int] = {}
    found = 0
    for one in sorted(history, key=lambda call: call.start):
        found += one.start < open_until.get(one.key, -1)
        open_until[one.key] = max(one.end, open_until.get(one.key, -1))
    return found
