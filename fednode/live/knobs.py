"""What may be changed while a node runs: a name, how to read it, how to set it. What cannot work is refused as at the
start, by the same check."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from fednode.cache import Limits
from fednode.cache.guarded import Guarded
from fednode.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Knob:
    """One number of a store. `write` raises `ConfigError` for what cannot work, and has then changed nothing."""

    name: str
    read: Callable[[], float]
    write: Callable[[float], None]
    whole: bool = False
    """Whether it is a whole number; `write` is then given an int."""

    def turn(self, value: float) -> tuple[float, float]:
        """Set it; what it was and what it is. Raises `ConfigError`."""
        if not math.isfinite(value) or (self.whole and value != int(value)):
            raise ConfigError(f"{self.name} takes a {'whole' if self.whole else 'finite'} number; {value:g} is none")
        old = self.read()
        self.write(int(value) if self.whole else float(value))
        return old, self.read()


class Tunable(Protocol):
    """A cache whose limits and eviction batch may change while it is used, as `MemoryBackend`."""

    @property
    def limits(self) -> Limits:
        """The limits now."""
        ...

    def tune(self, limits: Limits | None = None, batch: int | None = None) -> None:
        """Take others. Raises `ConfigError`."""
        ...


def guard_knobs(guard: Guarded) -> tuple[Knob, ...]:
    """`jitter`, `negative_ttl`, `negative_entries` and `wait` of a `Guarded`, checked by `GuardSettings`."""
    return tuple(
        _setting(guard, name, whole=name == "negative_entries")
        for name in ("jitter", "negative_ttl", "negative_entries", "wait")
    )


def memory_knobs(memory: Tunable, batch: int) -> tuple[Knob, ...]:
    """`entries`, `total_bytes`, `value_bytes` and `eviction_batch` of a cache; `batch` is what the last one is now."""
    limits = tuple(_limit(memory, name) for name in ("entries", "total_bytes", "value_bytes"))
    return (*limits, _eviction_batch(memory, batch))


def _setting(guard: Guarded, name: str, *, whole: bool) -> Knob:
    def write(value: float) -> None:
        # replace() is not told of the types that a name has
        guard.settings = replace(guard.settings, **{name: value})  # type: ignore[arg-type]

    return Knob(name, lambda: float(getattr(guard.settings, name)), write, whole)


def _limit(memory: Tunable, name: str) -> Knob:
    def write(value: float) -> None:
        memory.tune(limits=replace(memory.limits, **{name: int(value)}))

    return Knob(name, lambda: int(getattr(memory.limits, name)), write, whole=True)


def _eviction_batch(memory: Tunable, batch: int) -> Knob:
    held = [batch]

    def write(value: float) -> None:
        memory.tune(batch=int(value))
        held[0] = int(value)

    return Knob("eviction_batch", lambda: held[0], write, whole=True)
