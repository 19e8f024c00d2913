"""The history checker finds planted faults and nothing else; what each cache shows under threads is explained."""

import itertools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Lock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.clocks import FakeClock
from kit.history.history import EMPTY, NEVER, Load, Register, Seen, hammer, outcomes, overlapping, unexplained

from fednode.cache import MISSING, POLICIES, CacheBackend, FileBackend, Limits, MemoryBackend, WhenFull
from fednode.cache.wrappers.stack import Wrapping, nested

pytestmark = pytest.mark.thorough

ROOMY = Limits(entries=1_000, total_bytes=1 << 20, value_bytes=1 << 16)


class LockedDict:
    """A cache that is right by being slow: one lock around everything."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.lock = Lock()
        self.held: dict[str, tuple[object, float]] = {}
        self.calls = itertools.count(1)

    def get(self, key: str) -> object:
        with self.lock:
            return self.look(key)

    def look(self, key: str) -> object:
        value, until = self.held.get(key, (MISSING, NEVER))
        return value if self.clock.now() < until else MISSING

    def get_many(self, keys: list[str]) -> dict[str, object]:
        found = {key: self.get(key) for key in keys}
        return {key: value for key, value in found.items() if value is not MISSING}

    def set(self, key: str, value: object, ttl: float | None) -> None:
        with self.lock:
            self.held[key] = (value, NEVER if ttl is None else self.clock.now() + ttl)

    def set_many(self, items: Mapping[str, object], ttl: float | None) -> None:
        for key, value in items.items():
            self.set(key, value, ttl)

    def delete(self, key: str) -> bool:
        with self.lock:
            was_there = self.look(key) is not MISSING
            self.held.pop(key, None)
            return was_there

    def sweep(self) -> int:
        return 0


class StaleReads(LockedDict):
    """Now and then a read answers what was there before the last write."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.before: dict[str, object] = {}

    def set(self, key: str, value: object, ttl: float | None) -> None:
        self.before[key] = self.held.get(key, (MISSING, 0))[0]
        super().set(key, value, ttl)

    def get(self, key: str) -> object:
        return self.before.get(key, MISSING) if next(self.calls) % 50 == 0 else super().get(key)


class LostWrites(LockedDict):
    def set(self, key: str, value: object, ttl: float | None) -> None:
        if next(self.calls) % 50:
            super().set(key, value, ttl)


class TornValues(LockedDict):
    def get(self, key: str) -> object:
        value = super().get(key)
        torn = isinstance(value, bytes) and next(self.calls) % 50 == 0
        return value[: len(value) // 2] + bytes(len(value) // 2) if torn and isinstance(value, bytes) else value


class ResurrectedValues(LockedDict):
    """Now and then a deletion says that it was done, and what was deleted is still there."""

    def delete(self, key: str) -> bool:
        kept = self.held.get(key)
        done = super().delete(key)
        if done and kept is not None and next(self.calls) % 20 == 0:
            self.held[key] = kept
        return done


class ExpiredReads(LockedDict):
    def look(self, key: str) -> object:
        return self.held.get(key, (MISSING, 0))[0]


class ShortLives(LockedDict):
    """Values expire long before their time."""

    def set(self, key: str, value: object, ttl: float | None) -> None:
        super().set(key, value, None if ttl is None else ttl / 4)


FAULTS = [StaleReads, LostWrites, TornValues, ResurrectedValues, ExpiredReads, ShortLives]


def test_a_right_cache_is_explained() -> None:
    clock = FakeClock()
    assert unexplained(hammer(LockedDict(clock), clock)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize(
    ("faulty", "lossy"),
    [
        *((faulty, False) for faulty in FAULTS),
        *((faulty, True) for faulty in (StaleReads, TornValues, ResurrectedValues, ExpiredReads)),
    ],
)
def test_a_planted_fault_is_found(faulty: Callable[[FakeClock], CacheBackend], threads: int, lossy: bool) -> None:
    """In half of ten rounds at least. One thread meets the same calls every time, whatever the machine does."""
    found = 0
    for seed in range(10):
        clock = FakeClock()
        load = Load(threads=threads, turns=1_200 // threads, seed=seed)
        found += unexplained(hammer(faulty(clock), clock, load), lossy) != []
    assert found >= 5


def call(kind: str, value: object, start: int, end: int, ttl: float | None = None) -> Seen:
    return Seen(kind, "k", value, start, end, float(start), float(end), ttl)


@pytest.mark.parametrize(
    ("history", "explained"),
    [
        ([call("get", MISSING, 1, 2)], True),
        ([call("get", b"a", 1, 2)], False),
        ([call("set", b"a", 1, 2), call("get", b"a", 3, 4)], True),
        ([call("set", b"a", 1, 2), call("get", MISSING, 3, 4)], False),
        ([call("set", b"a", 1, 4), call("get", MISSING, 2, 3)], True),
        ([call("set", b"a", 1, 6), call("get", b"a", 2, 3), call("get", MISSING, 4, 5)], False),
        ([call("set", b"a", 1, 6), call("get", MISSING, 2, 3), call("get", b"a", 4, 5)], True),
        ([call("set", b"a", 1, 2), call("set", b"b", 3, 6), call("get", b"b", 4, 5), call("get", b"a", 7, 8)], False),
        ([call("set", b"a", 1, 2), call("delete", True, 3, 4), call("get", b"a", 5, 6)], False),
        ([call("set", b"a", 1, 2), call("delete", False, 3, 4)], False),
        ([call("delete", True, 1, 2)], False),
        ([call("set", b"a", 1, 2, 10.0), call("get", b"a", 13, 14)], False),
        ([call("set", b"a", 1, 2, 10.0), call("get", MISSING, 9, 10)], False),
        ([call("set", b"a", 1, 2, 10.0), call("get", MISSING, 9, 11)], True),
        ([call("set", b"a", 1, 2, 10.0), call("get", MISSING, 9, 11), call("get", b"a", 11, 12)], False),
        # a load that is stored after a write that came meanwhile: what was set is lost
        ([call("load", b"a", 1, 6), call("set", b"b", 2, 3), call("get", b"a", 7, 8)], False),
        ([call("load", b"a", 1, 6), call("set", b"b", 2, 3), call("get", b"b", 7, 8)], True),
        ([call("load", b"a", 1, 6), call("delete", False, 2, 3), call("get", MISSING, 7, 8)], True),
    ],
)
def test_small_histories(history: list[Seen], explained: bool) -> None:
    assert (unexplained(history) == []) is explained


@st.composite
def histories(draw: st.DrawFn) -> list[Seen]:
    """Up to five calls with unlike bounds and any answers, right or wrong."""
    count = draw(st.integers(1, 5))
    bounds = draw(st.permutations(range(2 * count)))
    found = []
    for number in range(count):
        start, end = sorted(bounds[2 * number : 2 * number + 2])
        kind = draw(st.sampled_from(["set", "get", "get", "delete"]))
        values = {"set": [b"a", b"b"], "get": [b"a", b"b", MISSING], "delete": [True, False]}[kind]
        ttl = draw(st.sampled_from([None, 3.0])) if kind == "set" else None
        found.append(call(kind, draw(st.sampled_from(values)), start, end, ttl))
    return found


def some_order_explains(history: list[Seen], lossy: bool) -> bool:
    """The definition, word by word: every order that keeps apart what did not overlap."""
    for order in itertools.permutations(history):
        if any(late.end < early.start for early, late in itertools.combinations(order, 2)):
            continue
        states: set[Register] = {EMPTY}
        for one in order:
            states = {after for state in states for after in outcomes(state, one, lossy)}
        if states:
            return True
    return False


@given(histories(), st.booleans())
@settings(max_examples=400, deadline=None)
def test_the_checker_agrees_with_the_definition(history: list[Seen], lossy: bool) -> None:
    assert (unexplained(history, lossy) == []) is some_order_explains(history, lossy)


def memory(clock: FakeClock, limits: Limits = ROOMY, policy: str = "adaptive", shards: int = 1) -> MemoryBackend:
    return MemoryBackend(clock, limits, policy=policy, shards=shards)


CUT = Wrapping(piece_bytes=64, value_bytes=1 << 12)
CACHES: dict[str, Callable[[FakeClock], CacheBackend]] = {
    "memory": memory,
    "memory in shards": lambda clock: memory(clock, shards=4),
    "memory that refuses": lambda clock: MemoryBackend(clock, ROOMY, WhenFull.REFUSE),
    "guarded": lambda clock: nested(memory(clock), clock, lambda: 0.5).guard,
    "chunked": lambda clock: nested(memory(clock), clock, lambda: 0.5, CUT).backend,
    "counted": lambda clock: nested(memory(clock), clock, lambda: 0.5).cache,
}


def must_be_explained(make: Callable[[FakeClock], CacheBackend], load: Load) -> None:
    """Every round is explained, and in one of them threads met: a busy machine may let them run one by one."""
    for round_number in range(10):
        clock = FakeClock()
        history = hammer(make(clock), clock, replace(load, seed=load.seed + 100 * round_number))
        assert unexplained(history) == []
        assert len(history) > 8 * load.turns
        if overlapping(history) > 50:
            return
    raise AssertionError("threads never met in the cache: nothing was tested")


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_threads_saw_is_explained(name: str, seed: int) -> None:
    must_be_explained(CACHES[name], Load(seed=seed, turns=250, loads=name in ("guarded", "counted")))


def test_what_threads_saw_of_files_is_explained(tmp_path: Path) -> None:
    folders = itertools.count()
    with ExitStack() as stack:

        def make(clock: FakeClock) -> CacheBackend:
            folder = tmp_path / str(next(folders))
            folder.mkdir()
            return stack.enter_context(FileBackend(folder, clock, ROOMY, WhenFull.EVICT))

        must_be_explained(make, Load(turns=25))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entries", [4, 9])
def test_a_cache_that_evicts_forgets_and_never_lies(policy: str, entries: int) -> None:
    clock = FakeClock()
    backend = memory(clock, Limits(entries, 1 << 16, 1 << 12), policy)
    history = hammer(nested(backend, clock, lambda: 0.5).cache, clock, Load(loads=True))
    assert unexplained(history, lossy=True) == []
    usage = backend.usage()
    assert usage.entries <= entries
    assert usage.evictions > 0
