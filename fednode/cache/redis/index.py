"""What a `RedisBackend` knows of its own writes: for its counts, and to tell a loss from a miss."""

import heapq
import math
from dataclasses import dataclass
from threading import Lock
from weakref import WeakKeyDictionary

from fednode.cache.backend import Limits, StoreFull, Usage
from fednode.cache.expiry_heap import Expiries
from fednode.cache.fork_safety import refuse_after_fork


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Noted:
    """One value that was written and not yet deleted. `expires_at` is monotonic, infinite for no expiry."""

    size: int
    expires_at: float
    generation: bytes
    count: int
    pinned: bool


class Book:
    """Thread-safe. It follows the writes of this process alone: what others write to the server is not in it.

    A change that was cut short is in force from its first step on; the next call counts anew. Room that is held for a
    write is free again with the `Noted` of it, however the write ended.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = Lock()
        self._whole = True
        self._coming: WeakKeyDictionary[Noted, str] = WeakKeyDictionary()
        self._entries: dict[str, Noted] = {}
        self._expiries: Expiries[bytes] = Expiries()
        self._lost: set[str] = set()
        self._leaving: set[str] = set()
        """Keys whose deletion was asked for; whether it happened, nobody may know."""
        self._bytes = self._pinned = self._pinned_bytes = self._largest = 0
        self._evictions = self._expired = self._refusals = self._damaged = self._losses = 0
        refuse_after_fork(self, "_lock")

    @property
    def limits(self) -> Limits:
        """What the book is held to."""
        return self._limits

    def tune(self, limits: Limits) -> None:
        """Hold what is new to other limits."""
        with self._lock:
            self._limits = limits

    @property
    def losses(self) -> int:
        """Pinned values that were found gone."""
        return self._losses

    def entry(self, key: str) -> Noted | None:
        """What was written under `key` last, if it was not deleted since."""
        return self._entries.get(key)

    def pins(self) -> tuple[tuple[str, Noted], ...]:
        """All that is pinned, the lost ones too."""
        with self._lock:
            return tuple((key, noted) for key, noted in self._entries.items() if noted.pinned)

    def admit(self, key: str, noted: Noted, now: float) -> None:
        """Hold room for a write until it is noted or released. Raises `StoreFull` where there is none."""
        with self._lock:
            self._settle()
            self._largest = max(noted.size, self._largest if self._coming else 0)
            self._coming[noted] = key
            if not self._fits():
                self._sweep(now)
            if not self._fits():
                del self._coming[noted]
                self._refusals += 1
                raise StoreFull(
                    f"no room for {noted.size} more bytes: {len(self._entries)} of {self._limits.entries} entries and "
                    f"{self._bytes} of {self._limits.total_bytes} bytes are in use; try again later or raise the limits"
                )

    def release(self, noted: Noted) -> None:
        """The write did not happen, or nobody knows; harmless where it was noted, or never admitted."""
        with self._lock:
            self._coming.pop(noted, None)

    def note(self, key: str, noted: Noted) -> None:
        """`key` was written."""
        with self._lock:
            self._settle()
            self._whole = False
            self._lost.discard(key)
            self._leaving.discard(key)
            old, self._entries[key] = self._entries.get(key), noted
            self._coming.pop(noted, None)
            if old is not None:
                self._count(old, -1)
            self._count(noted, 1)
            if math.isfinite(noted.expires_at):
                self._expiries.add(noted.expires_at, noted.generation, key)
                if self._expiries.is_overgrown(len(self._entries)):
                    self._list_expiries()
            self._whole = True

    def leave(self, key: str) -> None:
        """`key` is about to be deleted: what is missing of it from now on was not lost."""
        with self._lock:
            self._leaving.add(key)

    def leave_all(self) -> None:
        """Everything is."""
        with self._lock:
            self._leaving.update(self._entries)

    def is_leaving(self, key: str) -> bool:
        """Whether somebody tried to delete `key` since it was written."""
        return key in self._leaving

    def forget(self, key: str) -> None:
        """`key` was deleted."""
        with self._lock:
            self._settle()
            self._drop(key)

    def clear(self) -> None:
        """Everything was deleted."""
        with self._lock:
            self._settle()
            for key in tuple(self._entries):
                self._drop(key)

    def evicted(self, key: str) -> None:
        """`key` is gone before its time."""
        with self._lock:
            self._settle()
            self._evictions += key in self._entries
            self._drop(key)

    def lost(self, key: str) -> None:
        """The pinned `key` is gone; counted once, and kept until somebody deletes it."""
        with self._lock:
            self._losses += key not in self._lost
            self._lost.add(key)

    def lost_keys(self) -> tuple[str, ...]:
        """Those that `lost` was told of, and that nobody deleted or set since."""
        with self._lock:
            return tuple(self._lost)

    def refused(self) -> None:
        """A value found no room."""
        with self._lock:
            self._refusals += 1

    def damage(self) -> None:
        """A value was not what was stored."""
        with self._lock:
            self._damaged += 1

    def sweep(self, now: float) -> int:
        """Forget what expired by `now`; how many."""
        with self._lock:
            self._settle()
            return self._sweep(now)

    def usage(self) -> Usage:
        """Entries, bytes and counts so far."""
        with self._lock:
            self._settle()
            return Usage(
                entries=len(self._entries),
                bytes=self._bytes,
                pinned_entries=self._pinned,
                pinned_bytes=self._pinned_bytes,
                evictions=self._evictions,
                expiries=self._expired,
                refusals=self._refusals,
                damaged=self._damaged,
            )

    def _fits(self) -> bool:
        """Whether all that is there and all that comes fits, whichever of the writes on their way happen."""
        entries, total, coming = len(self._entries), self._bytes, len(self._coming)
        if entries + coming <= self._limits.entries and total + coming * self._largest <= self._limits.total_bytes:
            # without a look at each: there may be many, and this is asked for each of them
            return True
        for noted, key in self._coming.items():
            old = self._entries.get(key)
            entries += old is None
            # one that shrinks lends nobody its room: it may fail, and leave the old value there
            total += noted.size if old is None else max(0, noted.size - old.size)
        return entries <= self._limits.entries and total <= self._limits.total_bytes

    def _sweep(self, now: float) -> int:
        before = self._expired
        while self._expiries.is_due(now):
            _, generation, key = heapq.heappop(self._expiries)
            noted = self._entries.get(key)
            if noted is not None and noted.generation == generation:
                self._drop(key)
                self._expired += 1
        return self._expired - before

    def _drop(self, key: str) -> None:
        if key in self._entries:
            self._whole = False
            self._count(self._entries.pop(key), -1)
            self._whole = True
        # last: for as long as there is an entry, it is known that it was to go
        self._lost.discard(key)
        self._leaving.discard(key)

    def _settle(self) -> None:
        if not self._whole:
            self._recount()
            self._whole = True

    def _recount(self) -> None:
        self._bytes = self._pinned = self._pinned_bytes = 0
        for noted in self._entries.values():
            self._count(noted, 1)
        self._list_expiries()

    def _count(self, noted: Noted, sign: int) -> None:
        self._bytes += sign * noted.size
        self._pinned += sign * noted.pinned
        self._pinned_bytes += sign * noted.size * noted.pinned

    def _list_expiries(self) -> None:
        mortal = [(key, noted) for key, noted in self._entries.items() if math.isfinite(noted.expires_at)]
        self._expiries = Expiries.of((noted.expires_at, noted.generation, key) for key, noted in mortal)
