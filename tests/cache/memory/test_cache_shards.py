"""A call of many keys is in one shard at a time: no thread holds the lock of one and waits for another's."""

import threading
from collections.abc import Callable, Sequence

import pytest
from kit.clocks import FakeClock

from fednode.cache import Limits, MemoryBackend

KEYS = [f"key {number}" for number in range(200)]


class Looking:
    """A policy that looks which shards' locks are held whenever it is told of uses."""

    def __init__(self, policy: object, look: Callable[[], None]) -> None:
        self._policy, self._look = policy, look

    def __getattr__(self, name: str) -> object:
        return getattr(self._policy, name)

    def used(self, marks: Sequence[object], now: float) -> None:
        self._look()
        self._policy.used(marks, now)  # type: ignore[attr-defined]


def held_of(locks: Sequence[threading.RLock]) -> list[int]:
    """The numbers of those that another thread cannot have."""
    held: list[int] = []

    def look() -> None:
        for number, lock in enumerate(locks):
            if lock.acquire(blocking=False):
                lock.release()
            else:
                held.append(number)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return held


@pytest.mark.parametrize("asked", [KEYS, KEYS[::-1], [*KEYS, "none"]])
def test_reading_many_keys_holds_one_shard_at_a_time(asked: list[str]) -> None:
    cache = MemoryBackend(FakeClock(), Limits(1_000, 1 << 20, 1 << 10), shards=4)
    cache.set_many({key: key for key in KEYS}, None)
    locks, seen = [shard._lock for shard in cache._shards], list[list[int]]()
    for shard in cache._shards:
        shard._policy = Looking(shard._policy, lambda: seen.append(held_of(locks)))  # type: ignore[assignment]
    found = cache.get_many(asked)
    assert list(found.items()) == [(key, key) for key in asked if key in KEYS]
    assert sorted(seen) == [[0], [1], [2], [3]]


def test_many_reads_count_what_expired_and_what_was_asked_twice_once() -> None:
    clock = FakeClock()
    cache = MemoryBackend(clock, Limits(1_000, 1 << 20, 1 << 10), shards=4)
    cache.set_many({key: key for key in KEYS[:100]}, 1.0)
    cache.set_many({key: key for key in KEYS[100:]}, None)
    clock.sleep(1.0)
    assert list(cache.get_many([*KEYS, *KEYS])) == KEYS[100:]
    assert (cache.usage().expiries, cache.usage().entries) == (100, 100)
