"""The one place where wrappers are put around a cache, and their order.

`Counted` > `Guarded` > `Chunked` (where values are cut) > the cache, which for a far one is `Tiered` over it. `Counted`
is outermost, so that it counts what callers see; `Guarded` is above the cutting, so that a load is stored, and a write
overtakes it, whole. A write by another node only invalidates our near copy. It does not cancel a load in progress here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fednode.cache.backend import CacheBackend
from fednode.cache.wrappers.chunked import Chunked
from fednode.cache.wrappers.counted import Counted
from fednode.cache.wrappers.loading import Guarded, GuardSettings
from fednode.cache.wrappers.tiered import Remote, Tiered, TierOptions
from fednode.clock import Clock


@dataclass(frozen=True, slots=True)
class Wrapping:
    """How a cache is wrapped.

    `piece_bytes`: larger values are cut into pieces of this size; None for a cache that takes its values whole, or cuts
    them itself as `RedisBackend` does. `value_bytes`: the most that one value may then have.
    """

    guard: GuardSettings = field(default_factory=GuardSettings)
    piece_bytes: int | None = None
    value_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Nested:
    """A wrapped cache. Use `cache`; the other two are for inspection and tuning."""

    cache: Counted
    guard: Guarded
    backend: CacheBackend
    """The cache below the guard, values whole: a read here is not counted, a write here overtakes no load."""


def nested(backend: CacheBackend, clock: Clock, draw: Callable[[], float], wrapping: Wrapping | None = None) -> Nested:
    """`backend` with its wrappers around it; `draw` gives numbers from 0 to 1 for the jitter of lives."""
    wrapping = wrapping or Wrapping()
    whole: CacheBackend = backend
    if wrapping.piece_bytes is not None:
        whole = Chunked(backend, wrapping.piece_bytes, wrapping.value_bytes)
    guard = Guarded(whole, clock, draw, wrapping.guard)
    return Nested(Counted(guard), guard, whole)


@contextmanager
def near(local: CacheBackend, remote: Remote, options: TierOptions | None = None) -> Iterator[Tiered]:
    """`remote` with copies in `local`, kept fresh until the end: a backend for `nested`."""
    with Tiered(local, remote, options) as tiered:
        yield tiered
