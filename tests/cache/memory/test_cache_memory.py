"""`MemoryBackend`: the kit and the random walk under every policy, limits, pins, what goes first, tuning."""

import sys
import threading
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.cache.backend import ROOMY, BackendKit
from kit.cache.backend_machine import TIGHT, BackendMachine
from kit.clocks import FakeClock

from fednode.cache import MISSING, CacheBackend, Limits, MemoryBackend, StoreFull, TooLarge, Usage, WhenFull
from fednode.cache.memory.policies import POLICIES
from fednode.errors import ConfigError

SMALL = Limits(entries=3, total_bytes=10, value_bytes=6)


class TestEvictingMemory(BackendKit):
    def make(self, clock: FakeClock, limits: Limits) -> MemoryBackend:
        return MemoryBackend(clock, limits)


class TestRefusingMemory(BackendKit):
    def make(self, clock: FakeClock, limits: Limits) -> MemoryBackend:
        return MemoryBackend(clock, limits, WhenFull.REFUSE)


class TestShardedMemory(BackendKit):
    def make(self, clock: FakeClock, limits: Limits) -> MemoryBackend:
        # what has limits of its own is divided where a value still fits a part
        return MemoryBackend(clock, limits, shards=4 if limits.value_bytes * 16 <= limits.total_bytes else 1)


class MemoryMachine(BackendMachine):
    policy: ClassVar[str] = "adaptive"

    def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
        return MemoryBackend(clock, limits, WhenFull.EVICT if self.evicts else WhenFull.REFUSE, self.policy)


class WideMachine(MemoryMachine):
    def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
        return MemoryBackend(clock, limits, shards=8)


class RefusingMachine(MemoryMachine):
    limits, evicts = TIGHT, False


class LruMachine(MemoryMachine):
    limits, policy = TIGHT, "lru"


class LfuMachine(MemoryMachine):
    limits, policy = TIGHT, "lfu"


class AdaptiveMachine(MemoryMachine):
    limits, policy = TIGHT, "adaptive"


class S3FifoMachine(MemoryMachine):
    limits, policy = TIGHT, "s3fifo"


TestWide, TestRefusing, TestLru = WideMachine.TestCase, RefusingMachine.TestCase, LruMachine.TestCase
TestLfu, TestAdaptive, TestS3Fifo = LfuMachine.TestCase, AdaptiveMachine.TestCase, S3FifoMachine.TestCase
for case in (TestWide, TestRefusing, TestLru, TestLfu, TestAdaptive, TestS3Fifo):
    case.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
del case


@pytest.mark.parametrize("limits", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 5, 6), (-1, 1, 1)])
def test_limits_that_cannot_work_are_refused(limits: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="cache limit"):
        Limits(*limits)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.booleans()), max_size=120))
def test_limits_hold_after_every_set(policy: str, sets: list[tuple[int, int, bool]]) -> None:
    clock = FakeClock()
    backend = MemoryBackend(clock, Limits(entries=8, total_bytes=200, value_bytes=50), policy=policy, shards=2)
    for key, size, pinned in sets:
        clock.sleep(0.5)
        try:
            if pinned:
                backend.pin(str(key), bytes(size))
            else:
                backend.set(str(key), bytes(size), 5.0 if key % 3 else None)
            assert backend.get(str(key)) == bytes(size)
        except TooLarge:
            assert size > 50
        except StoreFull:
            assert backend.usage().pinned_entries > 0
        usage = backend.usage()
        assert usage.entries <= 8 and usage.bytes <= 200


def test_strict_lru_evicts_the_least_recently_used() -> None:
    backend = MemoryBackend(FakeClock(), SMALL, policy="lru")
    for key in "abc":
        backend.set(key, b"1", None)
    backend.get("a")
    backend.get_many("ab")
    backend.set("d", b"1", None)
    assert sorted(backend.keys()) == ["a", "b", "d"]
    assert backend.usage().evictions == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_the_key_just_written_is_never_the_victim(policy: str) -> None:
    backend = MemoryBackend(FakeClock(), SMALL, policy=policy)
    for key in ("a", "b", "a"):
        backend.set(key, b"123456", None)
    assert (backend.get("a"), backend.get("b")) == (b"123456", MISSING)
    assert (backend.usage().entries, backend.usage().bytes) == (1, 6)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_expired_entry_makes_room_before_a_live_one(policy: str) -> None:
    clock = FakeClock()
    backend = MemoryBackend(clock, SMALL, policy=policy)
    backend.set("live", b"1", None)
    backend.set("dead", b"1", 1.0)
    backend.set("late", b"1", 5.0)
    backend.get("dead")
    clock.sleep(2.0)
    backend.set("new", b"1", None)
    assert [backend.get(key) for key in ("live", "dead", "late", "new")] == [b"1", MISSING, b"1", b"1"]
    assert backend.usage() == Usage(3, 3, evictions=0, expiries=1)


def test_capacity_wins_over_a_long_life() -> None:
    backend = MemoryBackend(FakeClock(), SMALL)
    for number in range(50):
        backend.set(str(number), b"1", 1e9)
    assert (backend.usage().entries, backend.usage().evictions) == (3, 47)


def test_overwriting_resets_the_count_of_uses() -> None:
    backend = MemoryBackend(FakeClock(), SMALL, policy="lfu")
    for key in "abc":
        backend.set(key, b"1", None)
    for _ in range(5):
        backend.get("a")
    for key in "bc":
        backend.get(key)
    backend.set("a", b"1", None)
    backend.set("d", b"1", None)
    assert sorted(backend.keys()) == ["b", "c", "d"]


def test_pins_outlive_every_eviction_and_count_in_bytes() -> None:
    backend = MemoryBackend(FakeClock(), SMALL)
    backend.pin("pinned", b"123456")
    for number in range(20):
        backend.set(str(number), b"12", None)
    assert backend.get("pinned") == b"123456"
    assert (backend.usage().bytes, backend.usage().pinned_bytes) == (10, 6)
    with pytest.raises(StoreFull, match="6 of them pinned"):
        backend.set("large", b"12345", None)
    assert backend.usage().bytes == 10
    assert backend.usage().refusals == 1


def test_pins_use_all_the_room_of_one_shard() -> None:
    backend = MemoryBackend(FakeClock(), Limits(100, 1_000, 100), shards=1)
    for number in range(10):
        backend.set(f"other {number}", bytes(100), None)
    for number in range(10):
        backend.pin(str(number), bytes(100))
    assert backend.usage().pinned_bytes == 1_000


def test_refusing_keeps_everything_and_says_what_is_in_use() -> None:
    backend = MemoryBackend(FakeClock(), SMALL, WhenFull.REFUSE)
    for key in "abc":
        backend.set(key, key.encode(), None)
    with pytest.raises(StoreFull, match="3 of 3 entries"):
        backend.set("d", b"d", None)
    backend.set("a", b"again", None)
    with pytest.raises(StoreFull, match="7 of 10 bytes"):
        backend.set("b", b"12345", None)
    assert [backend.get(key) for key in "abcd"] == [b"again", b"b", b"c", MISSING]


def test_refusing_takes_room_from_the_expired() -> None:
    clock = FakeClock()
    backend = MemoryBackend(clock, Limits(1, 1, 1), WhenFull.REFUSE)
    backend.set("a", b"1", 1.0)
    clock.sleep(1.0)
    backend.set("b", b"2", None)
    assert backend.get("b") == b"2"


def test_a_large_sweep_frees_all_that_expired() -> None:
    clock = FakeClock()
    backend = MemoryBackend(clock, Limits(10_000, 1 << 20, 100), shards=1)
    for number in range(5_000):
        backend.set(str(number), b"1", 1.0 if number % 2 else 10.0)
        backend.set(str(number), b"1", 1.0 if number % 2 else 10.0)
    clock.sleep(1.0)
    assert (backend.sweep(), backend.usage()) == (2_500, Usage(2_500, 2_500, expiries=2_500))


def test_lower_limits_evict_at_once_and_spare_the_pinned() -> None:
    backend = MemoryBackend(FakeClock(), Limits(10, 100, 10))
    backend.pin("pinned", bytes(10))
    for number in range(9):
        backend.set(str(number), bytes(10), None)
    backend.tune(limits=Limits(4, 40, 10))
    assert (backend.usage().entries, backend.usage().bytes, backend.get("pinned")) == (4, 40, bytes(10))
    backend.tune(limits=Limits(1, 5, 5), batch=4)
    assert (list(backend.keys()), backend.limits) == (["pinned"], Limits(1, 5, 5))
    with pytest.raises(StoreFull):
        backend.set("other", b"1", None)
    backend.tune(limits=Limits(10, 100, 10))
    backend.set("other", b"1", None)
    assert backend.get("other") == b"1"


def test_lower_limits_refuse_the_next_where_nothing_may_go() -> None:
    backend = MemoryBackend(FakeClock(), SMALL, WhenFull.REFUSE)
    backend.set_many({"a": b"1", "b": b"1", "c": b"1"}, None)
    backend.tune(limits=Limits(1, 10, 6))
    with pytest.raises(StoreFull):
        backend.set("d", b"1", None)
    assert sorted(backend.keys()) == ["a", "b", "c"]


def test_tuning_that_cannot_work_changes_nothing() -> None:
    backend = MemoryBackend(FakeClock(), Limits(8, 80, 10), shards=4)
    for limits, batch in ((None, 0), (Limits(3, 80, 10), None), (Limits(8, 80, 21), None)):
        with pytest.raises(ConfigError, match="use"):
            backend.tune(limits=limits, batch=batch)
    assert backend.limits == Limits(8, 80, 10)


@pytest.mark.parametrize("batch", [float("nan"), float("inf"), 2.5, 10**30, True, -1, "4"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_batch_that_is_no_number_of_candidates_is_refused(batch: Any, policy: str) -> None:
    backend = MemoryBackend(FakeClock(), Limits(4, 80, 10), policy=policy)
    with pytest.raises(ConfigError, match="whole number"):
        backend.tune(batch=batch)
    backend.tune(batch=1 << 20)
    backend.set_many({str(number): b"1" for number in range(20)}, None)
    assert backend.usage().evictions == 16


def test_a_lower_limit_for_one_value_evicts_what_is_over_it() -> None:
    backend = MemoryBackend(FakeClock(), Limits(10, 100, 20), shards=1)
    backend.pin("pinned", bytes(20))
    backend.set_many({"large": bytes(20), "small": bytes(5), "also": bytes(11)}, 5.0)
    backend.tune(limits=Limits(10, 100, 10))
    assert (sorted(backend.keys()), backend.usage().evictions, backend.usage().bytes) == (["pinned", "small"], 2, 25)
    strict = MemoryBackend(FakeClock(), Limits(10, 100, 20), WhenFull.REFUSE)
    strict.set("large", bytes(20), None)
    strict.tune(limits=Limits(10, 100, 10))
    assert strict.get("large") == bytes(20)


@pytest.mark.parametrize("when_full", ["refuse", "evict", None, True, 1])
def test_only_a_word_of_its_own_says_what_a_full_cache_does(when_full: Any) -> None:
    with pytest.raises(TypeError, match="WhenFull"):
        MemoryBackend(FakeClock(), Limits(1, 100, 100), when_full)


@pytest.mark.parametrize("limit", [float("nan"), 2.5, float("inf"), True, "5", None, 0])
@pytest.mark.parametrize("name", ["entries", "total_bytes", "value_bytes"])
def test_a_limit_is_a_whole_number(name: str, limit: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} is .*whole number"):
        Limits(**{"entries": 5, "total_bytes": 100, "value_bytes": 5, name: limit})


@pytest.mark.parametrize(
    ("limits", "when_full", "count"),
    [
        (Limits(100_000, 1 << 30, 1 << 20), WhenFull.EVICT, 8),
        (Limits(100_000, 1 << 30, 1 << 20), WhenFull.REFUSE, 1),
        (Limits(100_000, 1 << 30, 1 << 29), WhenFull.EVICT, 1),
        (Limits(500, 1 << 30, 1 << 20), WhenFull.EVICT, 1),
    ],
)
def test_shards_are_as_many_as_leave_each_a_large_part(limits: Limits, when_full: WhenFull, count: int) -> None:
    backend = MemoryBackend(FakeClock(), limits, when_full)
    parts = [shard.limits for shard in backend._shards]
    assert len(parts) == count
    assert sum(part.entries for part in parts) == limits.entries
    assert sum(part.total_bytes for part in parts) == limits.total_bytes


def test_an_array_given_out_outlives_the_entry() -> None:
    backend = MemoryBackend(FakeClock(), Limits(1, 800, 800))
    backend.set("a", np.arange(100.0), None)
    view: Any = backend.get("a")
    for number in range(50):
        backend.set("b", np.full(100, float(number)), None)
    assert view.tolist() == list(range(100))


def test_a_deleted_value_is_let_go() -> None:
    backend = MemoryBackend(FakeClock(), Limits(100, 10_000, 1_000))
    value = bytes(999)
    before = sys.getrefcount(value)
    for key in "abcdef":
        backend.set(key, value, 5.0)
    backend.pin("pinned", value)
    for key in "abc":
        backend.delete(key)
    backend.set("d", b"", None)
    backend.clear()
    assert sys.getrefcount(value) == before
    backend.set("array", np.zeros(10), None)
    view: Any = backend.get("array")
    octets = view.base
    assert type(octets) is bytes
    backend.delete("array")
    del view
    # this name and the call
    assert sys.getrefcount(octets) == 2


def test_a_life_too_short_for_the_clock_has_ended_at_once() -> None:
    clock = FakeClock()
    clock.sleep(1e6)
    backend = MemoryBackend(clock, ROOMY)
    backend.set("key", b"old", None)
    backend.set("key", b"new", 5e-324)
    assert backend.get("key") is MISSING
    assert (backend.usage().entries, backend.usage().bytes, backend.usage().expiries) == (0, 0, 1)


def test_a_tune_of_the_batch_keeps_the_limits_that_another_sets_meanwhile() -> None:
    backend = MemoryBackend(FakeClock(), Limits(100, 10_000, 100), shards=1)
    backend._tuning.acquire()
    other = threading.Thread(target=backend.tune, kwargs={"batch": 4})
    other.start()
    # what the holder of the lock does, while the other waits for it
    backend._limits = Limits(10, 1_000, 100)
    backend._tuning.release()
    other.join()
    assert backend.limits == backend._shards[0].limits == Limits(10, 1_000, 100)


@pytest.mark.parametrize("policy", POLICIES)
def test_threads_that_hammer_few_keys_leave_it_whole(policy: str) -> None:
    clock = FakeClock()
    backend = MemoryBackend(clock, Limits(entries=12, total_bytes=400, value_bytes=60), policy=policy, shards=2)
    failures: list[object] = []

    def hammer(thread: int) -> None:
        try:
            for turn in range(400):
                key = str((turn * 7 + thread) % 16)
                try:
                    if turn % 29 == 0:
                        backend.pin(key, bytes(turn % 50))
                    else:
                        backend.set(key, key.encode() * (turn % 20), 0.5 if turn % 3 else None)
                except StoreFull:
                    backend.delete(key)
                usage = backend.usage()
                if usage.entries > 12 or usage.bytes > 400:
                    failures.append(usage)
                backend.get_many(map(str, range(16)))
                if turn % 5 == 0:
                    backend.delete(str(turn % 16))
                    backend.sweep()
                if turn % 97 == 0:
                    clock.sleep(0.3)
        except BaseException as error:  # noqa: BLE001 - the test fails with it
            failures.append(error)

    threads = [threading.Thread(target=hammer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for key in list(backend.keys()):
        backend.delete(key)
    clock.sleep(1.0)
    backend.sweep()
    usage = backend.usage()
    assert (usage.entries, usage.bytes, usage.pinned_entries, usage.pinned_bytes) == (0, 0, 0, 0)
