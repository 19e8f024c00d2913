"""One part of a cache in memory: its own lock, index, policy, heap of expiries and share of the limits."""

import heapq
from collections.abc import Callable, Sequence
from math import inf
from threading import RLock
from typing import Final, TypeVar

from fednode.cache.backend import Limits, StoreFull, TooLarge, Usage, Value
from fednode.cache.expiry_heap import Expiries
from fednode.cache.fork_safety import refuse_after_fork
from fednode.cache.memory.policies import Mark, Policy, PolicyMaker

_SLICE: Final = 1_000
"""Heap items a sweep takes off before it lets the others in."""

_T = TypeVar("_T")


class _Inside(RuntimeError):
    def __init__(self) -> None:
        super().__init__(
            "the cache was asked by a destructor or a signal handler that ran within a call of the cache; leave it to "
            "a thread"
        )


class Entry:
    """One value as the cache owns it; immutable once it is in the index, so that it is read without the lock."""

    __slots__ = ("content", "expires_at", "generation", "key", "mark", "marks", "pinned", "plain", "size")

    def __init__(self, key: str, content: Value, size: int, *, plain: bool) -> None:
        self.key = key
        self.content: Value = content
        self.size = size
        self.plain = plain
        self.expires_at = inf
        """On the monotonic clock; infinite for no expiry."""
        self.pinned = False
        self.mark: Mark = None
        """None for a pinned one, of which the policy knows nothing."""
        self.marks: tuple[Mark, ...] = ()
        """The same, as the policy takes it."""
        self.generation = 0


class Shard:
    """Entries by key, within `limits` whenever no call is running. Thread-safe; `now` is the cache's monotonic clock.

    `refuses`: what is there stays until it expires or is deleted, instead of making way.

    The interpreter may run a destructor, or a signal handler, in the middle of a call. Where that asks the shard again,
    it gets a `RuntimeError` instead of a lock that its own thread holds. Where it raises, or the stack ends, the next
    call reckons the shard anew: `with` on a lock of the library, and a store to an attribute, are what nothing can
    come between, and no lock is taken, and no state left, in another way.
    """

    def __init__(self, limits: Limits, make_policy: PolicyMaker, *, refuses: bool) -> None:
        self._lock = RLock()
        self._busy = False
        """A call is in it, or was interrupted in it and left it `torn`: then only the index says what holds."""
        self._torn = False
        self._limits = limits
        self._make_policy = make_policy
        self._refuses = refuses
        self._policy: Policy = make_policy()
        refuse_after_fork(self, "_lock")
        self._entries: dict[str, Entry] = {}
        self._expiries: Expiries[int] = Expiries()
        self._bytes = self._pinned = self._pinned_bytes = self._mortal = 0
        self._generation = self._evictions = self._expired = self._refusals = 0
        self._replaced: Entry | None = None
        """What lived under the key that is being written: there again if that is interrupted."""

    def find(self, key: str, now: float) -> Entry | None:
        """The entry under `key` that has not expired; counts as a use."""
        # as `inside`, without its calls on the hottest paths
        with self._lock:
            if self._busy:
                self._settle(now)
            self._busy = True
            try:
                entry = self._entries.get(key)
                if entry is not None:
                    if entry.expires_at > now:
                        marks = entry.marks
                        if marks:
                            self._policy.used(marks, now)
                    else:
                        self._expire(key)
                        entry = None
            except BaseException:
                self._torn = True
                raise
            self._busy = False
            return entry

    def find_these(self, keys: Sequence[str], found: dict[str, Entry], now: float) -> None:
        """As `find`, for many keys at one moment, into `found`."""

        def step() -> None:
            marks: list[Mark] = []
            look, use = self._entries.get, marks.append
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

        inside(self, now, step)

    def put(self, entry: Entry, now: float) -> None:
        """Store `entry`; raises, with everything as it was, `StoreFull` where there is no room for it, and `TooLarge`
        where the limits were tuned since it was counted."""
        with self._lock:
            if self._busy:
                self._settle(now)
            self._busy = True
            try:
                self._put(entry, now)
            except (StoreFull, TooLarge):
                self._busy = False
                raise
            except BaseException:
                self._torn = True
                raise
            self._busy = False

    def refused(self) -> None:
        """Count a value that was over the limit for one value."""
        with self._lock:
            self._refusals += 1

    def delete(self, key: str, now: float) -> bool:
        """Forget `key`; True if it was there and had not expired."""
        with self._lock:
            if self._busy:
                self._settle(now)
            self._busy = True
            try:
                entry = self._entries.get(key)
                there = entry is not None and entry.expires_at > now
                if there:
                    self._remove(key)
                elif entry is not None:
                    self._expire(key)
            except BaseException:
                self._torn = True
                raise
            self._busy = False
            return there

    def clear(self, now: float) -> None:
        """Forget everything but the counts."""

        def step() -> object:
            policy, self._policy = self._policy, self._make_policy()
            self._policy.batch = policy.batch
            gone, self._entries = self._entries, {}
            heap, self._expiries = self._expiries, Expiries()
            self._bytes = self._pinned = self._pinned_bytes = self._mortal = 0
            return gone, heap, policy

        # all of it is let go after the lock
        inside(self, now, step)

    def sweep(self, now: float) -> int:
        """Free what has expired, in slices between which others get the lock; the number of entries freed."""

        def step() -> tuple[int, bool]:
            before = len(self._entries)
            more = self._expire_due(now, _SLICE)
            return before - len(self._entries), more

        freed, more = inside(self, now, step)
        while more:
            also, more = inside(self, now, step)
            freed += also
        return freed

    def tune(self, limits: Limits, batch: int | None, now: float) -> None:
        """Take new limits, and evict at once what is over them and not pinned; `batch` is the policy's."""

        def step() -> None:
            lower = limits.value_bytes < self._limits.value_bytes
            self._limits = limits
            if batch is not None:
                self._policy.batch = batch
            if not self._refuses:
                if lower:
                    self._evict_larger(limits.value_bytes)
                self._evict(0, 0, now)

        inside(self, now, step)

    def keys(self, prefix: str, now: float) -> list[str]:
        """The keys with `prefix` that have not expired."""
        return inside(
            self,
            now,
            lambda: [key for key, one in self._entries.items() if one.expires_at > now and key.startswith(prefix)],
        )

    def usage(self, now: float) -> Usage:
        """What is held, and the counts so far."""
        with self._lock:
            if self._torn:
                self._settle(now)
            return Usage(
                len(self._entries),
                self._bytes,
                self._pinned,
                self._pinned_bytes,
                self._evictions,
                self._expired,
                self._refusals,
            )

    def _settle(self, now: float) -> None:
        """Make good what an interrupted call has left. Raises `RuntimeError` where a call is under way."""
        if not self._torn:
            raise _Inside
        self._torn = False
        try:
            self._reckon(now)
        except BaseException:
            self._torn = True
            raise
        self._busy = False

    def _reckon(self, now: float) -> None:
        """All else anew from the index, which is whole after every step, pins too. The order of use is lost."""
        old = self._replaced
        if old is not None:
            self._entries.setdefault(old.key, old)
            self._replaced = None
        entries = tuple(self._entries.values())
        policy, self._policy = self._policy, self._make_policy()
        self._policy.batch = policy.batch
        self._bytes = sum(entry.size for entry in entries)
        self._pinned = sum(entry.pinned for entry in entries)
        self._pinned_bytes = sum(entry.size for entry in entries if entry.pinned)
        self._mortal = sum(entry.expires_at != inf for entry in entries)
        for entry in entries:
            if not entry.pinned:
                entry.mark = self._policy.added(entry.key, entry.size, now)
                entry.marks = (entry.mark,)
        self._compact()
        if not self._refuses:
            self._evict(0, 0, now)

    def _put(self, entry: Entry, now: float) -> None:
        key = entry.key
        if entry.size > self._limits.value_bytes:
            self._refusals += 1
            raise TooLarge(entry.size, self._limits.value_bytes)
        self._make_room(key, entry, now)
        self._generation = entry.generation = self._generation + 1
        self._entries[key] = entry
        self._replaced = None
        self._bytes += entry.size
        if entry.pinned:
            self._pinned += 1
            self._pinned_bytes += entry.size
            return
        entry.mark = self._policy.added(key, entry.size, now)
        entry.marks = (entry.mark,)
        if entry.expires_at != inf:
            self._mortal += 1
            self._expiries.add(entry.expires_at, entry.generation, key)
            if self._expiries.is_overgrown(self._mortal):
                self._compact()

    def _make_room(self, key: str, entry: Entry, now: float) -> None:
        """Take the old entry out and evict until `entry` fits; or raise before anything that lives is touched."""
        old = self._entries.get(key)
        if old is not None and old.expires_at <= now:
            self._expire(key)
            old = None
        entries, size = (1, entry.size) if old is None else (0, entry.size - old.size)
        if self._fits(entries, size):
            if old is not None:
                self._replaced = old
                self._remove(key)
            return
        while self._refuses and not self._fits(entries, size) and self._expire_due(now, 1):
            pass
        if not self._could_fit(old, entry.size):
            self._refusals += 1
            raise StoreFull(self._full(entry.size))
        if old is not None:
            # it is then no candidate, and its bytes are not counted twice
            self._replaced = old
            self._remove(key)
        self._evict(1, entry.size, now)

    def _fits(self, entries: int, size: int) -> bool:
        limits = self._limits
        return len(self._entries) + entries <= limits.entries and self._bytes + size <= limits.total_bytes

    def _could_fit(self, old: Entry | None, size: int) -> bool:
        """Whether `size` bytes fit once everything has gone that may go."""
        if self._refuses:
            return self._fits(1, size) if old is None else self._fits(0, size - old.size)
        pinned, taken = self._pinned, self._pinned_bytes
        if old is not None and old.pinned:
            pinned, taken = pinned - 1, taken - old.size
        return pinned < self._limits.entries and taken + size <= self._limits.total_bytes

    def _evict(self, entries: int, size: int, now: float) -> None:
        """Make room for so many more, the expired first; ends early where only pinned ones are left."""
        while not self._fits(entries, size):
            if self._expire_due(now, 1):
                continue
            key = self._policy.victim(now)
            if key is None:
                return
            self._evictions += 1
            self._drop(key)

    def _evict_larger(self, most: int) -> None:
        for entry in tuple(self._entries.values()):
            if entry.size > most and not entry.pinned:
                self._evictions += 1
                self._remove(entry.key)

    def _full(self, size: int) -> str:
        return (
            f"no room for {size} more bytes: {len(self._entries)} of {self._limits.entries} entries and "
            f"{self._bytes} of {self._limits.total_bytes} bytes are in use, {self._pinned_bytes} of them pinned; try "
            "again later or raise the limits"
        )

    def _drop(self, key: str) -> Entry:
        """Take an entry out of all but the policy."""
        entry = self._entries.pop(key)
        self._bytes -= entry.size
        if entry.pinned:
            self._pinned -= 1
            self._pinned_bytes -= entry.size
        elif entry.expires_at != inf:
            self._mortal -= 1
        return entry

    def _remove(self, key: str) -> None:
        entry = self._drop(key)
        if not entry.pinned:
            self._policy.removed(entry.mark)

    def _expire(self, key: str) -> None:
        self._expired += 1
        self._remove(key)

    def _expire_due(self, now: float, most: int) -> bool:
        """Take up to `most` due items off the heap, and their entries out; whether there were any."""
        heap, entries = self._expiries, self._entries
        pop, removed = heapq.heappop, self._policy.removed
        taken = freed = size = 0
        while taken < most and heap and heap[0][0] <= now:
            _, generation, key = pop(heap)
            taken += 1
            entry = entries.get(key)
            if entry is not None and entry.generation == generation:
                del entries[key]
                removed(entry.mark)
                size += entry.size
                freed += 1
        self._bytes -= size
        self._mortal -= freed
        self._expired += freed
        return taken > 0

    def _compact(self) -> None:
        mortal = [(key, entry) for key, entry in self._entries.items() if entry.expires_at != inf]
        self._expiries = Expiries.of((entry.expires_at, entry.generation, key) for key, entry in mortal)


def inside(shard: Shard, now: float, work: Callable[[], _T]) -> _T:
    """What `work` returns while nobody else, and no call of this thread that is under way, is in the shard.

    Nothing takes the locks of two: a thread in one of them waits for no other.
    """
    with shard._lock:
        if shard._busy:
            shard._settle(now)
        shard._busy = True
        try:
            found = work()
        except BaseException:
            shard._torn = True
            raise
        shard._busy = False
        return found


def find_many(shards: Sequence[Shard], keys: Sequence[str], now: float) -> list[Entry]:
    """Those of `keys`, all of them text, that `Shard.find` would find where `hash` puts them, in the order given.

    One shard after the other, each at one moment.
    """
    count = len(shards)
    parts: list[list[str]] = [[] for _ in shards]
    takers = [part.append for part in parts]
    for key in keys:
        takers[hash(key) % count](key)
    found: dict[str, Entry] = {}
    for shard, part in zip(shards, parts, strict=True):
        if part:
            shard.find_these(part, found, now)
    return [found[key] for key in keys if key in found]
