"""What a `RedisBackend` wrote itself: for its limits and counts, and to tell a lost value from a miss."""

from math import inf
from threading import Lock

from fednode.cache.backend import Limits, Usage
from fednode.cache.entry_index import CacheEntry, EntryIndex
from fednode.cache.fork_safety import refuse_after_fork


class WrittenEntry(CacheEntry):
    """One value that was written and not deleted: in `count` pieces, or in its record if that is 0."""

    __slots__ = ("count", "deleting", "generation", "lost")

    def __init__(
        self, size: int, generation: bytes, count: int, expires_at: float = inf, *, pinned: bool = False
    ) -> None:
        super().__init__(size, expires_at, pinned=pinned)
        self.generation = generation
        self.count = count
        self.lost = False
        """Pinned, and found gone."""
        self.deleting = False
        """Its deletion was sent; if the answer did not come, nobody knows whether it happened."""


class WriteIndex:
    """The values this process wrote and the writes under way. Thread-safe. What others write to the server is not in
    it."""

    def __init__(self, limits: Limits) -> None:
        self._lock = Lock()
        self._index: EntryIndex[WrittenEntry] = EntryIndex(limits)
        self._admitted: dict[WrittenEntry, str] = {}
        """Writes under way, and their keys: room is reserved for them."""
        self._admitted_bytes = 0
        self.losses = 0
        """Pinned values that were found gone."""
        refuse_after_fork(self, "_lock")

    @property
    def limits(self) -> Limits:
        """The limits as they are now."""
        return self._index.limits

    def tune(self, limits: Limits) -> None:
        """Change the limits; what is there stays."""
        with self._lock:
            self._index.limits = limits

    def entry(self, key: str) -> WrittenEntry | None:
        """The last write of `key`, if it was not deleted since."""
        return self._index.entries.get(key)

    def admit(self, key: str, entry: WrittenEntry, now: float) -> None:
        """Reserve room for a write until it is noted or released. Raises `StoreFull`."""
        with self._lock:
            self._admitted[entry] = key
            self._admitted_bytes += entry.size
            if not self._fits():
                self._index.drop_due(now)
                if not self._fits():
                    self._release(entry)
                    raise self._index.refuse(entry.size)

    def release(self, entry: WrittenEntry) -> None:
        """Give back the room reserved for a write; harmless if it was noted or never admitted."""
        with self._lock:
            self._release(entry)

    def note(self, key: str, entry: WrittenEntry) -> None:
        """Record that `key` was written."""
        with self._lock:
            self._release(entry)
            self._drop(key)
            self._index.add(key, entry)

    def deleting(self, key: str | None = None) -> None:
        """Record that a deletion of `key` (None: of all) is about to be sent: a value missing after it is not lost."""
        with self._lock:
            entries = self._index.entries
            for entry in entries.values() if key is None else filter(None, [entries.get(key)]):
                entry.deleting = True

    def forget(self, key: str) -> None:
        """Record that `key` was deleted."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Record that everything was deleted."""
        with self._lock:
            self._index.drop_all()

    def evicted(self, key: str) -> None:
        """Record that `key` is gone before its time."""
        with self._lock:
            self._index.evictions += key in self._index.entries
            self._drop(key)

    def lost(self, entry: WrittenEntry) -> None:
        """Record that a pinned value is gone; each is counted once, and kept until somebody deletes it."""
        with self._lock:
            self.losses += not entry.lost
            entry.lost = True

    def refused(self) -> None:
        """Count a value that found no room on the server, or was over the limit for one value."""
        with self._lock:
            self._index.refusals += 1

    def damaged(self) -> None:
        """Count a value that was not what was stored."""
        with self._lock:
            self._index.damaged += 1

    def sweep(self, now: float) -> int:
        """Forget what expired by `now`; how many."""
        with self._lock:
            return len(self._index.drop_due(now)[0])

    def usage(self) -> Usage:
        """Entries and bytes now, and the counts so far."""
        with self._lock:
            return self._index.usage()

    def _fits(self) -> bool:
        """Whether everything fits, whichever of the writes under way happen."""
        index, limits = self._index, self._index.limits
        entries, total = len(index.entries), index.bytes
        if entries + len(self._admitted) <= limits.entries and total + self._admitted_bytes <= limits.total_bytes:
            return True
        for entry, key in self._admitted.items():
            old = index.entries.get(key)
            entries += old is None
            # a smaller value frees no room yet: its write may fail and leave the old one
            total += entry.size if old is None else max(0, entry.size - old.size)
        return entries <= limits.entries and total <= limits.total_bytes

    def _release(self, entry: WrittenEntry) -> None:
        if self._admitted.pop(entry, None) is not None:
            self._admitted_bytes -= entry.size

    def _drop(self, key: str) -> None:
        if key in self._index.entries:
            self._index.drop(key)
