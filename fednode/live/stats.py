"""What a store shows of itself, and the view of a cache that the node hands to its live view."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Protocol

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked_dataclass

from fednode.cache import CacheBackend, Limits, Missing
from fednode.cache.backend import Value
from fednode.cache.wrappers.counted import Counts
from fednode.live.knobs import Knob

Count = Annotated[int, Field(strict=True, ge=0, le=1 << 63)]


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class StoreStats:
    """The numbers of one store: what it holds now, and counts since it was made; None for what it does not know."""

    entries: Count
    bytes: Count
    pinned_entries: Count = 0
    pinned_bytes: Count = 0
    evictions: Count = 0
    expiries: Count = 0
    refusals: Count = 0
    damaged: Count = 0
    hits: Count | None = None
    misses: Count | None = None
    sets: Count | None = None
    deletes: Count | None = None
    loads: Count | None = None
    invalidations: Count | None = None
    staleness: Count | None = None
    """How many versions the model of an update may lag behind and the update still be taken."""
    limit_entries: Count | None = None
    limit_bytes: Count | None = None

    @property
    def hit_ratio(self) -> float | None:
        """Hits among reads, 0 to 1; None where nobody counts, or nobody has read."""
        if self.hits is None or self.misses is None or self.hits + self.misses == 0:
            return None
        return self.hits / (self.hits + self.misses)


@dataclass(frozen=True, slots=True)
class Tuned:
    """One change that was made while the node ran. `at`: seconds since 1970, UTC."""

    at: float
    store: str
    name: str
    old: float
    new: float


class Inspectable(Protocol):
    """A store that can be looked at while it is used. Every call is thread-safe and leaves the store as it is."""

    @property
    def sealed(self) -> bool:
        """Whether what it holds must not leave the node."""
        ...

    def stats(self) -> StoreStats:
        """Its numbers."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """Its keys that begin with `prefix`."""
        ...

    def get(self, key: str) -> Value | Missing:
        """The value under `key`, not counted as one of the node's own reads."""
        ...

    def ttl_left(self, key: str) -> float | None:
        """Seconds that `key` has left; None for no expiry, or where nobody knows."""
        ...

    def version(self, key: str) -> int | None:
        """The version of what is under `key`, where it has one."""
        ...

    def knobs(self) -> Sequence[Knob]:
        """What may be changed."""
        ...


@dataclass(frozen=True, slots=True)
class Extras:
    """What a store knows beyond its cache: functions that are called anew for each request."""

    counts: Callable[[], Counts] | None = None
    limits: Callable[[], Limits] | None = None
    invalidations: Callable[[], int] | None = None
    staleness: Callable[[], int] | None = None
    ttl_left: Callable[[str], float | None] | None = None
    version: Callable[[str], int | None] | None = None


@dataclass(frozen=True, slots=True)
class StoreView:
    """An `Inspectable` over a cache: give it the innermost one, so that looking is not counted as reading."""

    backend: CacheBackend
    extras: Extras = Extras()
    turnable: tuple[Knob, ...] = ()
    sealed: bool = False

    def stats(self) -> StoreStats:
        """The cache's usage, with what `extras` adds."""
        extras = self.extras
        counts = extras.counts() if extras.counts else None
        limits = extras.limits() if extras.limits else None
        return StoreStats(
            **asdict(self.backend.usage()),
            **(asdict(counts) if counts else {}),
            invalidations=extras.invalidations() if extras.invalidations else None,
            staleness=extras.staleness() if extras.staleness else None,
            limit_entries=limits.entries if limits else None,
            limit_bytes=limits.total_bytes if limits else None,
        )

    def keys(self, prefix: str) -> Iterator[str]:
        """As `Inspectable.keys`."""
        return self.backend.keys(prefix)

    def get(self, key: str) -> Value | Missing:
        """As `Inspectable.get`."""
        return self.backend.get(key)

    def ttl_left(self, key: str) -> float | None:
        """As `Inspectable`'s, from `extras`."""
        return self.extras.ttl_left(key) if self.extras.ttl_left else None

    def version(self, key: str) -> int | None:
        """As `Inspectable`'s, from `extras`."""
        return self.extras.version(key) if self.extras.version else None

    def knobs(self) -> Sequence[Knob]:
        """The knobs given as `turnable`."""
        return self.turnable
