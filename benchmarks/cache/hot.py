"""Row `hot`: one get of 64 B that is there. FedNode bare and in its wrappers, and cachetools under a lock."""

from contextlib import AbstractContextManager
from importlib import import_module
from threading import RLock
from typing import Any, Final

from benchmarks.cache import stores
from benchmarks.harness.windows import OverKeys, Side, in_turn, spreads_to_json
from fednode.cache import MISSING
from fednode.clock import SystemClock

BARE: Final = "FedNode"
WRAPPED: Final = "FedNode in its default wrappers"
LOCKED: Final = "cachetools TTL under a lock"
BY_ITEM: Final = "the same by [] and except KeyError"
"""Not judged: the fastest way to read that cache, whose own get reads the time over and over."""

KEYS: Final = 1_000


def work(windows: int) -> dict[str, Any]:
    """Answer the seconds a get, of those sides that are installed."""
    clock = SystemClock()
    items = dict(zip(stores.names(KEYS), stores.values(KEYS, 64), strict=True))
    bare, wrapped = stores.memory(clock), stores.wrapped(clock)
    bare.set_many(items, stores.TTL)
    wrapped.set_many(items, stores.TTL)
    gets = {BARE: bare.get, WRAPPED: wrapped.get}
    try:
        cache = import_module("cachetools").TTLCache(KEYS, stores.TTL)
    except ImportError:
        pass
    else:
        cache.update(items)
        locked = _Locked(cache, RLock())
        gets |= {LOCKED: locked.get, BY_ITEM: locked.item}
    keys = list(items)
    sides = [Side(name, OverKeys(get, keys, KEYS), KEYS) for name, get in gets.items()]
    return {"spreads": spreads_to_json(in_turn(clock, sides, windows))}


class _Locked:
    """A cache that any thread may call and whose get does not raise for a miss, as FedNode's."""

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
