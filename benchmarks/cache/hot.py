"""One get of 64 B that is there: FedNode with all its rules, bare and in its wrappers, and cachetools under a lock."""

from contextlib import AbstractContextManager
from importlib import import_module
from threading import RLock
from typing import Any, Final

from benchmarks.cache import stores
from benchmarks.harness.windows import OverKeys, Side, answer, in_turn
from fednode.cache import MISSING
from fednode.clock import SystemClock

BARE: Final = "FedNode"
WRAPPED: Final = "FedNode in its default wrappers"
LOCKED: Final = "cachetools TTL under a lock"
BY_ITEM: Final = "the same by [] and except KeyError"
"""Not judged: the fastest way to read that cache, whose own get reads the time over and over."""
KEYS: Final = 1_000


def work(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer the seconds a get, of those sides that are installed."""
    clock = SystemClock()
    keys = stores.names(KEYS)
    bare, wrapped = stores.memory(clock), stores.wrapped(clock)
    for key, value in zip(keys, stores.values(KEYS, 64), strict=True):
        bare.set(key, value, stores.TTL)
        wrapped.set(key, value, stores.TTL)
    sides = [
        Side(BARE, OverKeys(bare.get, keys, KEYS), KEYS),
        Side(WRAPPED, OverKeys(wrapped.get, keys, KEYS), KEYS),
        *_locked(keys),
    ]
    return {"spreads": answer(in_turn(clock, sides, asked["windows"]))}


def _locked(keys: list[str]) -> list[Side]:
    try:
        cachetools = import_module("cachetools")
    except ImportError:
        return []
    cache = cachetools.TTLCache(KEYS, stores.TTL)
    cache.update(zip(keys, stores.values(KEYS, 64), strict=True))
    locked = _Locked(cache, RLock())
    return [
        Side(LOCKED, OverKeys(locked.get, keys, KEYS), KEYS),
        Side(BY_ITEM, OverKeys(locked.item, keys, KEYS), KEYS),
    ]


class _Locked:
    """A call that any thread may make and that does not raise for a miss, as FedNode's get is one."""

    def __init__(self, cache: Any, lock: AbstractContextManager[bool]) -> None:
        self._cache, self._lock = cache, lock

    def get(self, key: str) -> object:
        with self._lock:
            return self._cache.get(key, MISSING)

    def item(self, key: str) -> object:
        with self._lock:
            try:
                return self._cache[key]
            except KeyError:
                return MISSING
