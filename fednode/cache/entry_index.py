"""The bookkeeping that all backends share: entries by key, their totals, the limits, and what expires next."""

from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, Generic, TypeVar

from fednode.cache.backend import Limits, StoreFull, Usage

_SLACK: Final = 64
"""Stale heap items that are tolerated before the heap is rebuilt, on top of one for each entry that expires."""


class CacheEntry:
    """One stored value as its backend accounts for it."""

    __slots__ = ("expires_at", "number", "pinned", "size")

    def __init__(self, size: int, expires_at: float = inf, *, pinned: bool = False) -> None:
        self.size = size
        """Bytes that the value counts against the limits."""
        self.expires_at = expires_at
        """Seconds on the monotonic clock; infinite for no expiry."""
        self.pinned = pinned
        self.number = 0
        """Assigned by the index: an item of the heap with another number is about an older value of the key."""


E = TypeVar("E", bound=CacheEntry)


class EntryIndex(Generic[E]):
    """Entries by key with their totals. Not thread-safe: the owner holds its lock.

    A key that is overwritten or dropped leaves its item in the heap of expiries until that is due, or rebuilt.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.entries: dict[str, E] = {}
        self.evictions = self.expiries = self.refusals = self.damaged = 0
        self.bytes = self.pinned = self._pinned_bytes = 0
        self._heap: list[tuple[float, int, str]] = []
        self._expiring = 0
        """Entries that expire at all."""
        self._number = 0

    def add(self, key: str, entry: E) -> None:
        """Add `entry` under `key`, which must not be there."""
        self._number = entry.number = self._number + 1
        self.entries[key] = entry
        self.bytes += entry.size
        if entry.pinned:
            self.pinned += 1
            self._pinned_bytes += entry.size
        if entry.expires_at != inf:
            self._expiring += 1
            heappush(self._heap, (entry.expires_at, entry.number, key))
            if len(self._heap) > 2 * self._expiring + _SLACK:
                self._heap = [
                    (one.expires_at, one.number, key) for key, one in self.entries.items() if one.expires_at != inf
                ]
                heapify(self._heap)

    def drop(self, key: str) -> E:
        """Take out the entry under `key`, which must be there."""
        entry = self.entries.pop(key)
        self.bytes -= entry.size
        if entry.pinned:
            self.pinned -= 1
            self._pinned_bytes -= entry.size
        if entry.expires_at != inf:
            self._expiring -= 1
        return entry

    def drop_all(self) -> None:
        """Take out everything; the counts of what happened stay."""
        self.entries, self._heap = {}, []
        self.bytes = self.pinned = self._pinned_bytes = self._expiring = 0

    def drop_due(self, now: float, most: int | None = None) -> tuple[list[E], bool]:
        """Take out what has expired by `now`, looking at `most` heap items (None: all); and whether there is more."""
        heap, entries = self._heap, self.entries
        dropped: list[E] = []
        for _ in range(len(heap) if most is None else most):
            if not heap or heap[0][0] > now:
                break
            _, number, key = heappop(heap)
            entry = entries.get(key)
            if entry is not None and entry.number == number:
                del entries[key]
                dropped.append(entry)
        self.bytes -= sum([entry.size for entry in dropped])
        self._expiring -= len(dropped)
        self.expiries += len(dropped)
        return dropped, bool(heap) and heap[0][0] <= now

    def first_due(self, now: float) -> str | None:
        """A key that has expired by `now`, if there is one."""
        while self._heap and self._heap[0][0] <= now:
            _, number, key = self._heap[0]
            entry = self.entries.get(key)
            if entry is not None and entry.number == number:
                return key
            heappop(self._heap)
        return None

    def within_limits(self) -> bool:
        """Whether all entries fit."""
        return len(self.entries) <= self.limits.entries and self.bytes <= self.limits.total_bytes

    def fits(self, key: str, size: int) -> bool:
        """Whether a value of `size` bytes fits under `key`, in place of the one that is there."""
        old = self.entries.get(key)
        entries, total = len(self.entries) + 1, self.bytes + size
        if old is not None:
            entries, total = entries - 1, total - old.size
        return entries <= self.limits.entries and total <= self.limits.total_bytes

    def fits_beside_pins(self, sizes: dict[str, int]) -> bool:
        """Whether values of these sizes, by key, would fit if everything else that is not pinned were evicted."""
        replaced = [old.size for key in sizes if (old := self.entries.get(key)) is not None and old.pinned]
        return (
            self.pinned - len(replaced) + len(sizes) <= self.limits.entries
            and self._pinned_bytes - sum(replaced) + sum(sizes.values()) <= self.limits.total_bytes
        )

    def refuse(self, size: int) -> StoreFull:
        """Count a value of `size` bytes that found no room; the error to raise."""
        self.refusals += 1
        limits = self.limits
        return StoreFull(
            f"no room for {size} more bytes: {len(self.entries)} of {limits.entries} entries and {self.bytes} of "
            f"{limits.total_bytes} bytes are in use, {self._pinned_bytes} of them pinned; try again later or raise the "
            "limits"
        )

    def usage(self) -> Usage:
        """Entries and bytes now, and the counts so far."""
        held = (len(self.entries), self.bytes, self.pinned, self._pinned_bytes)
        return Usage(*held, self.evictions, self.expiries, self.refusals, self.damaged)
