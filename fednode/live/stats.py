"""What a store shows of itself, and the view of a cache that the node hands to its live view."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Protocol, Self

from fednode.cache import CacheBackend, Limits, Missing
from fednode.cache.backend import Value
from fednode.cache.wrappers.counted import Counts
from fednode.errors import PeerFault
from fednode.live.knobs import Knob
from fednode.live.schema import is_count
from fednode.reasons import Reason


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The numbers of one store: what it holds now, and counts since it was made; None for what it does not know."""

    entries: int
    bytes: int
    pinned_entries: int = 0
    pinned_bytes: int = 0
    evictions: int = 0
    expiries: int = 0
    refusals: int = 0
    damaged: int = 0
    hits: int | None = None
    misses: int | None = None
    sets: int | None = None
    deletes: int | None = None
    loads: int | None = None
    invalidations: int | None = None
    staleness: int | None = None
    """How many versions the model of an update may lag behind and the update still be taken."""
    limit_entries: int | None = None
    limit_bytes: int | None = None

    @property
    def hit_ratio(self) -> float | None:
        """Hits among reads, 0 to 1; None where nobody counts, or nobody has read."""
        if self.hits is None or self.misses is None or self.hits + self.misses == 0:
            return None
        return self.hits / (self.hits + self.misses)

    def plain(self) -> dict[str, int | None]:
        """As JSON has it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, found: object) -> Self:
        """Back from JSON. Raises `PeerFault("malformed")` for anything but numbers of these names."""
        names = {field.name for field in fields(cls)}
        if not isinstance(found, dict) or set(found) != names:
            raise PeerFault(Reason.MALFORMED, "the numbers of a store are not those that this version knows")
        for name, value in found.items():
            optional = value is None and name not in ("entries", "bytes")
            if not optional and not is_count(value):
                raise PeerFault(Reason.MALFORMED, f"{name} of a store is no count")
        return cls(**found)


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
    """What a store knows beyond its cache: each a question that is asked anew each time."""

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
            hits=counts.hits if counts else None,
            misses=counts.misses if counts else None,
            sets=counts.sets if counts else None,
            deletes=counts.deletes if counts else None,
            loads=counts.loads if counts else None,
            invalidations=extras.invalidations() if extras.invalidations else None,
            staleness=extras.staleness() if extras.staleness else None,
            limit_entries=limits.entries if limits else None,
            limit_bytes=limits.total_bytes if limits else None,
        )

    def keys(self, prefix: str) -> Iterator[str]:
        """The cache's keys."""
        return self.backend.keys(prefix)

    def get(self, key: str) -> Value | Missing:
        """What the cache has."""
        return self.backend.get(key)

    def ttl_left(self, key: str) -> float | None:
        """What `extras` says."""
        return self.extras.ttl_left(key) if self.extras.ttl_left else None

    def version(self, key: str) -> int | None:
        """What `extras` says."""
        return self.extras.version(key) if self.extras.version else None

    def knobs(self) -> Sequence[Knob]:
        """What was given as `turnable`."""
        return self.turnable
