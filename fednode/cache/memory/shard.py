"""One part of a cache in memory: an index with a lock, an eviction policy and a share of the limits."""

from collections.abc import Sequence
from threading import Lock
from typing import Final

from fednode.cache.backend import Limits, TooLarge, Usage, Value
from fednode.cache.entry_index import CacheEntry, EntryIndex
from fednode.cache.fork_safety import refuse_after_fork
from fednode.cache.memory.policies import Mark, Policy, PolicyMaker

_SLICE: Final = 1_000
"""Items of the expiry heap that a sweep takes off before it lets other threads in."""


class MemoryEntry(CacheEntry):
    """A value as the cache owns it; not changed once it is in the index, so it is read without the lock."""

    __slots__ = ("content", "key", "mark", "marks", "plain")

    def __init__(self, key: str, content: Value, size: int, *, plain: bool) -> None:
        super().__init__(size)
        self.key = key
        self.content: Value = content
        self.plain = plain
        """Whether `content` is handed out as it is."""
        self.mark: Mark = None
        """What the policy knows the entry by; None for a pinned one, which it never sees."""
        self.marks: tuple[Mark, ...] = ()
        """The same in a tuple, as `Policy.used` takes it."""


class Shard:
    """Entries by key, within their limits whenever no call is running. Thread-safe; `now` is monotonic seconds.

    `refuses`: what is there stays until it expires or is deleted, instead of making way.
    """

    def __init__(self, limits: Limits, make_policy: PolicyMaker, *, refuses: bool) -> None:
        self._lock = Lock()
        self._index: EntryIndex[MemoryEntry] = EntryIndex(limits)
        self._make_policy = make_policy
        self._policy: Policy = make_policy()
        self._refuses = refuses
        refuse_after_fork(self, "_lock")

    @property
    def limits(self) -> Limits:
        """This shard's share."""
        return self._index.limits

    def find(self, key: str, now: float) -> MemoryEntry | None:
        """The entry under `key` that has not expired; counts as a use."""
        with self._lock:
            entry = self._index.entries.get(key)
            if entry is None:
                return None
            if entry.expires_at <= now:
                self._expire(key)
                return None
            if entry.marks:
                self._policy.used(entry.marks, now)
            return entry

    def find_these(self, keys: Sequence[str], found: dict[str, MemoryEntry], now: float) -> None:
        """As `find`, for many keys at one moment, into `found`."""
        marks: list[Mark] = []
        use = marks.append
        with self._lock:
            look = self._index.entries.get
            for key in keys:
                entry = look(key)
                if entry is None:
                    continue
                if entry.expires_at <= now:
                    self._expire(key)
                    continue
                if entry.mark is not None:
                    use(entry.mark)
                found[key] = entry
            self._policy.used(marks, now)

    def put(self, entry: MemoryEntry, now: float) -> None:
        """Store `entry`. Raises `StoreFull` or `TooLarge`; an older value is then untouched."""
        with self._lock:
            if entry.size > self._index.limits.value_bytes:
                # the limits were lowered since the value was measured
                self._index.refusals += 1
                raise TooLarge(entry.size, self._index.limits.value_bytes)
            self._make_room(entry, now)
            self._index.add(entry.key, entry)
            if not entry.pinned:
                entry.mark = self._policy.added(entry.key, entry.size, now)
                entry.marks = (entry.mark,)

    def refused(self) -> None:
        """Count a value that was over the limit for one value."""
        with self._lock:
            self._index.refusals += 1

    def delete(self, key: str, now: float) -> bool:
        """Forget `key`; True if it was there and had not expired."""
        with self._lock:
            entry = self._index.entries.get(key)
            if entry is None:
                return False
            if entry.expires_at <= now:
                self._expire(key)
                return False
            self._remove(key)
            return True

    def clear(self) -> None:
        """Forget everything but the counts."""
        with self._lock:
            # kept until the lock is released: freeing many values takes long
            gone = self._index.entries, self._policy
            self._index.drop_all()
            self._policy = self._make_policy()
            self._policy.batch = gone[1].batch

    def sweep(self, now: float) -> int:
        """Free what has expired; the number of entries freed. Other threads get the lock in between."""
        freed, more = 0, True
        while more:
            with self._lock:
                expired, more = self._index.drop_due(now, _SLICE)
                removed = self._policy.removed
                for entry in expired:
                    removed(entry.mark)
            freed += len(expired)
        return freed

    def tune(self, limits: Limits, batch: int | None, now: float) -> None:
        """Take new limits, and evict at once what is over them and not pinned; `batch` is the policy's."""
        with self._lock:
            lower = limits.value_bytes < self._index.limits.value_bytes
            self._index.limits = limits
            if batch is not None:
                self._policy.batch = batch
            if self._refuses:
                return
            if lower:
                for entry in tuple(self._index.entries.values()):
                    if entry.size > limits.value_bytes and not entry.pinned:
                        self._index.evictions += 1
                        self._remove(entry.key)
            while not self._index.within_limits() and self._evict_one(now):
                pass

    def keys(self, prefix: str, now: float) -> list[str]:
        """The keys with `prefix` that have not expired."""
        with self._lock:
            entries = self._index.entries.items()
            return [key for key, one in entries if one.expires_at > now and key.startswith(prefix)]

    def fits_beside_pins(self, sizes: dict[str, int]) -> bool:
        """Whether values of these sizes, by key, would fit if everything that is not pinned were evicted."""
        with self._lock:
            return self._index.fits_beside_pins(sizes)

    def usage(self) -> Usage:
        """Entries and bytes now, and the counts so far."""
        with self._lock:
            return self._index.usage()

    def _make_room(self, entry: MemoryEntry, now: float) -> None:
        """Take the older value out and evict until `entry` fits; raises `StoreFull` before anything is evicted."""
        index, key = self._index, entry.key
        old = index.entries.get(key)
        if old is not None and old.expires_at <= now:
            self._expire(key)
            old = None
        room = index.fits(key, entry.size)
        while not room and self._refuses and self._expire_first(now):
            room = index.fits(key, entry.size)
        if not room and (self._refuses or (index.pinned and not index.fits_beside_pins({key: entry.size}))):
            raise index.refuse(entry.size)
        if old is not None:
            # so it is not chosen as a victim
            self._remove(key)
        while not room and not index.fits(key, entry.size) and self._evict_one(now):
            pass

    def _evict_one(self, now: float) -> bool:
        """Free one entry, an expired one first; False where all are pinned."""
        if self._expire_first(now):
            return True
        key = self._policy.victim(now)
        if key is None:
            return False
        self._index.evictions += 1
        self._index.drop(key)
        return True

    def _remove(self, key: str) -> None:
        entry = self._index.drop(key)
        if not entry.pinned:
            self._policy.removed(entry.mark)

    def _expire(self, key: str) -> None:
        self._index.expiries += 1
        self._remove(key)

    def _expire_first(self, now: float) -> bool:
        key = self._index.first_due(now)
        if key is None:
            return False
        self._expire(key)
        return True


def find_many(shards: Sequence[Shard], keys: Sequence[str], now: float) -> dict[str, MemoryEntry]:
    """Those of `keys`, all of them text, that `Shard.find` would find where `hash` puts them, in any order.

    One shard after the other, each at one moment.
    """
    count = len(shards)
    parts: list[list[str]] = [[] for _ in shards]
    takers = [part.append for part in parts]
    for key in keys:
        takers[hash(key) % count](key)
    found: dict[str, MemoryEntry] = {}
    for shard, part in zip(shards, parts, strict=True):
        if part:
            shard.find_these(part, found, now)
    return found
