"""What a `FileBackend` knows of its folder: the entries by key, who goes first, what expires next, and the sums."""

import heapq
import math
from collections import OrderedDict
from dataclasses import dataclass

from fednode.cache.backend import Limits
from fednode.cache.expiry_heap import Expiries


@dataclass(frozen=True, slots=True)
class Entry:
    """One value in the folder."""

    name: str
    """The file's."""
    number: int
    size: int
    expires_at: float
    """Monotonic clock; infinite for no expiry."""
    pinned: bool


class FileBook:
    """For use under its owner's lock. A change that was cut short is in force from its first step on: `recount` then
    brings the rest into line with `entries`.
    """

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._evictable: OrderedDict[str, None] = OrderedDict()
        self._expiries: Expiries[int] = Expiries()
        self.bytes = self.pinned = self.pinned_bytes = 0

    def used(self, key: str) -> None:
        """`key`, which is there, was read."""
        if not self.entries[key].pinned:
            self._evictable.move_to_end(key)

    def put(self, key: str, entry: Entry) -> Entry | None:
        """Take `entry` in, as the most recently used; what it stands in place of."""
        old = self.entries.get(key)
        self.entries[key] = entry
        if old is not None:
            self._count(old, -1)
            self._evictable.pop(key, None)
        self._count(entry, 1)
        if not entry.pinned:
            self._evictable[key] = None
        if math.isfinite(entry.expires_at):
            self._expiries.add(entry.expires_at, entry.number, key)
            if self._expiries.is_overgrown(len(self.entries)):
                self._list_expiries()
        return old

    def drop(self, key: str) -> None:
        """Forget `key`, which is there."""
        entry = self.entries.pop(key)
        self._evictable.pop(key, None)
        self._count(entry, -1)

    def due(self, now: float) -> str | None:
        """A key that has expired by `now`; None where none has."""
        while self._expiries.is_due(now):
            _, number, key = self._expiries[0]
            entry = self.entries.get(key)
            if entry is not None and entry.number == number:
                return key
            heapq.heappop(self._expiries)
        return None

    def victim(self, but: str | None = None) -> str | None:
        """The key that goes first; None where none may go. `but` stays."""
        for key in self._evictable:
            if key != but:
                return key
        return None

    def larger(self, value_bytes: int) -> list[str]:
        """The keys that may go whose values are over `value_bytes`."""
        return [key for key in self._evictable if self.entries[key].size > value_bytes]

    def within(self, limits: Limits) -> bool:
        """Whether all that is there fits."""
        return len(self.entries) <= limits.entries and self.bytes <= limits.total_bytes

    def fits(self, key: str, size: int, limits: Limits) -> bool:
        """Whether `size` bytes under `key` fit in place of what is there."""
        old = self.entries.get(key)
        entries = len(self.entries) + (old is None)
        total = self.bytes + size - (0 if old is None else old.size)
        return entries <= limits.entries and total <= limits.total_bytes

    def could_fit(self, key: str, size: int, limits: Limits) -> bool:
        """Whether they would, with everything evicted that may be."""
        old = self.entries.get(key)
        ours = old if old is not None and old.pinned else None
        entries = self.pinned + (ours is None)
        total = self.pinned_bytes + size - (0 if ours is None else ours.size)
        return entries <= limits.entries and total <= limits.total_bytes

    def recount(self) -> None:
        """Make everything anew from `entries`; the order of use is kept."""
        loose = {key: None for key, entry in self.entries.items() if not entry.pinned}
        known = [key for key in self._evictable if key in loose]
        self._evictable = OrderedDict.fromkeys([*known, *loose])
        self.bytes = self.pinned = self.pinned_bytes = 0
        for entry in self.entries.values():
            self._count(entry, 1)
        self._list_expiries()

    def _count(self, entry: Entry, sign: int) -> None:
        self.bytes += sign * entry.size
        self.pinned += sign * entry.pinned
        self.pinned_bytes += sign * entry.size * entry.pinned

    def _list_expiries(self) -> None:
        mortal = [(key, entry) for key, entry in self.entries.items() if math.isfinite(entry.expires_at)]
        self._expiries = Expiries.of((entry.expires_at, entry.number, key) for key, entry in mortal)
