"""`MemoryBackend`: the kit and the random walk under every policy, limits, pins, what goes first, tuning."""

import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from kit.cache.backend import ROOMY, BackendKit
from kit.cache.backend_machine import TIGHT, WIDE, BackendMachine
from kit.clocks import FakeClock

from fednode.cache import (
    MISSING,
    CacheBackend,
    FileBackend,
    Limits,
    MemoryBackend,
    StoreFull,
    TooLarge,
    Usage,
    WhenFull,
)
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


@pytest.mark.parametrize(
    "options",
    [{"shards": 8}, {"when_full": WhenFull.REFUSE}, *({"policy": policy} for policy in POLICIES)],
    ids=lambda options: str(*options.values()),
)
def test_a_walk_against_a_dict(options: dict[str, Any]) -> None:
    class MemoryMachine(BackendMachine):
        # a cache that divides its limits needs wide ones
        limits = WIDE if "shards" in options else TIGHT
        evicts = "when_full" not in options

        def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
            return MemoryBackend(clock, limits, **options)

    run_state_machine_as_test(
        MemoryMachine, settings=settings(max_examples=30, stateful_step_count=40, deadline=None, database=None)
    )


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


@pytest.mark.parametrize("batch", [float("nan"), 2.5, 10**30, True, -1, "4"])
def test_a_batch_that_is_no_number_of_candidates_is_refused(batch: Any) -> None:
    backend = MemoryBackend(FakeClock(), Limits(4, 80, 10))
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


@pytest.mark.parametrize("when_full", ["refuse", None, 1])
def test_only_a_word_of_its_own_says_what_a_full_cache_does(when_full: Any) -> None:
    with pytest.raises(TypeError, match="WhenFull"):
        MemoryBackend(FakeClock(), Limits(1, 100, 100), when_full)
    with pytest.raises(TypeError, match="WhenFull"):
        FileBackend("unused", FakeClock(), Limits(1, 100, 100), when_full)


@pytest.mark.parametrize("limit", [float("nan"), 2.5, float("inf"), True, "5", None, 0])
@pytest.mark.parametrize("name", ["entries", "total_bytes", "value_bytes"])
def test_a_limit_is_a_whole_number(name: str, limit: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} is .*whole number"):
        Limits(**{"entries": 5, "total_bytes": 100, "value_bytes": 5, name: limit})


def test_no_value_may_be_larger_than_all_values() -> None:
    with pytest.raises(ConfigError, match="value_bytes"):
        Limits(1, 5, 6)


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
    assert backend.shards == len(parts) == count
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


def test_many_reads_count_what_expired_and_what_was_asked_twice_once() -> None:
    clock, keys = FakeClock(), [f"key {number}" for number in range(200)]
    cache = MemoryBackend(clock, Limits(1_000, 1 << 20, 1 << 10), shards=4)
    cache.set_many({key: key for key in keys[:100]}, 1.0)
    cache.set_many({key: key for key in keys[100:]}, None)
    clock.sleep(1.0)
    assert list(cache.get_many([*keys, *keys])) == keys[100:]
    assert (cache.usage().expiries, cache.usage().entries) == (100, 100)


class TunedMeanwhile(FakeClock):
    """Somebody else tunes while a call looks at the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Any = None

    def now(self) -> float:
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()
        return super().now()


@pytest.mark.parametrize("verb", ["set", "pin", "set_many"])
def test_a_value_that_was_counted_under_the_old_limits_is_held_to_the_new_ones(verb: str) -> None:
    clock = TunedMeanwhile()
    cache = MemoryBackend(clock, Limits(9, 9_000, 1_000), shards=1)
    cache.set("key", b"old", None)
    clock.meanwhile = lambda: cache.tune(Limits(9, 9_000, 10))
    with pytest.raises(TooLarge, match="the limit of 10 bytes"):
        {
            "set": lambda: cache.set("key", bytes(1_000), None),
            "pin": lambda: cache.pin("key", bytes(1_000)),
            "set_many": lambda: cache.set_many({"key": bytes(1_000)}, None),
        }[verb]()
    assert (cache.get("key"), cache.usage().bytes, cache.usage().refusals) == (b"old", 3, 1)
    cache.set("key", b"new", None)
    assert cache.get("key") == b"new"
