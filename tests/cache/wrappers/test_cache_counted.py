"""`Counted`: the kit; each number, exact under threads; the default nest."""

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from kit.cache.backend import BackendKit
from kit.clocks import FakeClock

from fednode.cache import MISSING, CacheBackend, Limits, MemoryBackend
from fednode.cache.backend import Missing
from fednode.cache.redis.records import Lasting
from fednode.cache.wrappers.counted import Counted, Counts
from fednode.cache.wrappers.counter import EventCounter
from fednode.cache.wrappers.loading import GuardSettings
from fednode.cache.wrappers.stack import Wrapping, near, nested
from fednode.cache.wrappers.tiered import ChangeFeed, TierOptions
from fednode.errors import StoreError

ROOMY = Limits(entries=1_000, total_bytes=1 << 20, value_bytes=1 << 16)
STILL = Wrapping(GuardSettings(jitter=0.0))


class TestCounted(BackendKit):
    def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
        return Counted(MemoryBackend(clock, limits))


class TestDefaultNest(BackendKit):
    def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
        return nested(MemoryBackend(clock, limits), clock, random.Random(1).random, STILL).cache


class TestNestInPieces(BackendKit):
    def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
        wrapping = replace(STILL, piece_bytes=min(1 << 10, limits.value_bytes), value_bytes=limits.value_bytes)
        return nested(MemoryBackend(clock, limits), clock, random.Random(1).random, wrapping).cache


@pytest.fixture
def cache() -> Counted:
    clock = FakeClock()
    return nested(MemoryBackend(clock, ROOMY), clock, lambda: 0.5).cache


def test_before_the_first_read_there_is_no_ratio(cache: Counted) -> None:
    assert cache.counts() == Counts(0, 0, 0, 0, 0)
    assert cache.counts().hit_ratio is None


def test_each_call_counts_once(cache: Counted) -> None:
    cache.set("a", b"1", None)
    cache.set_many({"b": b"2", "c": None}, None)
    cache.pin("d", b"4")
    assert [cache.get(key) for key in ("a", "c", "absent")] == [b"1", None, MISSING]
    assert list(cache.get_many(["a", "b", "absent", "b", "absent"])) == ["a", "b"]
    assert cache.get_many(key for key in "ab") == {"a": b"1", "b": b"2"}
    assert [cache.delete("a"), cache.delete("a")] == [True, False]
    assert cache.counts() == Counts(hits=6, misses=2, sets=4, deletes=1, loads=0)
    assert cache.counts().hit_ratio == 0.75
    assert cache.usage().entries == 3


def test_loads_are_counted_and_a_load_is_one_miss(cache: Counted) -> None:
    assert cache.get_or_load("k", lambda: b"v", None) == b"v"
    assert cache.get_or_load("k", lambda: b"w", None) == b"v"
    assert cache.get_or_load("absent", lambda: MISSING, None) is MISSING
    assert cache.get_or_load("absent", lambda: b"v", None) is MISSING
    assert cache.counts() == Counts(hits=1, misses=3, sets=0, deletes=0, loads=2)


def test_what_was_refused_is_not_counted(cache: Counted) -> None:
    with pytest.raises(StoreError):
        cache.set("k", bytes(1 << 17), None)
    with pytest.raises(StoreError):
        cache.set_many({"a": b"1", "k": bytes(1 << 17)}, None)
    assert cache.counts().sets == 0


def test_clearing_keeps_the_counts(cache: Counted) -> None:
    cache.set("a", b"1", None)
    cache.get("a")
    cache.clear()
    assert (cache.counts().hits, cache.counts().sets, list(cache.keys())) == (1, 1, [])


def test_without_a_guard_nothing_loads() -> None:
    with pytest.raises(TypeError, match="Guarded"):
        Counted(MemoryBackend(FakeClock(), ROOMY)).get_or_load("k", lambda: b"v", None)


def test_counts_are_exact_under_threads(cache: Counted) -> None:
    cache.set("there", b"1", None)

    def work(_: int) -> None:
        for _ in range(2_000):
            cache.get("there")
            cache.get("absent")
            cache.get_many(["there", "absent", "there too"])
        cache.counts()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    counts = cache.counts()
    assert (counts.hits, counts.misses) == (8 * 4_000, 8 * 6_000)
    assert counts.hit_ratio == 0.4


def test_reading_a_counter_does_not_raise_it() -> None:
    counter = EventCounter()
    for _ in range(5):
        counter.one()
        assert counter.value == counter.value
    counter.add(10)
    counter.one()
    assert (counter.value, counter.value) == (16, 16)


def test_values_are_cut_below_the_guard_and_whole_above_it() -> None:
    clock = FakeClock()
    memory = MemoryBackend(clock, ROOMY)
    nest = nested(memory, clock, lambda: 0.5, Wrapping(piece_bytes=1 << 10, value_bytes=1 << 15))
    value = bytes(range(256)) * 40
    nest.cache.set("k", value, None)
    assert memory.usage().entries > 10
    assert (nest.cache.get("k"), nest.backend.get("k"), list(nest.cache.keys())) == (value, value, ["k"])
    assert nest.cache.counts() == Counts(hits=1, misses=0, sets=1, deletes=0, loads=0)


class Unfollowed(MemoryBackend):
    """A far cache that nobody can follow."""

    clock = FakeClock()

    def get_lasting(self, key: str) -> Lasting | Missing:
        value = self.get(key)
        return value if isinstance(value, Missing) else Lasting(value, 60.0)

    def get_many_lasting(self, keys: Iterable[str]) -> dict[str, Lasting]:
        return {key: Lasting(value, 60.0) for key, value in self.get_many(keys).items()}

    def follow(self) -> ChangeFeed:
        raise StoreError("no messages here")


def test_a_near_cache_goes_under_the_guard() -> None:
    clock = FakeClock()
    remote = Unfollowed(clock, ROOMY)
    with near(MemoryBackend(clock, ROOMY), remote, TierOptions(heartbeat=0.05)) as tiered:
        nest = nested(tiered, clock, lambda: 0.5)
        assert nest.cache.get_or_load("k", lambda: b"v", None) == b"v"
        assert (nest.cache.get("k"), remote.get("k"), nest.backend is tiered) == (b"v", b"v", True)
        assert nest.cache.delete("k") is True
        assert (nest.cache.get("k"), remote.get("k")) == (MISSING, MISSING)
