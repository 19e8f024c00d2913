"""`Guarded`: the kit; one load a key, whose end reaches everybody; remembered misses; lives of unequal length."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.cache.backend import BackendKit
from kit.clocks import FakeClock

from fednode.cache import MISSING, CacheBackend, Limits, MemoryBackend
from fednode.cache.backend import StoreFull
from fednode.cache.wrappers.loading import Guarded, GuardSettings, StillLoading, jittered
from fednode.errors import ConfigError, StoreError

ROOMY = Limits(entries=1_000, total_bytes=1 << 20, value_bytes=1 << 16)


class TestGuarded(BackendKit):
    """With the default jitter and a source that always draws the middle."""

    def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
        return Guarded(MemoryBackend(clock, limits), clock, lambda: 0.5)


class TestGuardedWithoutJitter(BackendKit):
    def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
        return Guarded(MemoryBackend(clock, limits), clock, random.Random(1).random, GuardSettings(jitter=0.0))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def guard(clock: FakeClock) -> Guarded:
    return Guarded(MemoryBackend(clock, ROOMY), clock, lambda: 0.5, GuardSettings(wait=20.0))


def never() -> bytes:
    raise AssertionError("this loader must not run")


def until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(20_000):
        if holds():
            return
        pause.wait(0.0005)
    raise AssertionError("it never came to that")


class Slow:
    """A loader that waits to be let go; `end` says how it ends."""

    def __init__(self, end: Callable[[], object]) -> None:
        self.end = end
        self.running, self.go = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self) -> object:
        self.calls += 1
        self.running.set()
        assert self.go.wait(20)
        return self.end()


def crowd(pool: ThreadPoolExecutor, guard: Guarded, slow: Slow, others: Callable[[], object]) -> list[Future[object]]:
    """One caller who leads with `slow`, and three who wait for it."""
    asked = [pool.submit(guard.get_or_load, "k", slow, None)]
    assert slow.running.wait(20)
    asked += [pool.submit(guard.get_or_load, "k", others, None) for _ in range(3)]
    until(lambda: len(guard._flights._waiting) == 3)
    return asked


def test_what_is_there_is_not_loaded_a_cached_none_neither(guard: Guarded) -> None:
    guard.set("k", None, None)
    guard.set("empty", b"", None)
    assert guard.get_or_load("k", never, None) is None
    assert guard.get_or_load("empty", never, None) == b""
    assert guard.get_or_load("loaded", lambda: None, None) is None
    assert guard.get_or_load("loaded", never, None) is None


def test_one_load_serves_everybody(guard: Guarded) -> None:
    slow = Slow(lambda: b"v")
    with ThreadPoolExecutor(4) as pool:
        asked = crowd(pool, guard, slow, never)
        slow.go.set()
        assert [one.result(20) for one in asked] == [b"v"] * 4
    assert (slow.calls, guard.get("k")) == (1, b"v")


def test_an_error_reaches_everybody_and_is_not_remembered(guard: Guarded) -> None:
    trouble = OSError("the disk is away")

    def fail() -> object:
        raise trouble

    slow = Slow(fail)
    with ThreadPoolExecutor(4) as pool:
        asked = crowd(pool, guard, slow, never)
        slow.go.set()
        errors = [one.exception(20) for one in asked]
    assert errors == [trouble] * 4
    assert (slow.calls, guard.get_or_load("k", lambda: b"now", None)) == (1, b"now")


def test_an_interrupted_leader_leaves_the_others_to_load(guard: Guarded) -> None:
    def interrupted() -> object:
        raise KeyboardInterrupt

    slow, calls = Slow(interrupted), []

    def load() -> object:
        calls.append(1)
        return b"v"

    with ThreadPoolExecutor(4) as pool:
        asked = crowd(pool, guard, slow, load)
        slow.go.set()
        assert isinstance(asked[0].exception(20), KeyboardInterrupt)
        assert [one.result(20) for one in asked[1:]] == [b"v"] * 3
    assert len(calls) == 1


def test_a_waiter_gives_up_and_nobody_else_is_hurt(guard: Guarded) -> None:
    slow = Slow(lambda: b"v")
    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(guard.get_or_load, "k", slow, None)
        assert slow.running.wait(20)
        guard.settings = replace(guard.settings, wait=0.01)
        with pytest.raises(StillLoading, match="'k'"):
            guard.get_or_load("k", never, None)
        assert guard._flights._waiting == {}
        slow.go.set()
        assert leader.result(20) == b"v"
    assert guard.get("k") == b"v"


def test_a_loader_that_asks_for_its_own_key_is_refused(guard: Guarded) -> None:
    with pytest.raises(RuntimeError, match="'k' asks for 'k' again"):
        guard.get_or_load("k", lambda: guard.get_or_load("k", never, None), None)
    with pytest.raises(RuntimeError, match="would wait for itself"):
        guard.get_or_load("a", lambda: guard.get_or_load("b", lambda: guard.get_or_load("a", never, None), None), None)
    assert guard.get_or_load("k", lambda: b"v", None) == b"v"
    assert guard.get_or_load("a", lambda: guard.get_or_load("b", lambda: b"v", None), None) == b"v"


def test_two_threads_whose_loaders_need_each_other_do_not_hang(guard: Guarded) -> None:
    both = threading.Barrier(2)

    def load(other: str) -> object:
        both.wait(20)
        return guard.get_or_load(other, lambda: b"v", None)

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(guard.get_or_load, key, lambda o=other: load(o), None) for key, other in ("ab", "ba")]
        errors = [one.exception(20) for one in asked]
    assert all(isinstance(error, RuntimeError) for error in errors)
    assert guard.get_or_load("a", lambda: b"v", None) == b"v"


WRITES: dict[str, Callable[[Guarded], object]] = {
    "set": lambda guard: guard.set("k", b"new", None),
    "set_many": lambda guard: guard.set_many({"other": b"x", "k": b"new"}, None),
    "pin": lambda guard: guard.pin("k", b"new"),
    "delete": lambda guard: guard.delete("k"),
    "clear": lambda guard: guard.clear(),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("loaded", [b"old", MISSING])
def test_a_write_during_a_load_wins(guard: Guarded, write: str, loaded: object) -> None:
    def load() -> object:
        WRITES[write](guard)
        return loaded

    assert guard.get_or_load("k", load, None) == loaded
    expected = MISSING if write in ("delete", "clear") else b"new"
    assert guard.get("k") == expected
    after = guard.get_or_load("k", lambda: b"again", None)
    assert after == (b"again" if expected is MISSING else b"new")
    assert not guard._absent


def test_who_asks_after_an_invalidation_gets_nothing_older(guard: Guarded) -> None:
    slow = Slow(lambda: b"old")
    with ThreadPoolExecutor(2) as pool:
        before = pool.submit(guard.get_or_load, "k", slow, None)
        assert slow.running.wait(20)
        guard.delete("k")
        after = pool.submit(guard.get_or_load, "k", lambda: b"new", None)
        until(lambda: len(guard._flights._waiting) == 1)
        slow.go.set()
        assert (before.result(20), after.result(20)) == (b"old", b"new")
    assert guard.get("k") == b"new"


class Gated(MemoryBackend):
    """A memory whose next `set` stops half-way until it is let go."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, ROOMY)
        self.inside, self.go = threading.Event(), threading.Event()
        self.gated = True

    def set(self, key: str, value: object, ttl: float | None) -> None:
        if self.gated:
            self.gated = False
            self.inside.set()
            assert self.go.wait(20)
        super().set(key, value, ttl)


def test_a_write_waits_while_the_answer_is_stored_and_lands_on_top(clock: FakeClock) -> None:
    backend = Gated(clock)
    guard = Guarded(backend, clock, lambda: 0.5)
    with ThreadPoolExecutor(2) as pool:
        load = pool.submit(guard.get_or_load, "k", lambda: b"old", None)
        assert backend.inside.wait(20)
        write = pool.submit(guard.set, "k", b"new", None)
        until(lambda: "k" in guard._flights._writes)
        assert not write.done()
        backend.go.set()
        assert (load.result(20), write.result(20)) == (b"old", None)
    assert guard.get("k") == b"new"
    assert guard._flights._writes == {}


def test_a_load_that_takes_off_during_a_write_is_not_stored_over_it(clock: FakeClock) -> None:
    backend = Gated(clock)
    guard = Guarded(backend, clock, lambda: 0.5)
    with ThreadPoolExecutor(1) as pool:
        write = pool.submit(guard.set, "k", b"new", None)
        assert backend.inside.wait(20)
        assert guard.get_or_load("k", lambda: b"old", None) == b"old"
        backend.go.set()
        write.result(20)
    assert guard.get("k") == b"new"


def test_a_refused_write_leaves_no_trace(guard: Guarded) -> None:
    with pytest.raises(StoreError):
        guard.set("k", bytes(1 << 17), None)
    with pytest.raises(ValueError, match="time to live"):
        guard.set_many({"k": b"v"}, 0.0)
    assert guard._flights._writes == {}
    assert guard.get_or_load("k", lambda: b"v", None) == b"v"
    assert guard.get("k") == b"v"


def test_a_miss_is_remembered_for_a_moment(guard: Guarded, clock: FakeClock) -> None:
    assert guard.get_or_load("k", lambda: MISSING, None) is MISSING
    assert guard.get_or_load("k", never, None) is MISSING
    assert guard.get("k") is MISSING
    assert list(guard.keys()) == []
    clock.sleep(5.0)
    assert guard.get_or_load("k", lambda: b"v", None) == b"v"


@pytest.mark.parametrize("write", ["set", "set_many", "pin", "delete", "clear"])
def test_a_write_overrides_a_remembered_miss(guard: Guarded, write: str) -> None:
    guard.get_or_load("k", lambda: MISSING, None)
    WRITES[write](guard)
    assert guard.get_or_load("k", lambda: b"new", None) == b"new"


def test_remembered_misses_are_bounded_and_swept(clock: FakeClock) -> None:
    guard = Guarded(MemoryBackend(clock, ROOMY), clock, lambda: 0.5, GuardSettings(negative_entries=3))
    for number in range(10):
        guard.get_or_load(f"k{number}", lambda: MISSING, None)
    assert len(guard._absent) == 3
    assert guard.get_or_load("k9", never, None) is MISSING
    clock.sleep(5.0)
    assert (guard.sweep(), guard._absent) == (0, {})


def test_remembering_can_be_turned_off(clock: FakeClock) -> None:
    guard = Guarded(MemoryBackend(clock, ROOMY), clock, lambda: 0.5, GuardSettings(negative_ttl=0.0))
    assert guard.get_or_load("k", lambda: MISSING, None) is MISSING
    assert guard.get_or_load("k", lambda: b"v", None) == b"v"


def test_what_finds_no_room_is_answered_all_the_same(clock: FakeClock) -> None:
    guard = Guarded(MemoryBackend(clock, Limits(10, 100, 10)), clock, lambda: 0.5)
    assert guard.get_or_load("k", lambda: bytes(50), None) == bytes(50)
    assert guard.get("k") is MISSING


def test_a_loader_that_finds_no_room_itself_has_failed(guard: Guarded) -> None:
    def full() -> bytes:
        raise StoreFull("no room elsewhere")

    with pytest.raises(StoreFull, match="elsewhere"):
        guard.get_or_load("k", full, None)


def test_a_ttl_that_means_nothing_is_refused_before_the_load(guard: Guarded) -> None:
    with pytest.raises(ValueError, match="time to live"):
        guard.get_or_load("k", never, 0.0)
    with pytest.raises(TypeError):
        guard.get_or_load("k", object, None)
    assert guard.get_or_load("k", lambda: b"v", 1.0) == b"v"


def test_nobody_shares_what_was_loaded(guard: Guarded) -> None:
    own = np.arange(4)
    slow = Slow(lambda: {"a": own})
    with ThreadPoolExecutor(4) as pool:
        asked = crowd(pool, guard, slow, never)
        slow.go.set()
        found = [one.result(20) for one in asked]
    for one in found:
        assert isinstance(one, dict)
        one["a"] = None
    own[:] = 9
    held = guard.get("k")
    assert isinstance(held, dict)
    assert held["a"].tolist() == [0, 1, 2, 3]


@given(
    st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    st.floats(0, 0.5),
    st.floats(0, 1),
)
@settings(max_examples=300, deadline=None)
def test_a_varied_life_is_above_zero_and_within_the_jitter(ttl: float, jitter: float, drawn: float) -> None:
    varied = jittered(ttl, jitter, drawn)
    assert varied is not None
    assert 0 < varied < float("inf")
    assert varied / (1 + 1e-12) <= ttl * (1 + jitter)
    assert varied >= ttl * (1 - jitter) * (1 - 1e-12) or varied >= 5e-324


def test_no_expiry_is_not_varied() -> None:
    assert jittered(None, 0.1, 0.9) is None


class Noting(MemoryBackend):
    """A memory that notes the lives it was asked for."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, ROOMY)
        self.lives: list[float | None] = []

    def set(self, key: str, value: object, ttl: float | None) -> None:
        self.lives.append(ttl)
        super().set(key, value, ttl)

    def set_many(self, items: object, ttl: float | None) -> None:
        self.lives.append(ttl)


def lives(seed: int) -> list[float | None]:
    clock = FakeClock()
    backend = Noting(clock)
    guard = Guarded(backend, clock, random.Random(seed).random)
    for number in range(200):
        guard.set(f"k{number}", b"v", 100.0)
    guard.get_or_load("loaded", lambda: b"v", 100.0)
    guard.set_many({f"m{number}": b"v" for number in range(640)}, 100.0)
    return backend.lives


def test_lives_spread_over_the_jitter_and_follow_the_seed() -> None:
    found = [life for life in lives(7) if life is not None]
    assert len(found) == 211
    assert 90 <= min(found) < 92
    assert 108 < max(found) <= 110
    assert len(set(found)) == 211
    assert (lives(7) == found, lives(8) == found) == (True, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"jitter": -0.1},
        {"jitter": 0.6},
        {"jitter": float("nan")},
        {"negative_ttl": -1.0},
        {"negative_ttl": float("inf")},
        {"negative_entries": 0},
        {"wait": 0.0},
        {"wait": float("inf")},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        GuardSettings(**wrong)  # type: ignore[arg-type]


def test_settings_hold_from_the_next_call_on(guard: Guarded, clock: FakeClock) -> None:
    guard.settings = replace(guard.settings, negative_ttl=50.0)
    guard.get_or_load("k", lambda: MISSING, None)
    clock.sleep(49.0)
    assert guard.get_or_load("k", never, None) is MISSING


@pytest.mark.parametrize("wait", [1e10, 1e300, float("inf"), float("nan"), 0.0])
def test_a_wait_that_no_thread_can_wait_is_refused(wait: float) -> None:
    with pytest.raises(ConfigError, match="wait"):
        GuardSettings(wait=wait)
    assert GuardSettings(wait=threading.TIMEOUT_MAX)
