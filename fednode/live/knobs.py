"""What may be changed while a node runs. A value that cannot work is refused by the same check as at the start."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from fednode.cache import Limits
from fednode.cache.wrappers.loading import Guarded, GuardSettings
from fednode.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Knob:
    """One number of a store. Where `write` raises `ConfigError` it has changed nothing."""

    name: str
    read: Callable[[], float]
    write: Callable[[float], None]
    whole: bool = False
    """Whether it is a whole number; `write` and `check` then take an int."""

    check: Callable[[float], None] = lambda _: None
    """Raises `ConfigError` for a value that it cannot have now; changes nothing."""
    means: str = ""
    """What it means, with its unit."""
    span: str = ""
    """Its range, for people."""
    limits_of: "Limited | None" = None
    """The cache whose limit it is: several limits of one cache are changed at once."""

    def typed(self, value: float) -> float:
        """`value` as `write` takes it."""
        return int(value) if self.whole else float(value)

    def require(self, value: float) -> None:
        """Raise `ConfigError` unless it may be `value` now; nothing is changed."""
        if not math.isfinite(value) or (self.whole and value != int(value)):
            raise ConfigError(f"{self.name} takes a {'whole' if self.whole else 'finite'} number, not {value:g}")
        self.check(self.typed(value))

    def turn(self, value: float) -> tuple[float, float]:
        """Set it; returns the old and the new value. Raises `ConfigError`."""
        self.require(value)
        old = self.read()
        self.write(self.typed(value))
        return old, self.read()


class Limited(Protocol):
    """A cache whose limits may change while it is used."""

    @property
    def limits(self) -> Limits:
        """The limits now."""
        ...

    def tune(self, limits: Limits) -> None:
        """Take other limits. Raises `ConfigError`."""
        ...


class Tunable(Limited, Protocol):
    """A cache whose eviction batch may change too, as `MemoryBackend`."""

    def tune(self, limits: Limits | None = None, batch: int | None = None) -> None:
        """Take other limits, or another batch. Raises `ConfigError`."""
        ...


_GUARD: Final = {
    "jitter": ("part of a life by which it may be longer or shorter", "0 to 0.5"),
    "negative_ttl": ("seconds that a miss is remembered", "0 (not at all) or more"),
    "negative_entries": ("misses remembered at most", "1 or more"),
    "wait": ("seconds that a reader waits for another's load", "above 0"),
}
_LIMITS: Final = {
    "entries": "entries at most",
    "total_bytes": "bytes of all values at most",
    "value_bytes": "bytes of one value at most",
}


def guard_knobs(guard: Guarded) -> tuple[Knob, ...]:
    """`jitter`, `negative_ttl`, `negative_entries` and `wait` of a `Guarded`, checked by `GuardSettings`."""
    return tuple(_setting(guard, name) for name in _GUARD)


def memory_knobs(memory: Tunable, batch: int, least: Limits | None = None) -> tuple[Knob, ...]:
    """`entries`, `total_bytes`, `value_bytes` and `eviction_batch` of a cache, whose batch is `batch` now.

    No limit goes below that in `least`, which is what the run needs.
    """
    return (*limit_knobs(memory, least), _eviction_batch(memory, batch))


def limit_knobs(cache: Limited, least: Limits | None = None) -> tuple[Knob, ...]:
    """`entries`, `total_bytes` and `value_bytes` of a cache, none below that in `least`."""
    return tuple(_limit(cache, name, 1 if least is None else getattr(least, name)) for name in _LIMITS)


def _setting(guard: Guarded, name: str) -> Knob:
    def wanted(value: float) -> GuardSettings:
        return replace(guard.settings, **{name: value})  # type: ignore[arg-type]

    def check(value: float) -> None:
        wanted(value)

    def write(value: float) -> None:
        guard.settings = wanted(value)

    def read() -> float:
        return float(getattr(guard.settings, name))

    means, span = _GUARD[name]
    return Knob(name, read, write, whole=name == "negative_entries", check=check, means=means, span=span)


def _limit(cache: Limited, name: str, least: int) -> Knob:
    def check(value: float) -> None:
        if value < least:
            raise ConfigError(f"{name} must be {least} or more, which is what a round needs; {value:.15g} is less")

    def write(value: float) -> None:
        cache.tune(limits=replace(cache.limits, **{name: int(value)}))

    def read() -> float:
        return int(getattr(cache.limits, name))

    return Knob(
        name, read, write, whole=True, check=check, means=_LIMITS[name], span=f"{least} or more", limits_of=cache
    )


def _eviction_batch(memory: Tunable, batch: int) -> Knob:
    held = [batch]

    def check(value: float) -> None:
        if value < 1:
            raise ConfigError(f"eviction_batch must be 1 or more, not {value:g}")

    def write(value: float) -> None:
        memory.tune(batch=int(value))
        held[0] = int(value)

    means = "entries that an eviction chooses from"
    return Knob("eviction_batch", lambda: held[0], write, whole=True, check=check, means=means, span="1 or more")
