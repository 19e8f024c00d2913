"""How often a cache was asked, and how often it knew. Outermost of the wrappers, so that it counts what callers see."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fednode.cache.backend import MISSING, CacheBackend, Missing, Usage, Value, check_items
from fednode.cache.wrappers.counter import EventCounter
from fednode.cache.wrappers.loading import Guarded, Loader, Reader


@dataclass(frozen=True, slots=True)
class Counts:
    """What callers asked for since the counter was made."""

    hits: int
    misses: int
    """Reads that found nothing, those of `get_or_load` included that then loaded or waited for a load."""
    sets: int
    """Values stored by `set`, `pin` and `set_many`; a `set_many` that was refused half-way counts none."""
    deletes: int
    """Deletions of something that was there."""
    loads: int
    """Loaders that ran."""

    @property
    def hit_ratio(self) -> float | None:
        """Hits among reads, 0 to 1; None before the first read."""
        reads = self.hits + self.misses
        return self.hits / reads if reads else None


class Counted:
    """A `CacheBackend` around another, which counts; `get_or_load` is there where the inner one is `Guarded`.

    The counts are exact under threads at the cost of one call into C a read.
    """

    get: Reader

    def __init__(self, inner: CacheBackend) -> None:
        self._inner = inner
        self._hits, self._misses, self._sets, self._deletes, self._loads = (EventCounter() for _ in range(5))
        self.get = _counting(inner.get, self._hits, self._misses)

    def __str__(self) -> str:
        return str(self._inner)

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """Those of `keys` that are there; each different key counts once, as a hit or as a miss."""
        asked = keys if isinstance(keys, (list, tuple)) else list(keys)
        found = self._inner.get_many(asked)
        self._hits.add(len(found))
        if len(found) != len(asked):
            self._misses.add(len(set(asked)) - len(found))
        return found

    def get_or_load(self, key: str, loader: Loader, ttl: float | None) -> Value | Missing:
        """As `Guarded.get_or_load`. Raises `TypeError` where nothing below loads."""
        if not isinstance(self._inner, Guarded):
            raise TypeError("nothing under this counter loads; put a Guarded there")
        found = self.get(key)
        if found is not MISSING:
            return found

        def load() -> Value | Missing:
            self._loads.one()
            return loader()

        return self._inner.get_or_load(key, load, ttl)

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """Store `value` as the cache below does; counted once it is there."""
        self._inner.set(key, value, ttl)
        self._sets.one()

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """Store every item as the cache below does; counted once all are there."""
        check_items(items)
        self._inner.set_many(items, ttl)
        self._sets.add(len(items))

    def pin(self, key: str, value: Value) -> None:
        """Store `value` where no eviction reaches it; counted once it is there."""
        self._inner.pin(key, value)
        self._sets.one()

    def delete(self, key: str) -> bool:
        """Forget `key`; counted if it was there."""
        was_there = self._inner.delete(key)
        if was_there:
            self._deletes.one()
        return was_there

    def clear(self) -> None:
        """Forget everything below; the counts stay."""
        self._inner.clear()

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed."""
        return self._inner.sweep()

    def keys(self, prefix: str = "") -> Iterator[str]:
        """The keys of the cache below."""
        return self._inner.keys(prefix)

    def usage(self) -> Usage:
        """What the cache below holds."""
        return self._inner.usage()

    def counts(self) -> Counts:
        """What callers asked for so far."""
        tallies = (self._hits, self._misses, self._sets, self._deletes, self._loads)
        return Counts(*(tally.value for tally in tallies))


def _counting(get: Reader, hits: EventCounter, misses: EventCounter) -> Reader:
    # names of this function instead of attributes: half the cost of a method on the hottest path
    hit, miss, missing = hits.ones, misses.ones, MISSING

    def counted_get(key: str) -> Value | Missing:
        value = get(key)
        next(miss if value is missing else hit)
        return value

    return counted_get
