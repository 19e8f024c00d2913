"""A cache in this process's memory: a hash index in access order, and a heap of expiries."""

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from threading import Lock

from fednode.cache.backend import MISSING, Limits, Missing, StoreFull, TooLarge, check_ttl
from fednode.clock import Clock

_SLACK = 64
"""Stale heap items that are tolerated before the heap is rebuilt, on top of one for each live one."""


class WhenFull(Enum):
    """What a backend does with a value that finds no room. Expired entries make room under both."""

    EVICT = "evict"
    """Forget the least recently used entries, never the one just written: for what can be had again."""
    REFUSE = "refuse"
    """Raise `StoreFull` and keep all it has: for what nobody else has. So every entry is pinned until it is deleted."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a backend holds right now, expired entries that were not swept yet included."""

    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    expires_at: float | None
    generation: int

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now


class MemoryBackend:
    """A `CacheBackend` in a dict: absolute monotonic expiry, lazy delete on `get`, three limits true after every `set`.

    Values are immutable bytes, so what a caller does to a buffer it handed in, or got out, cannot reach the store.
    One plain mutex guards the index; a buffer is copied before it is taken.
    """

    def __init__(self, clock: Clock, limits: Limits, when_full: WhenFull = WhenFull.EVICT) -> None:
        self._clock = clock
        self._limits = limits
        self._when_full = when_full
        self._lock = Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._expiries: list[tuple[float, int, str]] = []
        self._bytes = 0
        self._mortal = 0
        self._generation = 0

    def get(self, key: str) -> bytes | Missing:
        """The value last set and not expired, or `MISSING`; counts as a use, not as a new life."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return MISSING
            if entry.expired(self._clock.now()):
                self._remove(key)
                return MISSING
            self._entries.move_to_end(key)
            return entry.value

    def set(self, key: str, value: bytes, ttl: float | None) -> None:
        """Store `value` for `ttl` seconds, as `CacheBackend.set` promises it."""
        check_ttl(ttl)
        # through memoryview: bytes(3) would quietly be three zero bytes
        owned = value if type(value) is bytes else bytes(memoryview(value))
        if len(owned) > self._limits.value_bytes:
            raise TooLarge(len(owned), self._limits.value_bytes)
        with self._lock:
            now = self._clock.now()
            self._make_room(key, len(owned), now)
            self._insert(key, owned, None if ttl is None else now + ttl)

    def delete(self, key: str) -> bool:
        """Forget `key`; True if it was there and had not expired."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return False
            self._remove(key)
            return not entry.expired(self._clock.now())

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._expiries.clear()
            self._bytes = self._mortal = 0

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed. Looks at nothing else."""
        with self._lock:
            return self._sweep(self._clock.now())

    def usage(self) -> Usage:
        """Entries and bytes held right now."""
        with self._lock:
            return Usage(len(self._entries), self._bytes)

    def _make_room(self, key: str, size: int, now: float) -> None:
        if self._fits(key, size):
            return
        self._sweep(now)
        if self._when_full is WhenFull.REFUSE:
            if not self._fits(key, size):
                raise StoreFull(
                    f"no room for {size} more bytes: {len(self._entries)} of {self._limits.entries} entries and "
                    f"{self._bytes} of {self._limits.total_bytes} bytes are in use; try again later or raise the limits"
                )
            return
        # the old value goes first: `key` is then no candidate, and its bytes are not counted twice
        if key in self._entries:
            self._remove(key)
        while not self._fits(key, size):
            self._remove(next(iter(self._entries)))

    def _fits(self, key: str, size: int) -> bool:
        old = self._entries.get(key)
        entries = len(self._entries) + (old is None)
        total = self._bytes + size - (0 if old is None else len(old.value))
        return entries <= self._limits.entries and total <= self._limits.total_bytes

    def _insert(self, key: str, value: bytes, expires_at: float | None) -> None:
        if key in self._entries:
            self._remove(key)
        self._generation += 1
        self._entries[key] = _Entry(value, expires_at, self._generation)
        self._bytes += len(value)
        if expires_at is not None:
            self._mortal += 1
            heapq.heappush(self._expiries, (expires_at, self._generation, key))
            self._compact()

    def _remove(self, key: str) -> None:
        entry = self._entries.pop(key)
        self._bytes -= len(entry.value)
        self._mortal -= entry.expires_at is not None

    def _sweep(self, now: float) -> int:
        freed = 0
        while self._expiries and self._expiries[0][0] <= now:
            _, generation, key = heapq.heappop(self._expiries)
            entry = self._entries.get(key)
            # an overwritten key left an item behind that speaks of an older value
            if entry is not None and entry.generation == generation:
                self._remove(key)
                freed += 1
        return freed

    def _compact(self) -> None:
        if len(self._expiries) <= 2 * self._mortal + _SLACK:
            return
        self._expiries = [(e.expires_at, e.generation, k) for k, e in self._entries.items() if e.expires_at is not None]
        heapq.heapify(self._expiries)
