"""Protection against load storms: one load of a key at a time, misses remembered for a moment, varied lives.

Reads go straight to the cache below: `get` is its own bound method and costs nothing here.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from threading import TIMEOUT_MAX, Lock
from typing import Final, Protocol, TypeAlias

from fednode.cache.backend import (
    MISSING,
    CacheBackend,
    Missing,
    StoreFull,
    TooLarge,
    Usage,
    Value,
    check_items,
    check_ttl,
    is_number,
)
from fednode.cache.fork_safety import refuse_after_fork
from fednode.cache.values.freeze import Frozen, freeze, thaw
from fednode.cache.wrappers.single_flight import Flight, Flights
from fednode.clock import Clock
from fednode.errors import ConfigError, StoreError

Loader: TypeAlias = Callable[[], Value | Missing]
"""Makes a value, or returns `MISSING` if there is none."""

_SAME_LIFE: Final = 64
"""Values of one `set_many` that share a life: few enough to expire at once, enough to be stored in one go."""


class StillLoading(StoreError):
    """Another caller is loading this key and has not finished in time: nothing was loaded here."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """How lives vary, how long a miss is remembered, how long a caller waits. Raises `ConfigError`.

    `jitter`: the part of a ttl by which it may be longer or shorter. `negative_ttl`: seconds for which a loader's
    `MISSING` is remembered, 0 for not at all; `negative_entries`: how many such keys at most, the oldest go first.
    `wait`: seconds that a caller waits for another caller's load.
    """

    jitter: float = 0.1
    negative_ttl: float = 5.0
    negative_entries: int = 10_000
    wait: float = 60.0

    def __post_init__(self) -> None:
        if not is_number(self.jitter) or not 0 <= self.jitter <= 0.5:
            raise ConfigError(f"jitter must be from 0 to 0.5: {self.jitter!r} was asked")
        if not is_number(self.negative_ttl) or not 0 <= self.negative_ttl < math.inf:
            raise ConfigError(f"negative_ttl must be 0 s (remembers none) or more: {self.negative_ttl!r} was asked")
        if type(self.negative_entries) is not int or self.negative_entries < 1:
            raise ConfigError(f"negative_entries must be at least 1: {self.negative_entries} was asked")
        if not is_number(self.wait) or not 0 < self.wait <= TIMEOUT_MAX:
            raise ConfigError(f"wait must be above 0 s and at most {TIMEOUT_MAX:g} s: {self.wait!r} was asked")


def jittered(ttl: float | None, jitter: float, drawn: float) -> float | None:
    """`ttl` times 1 - `jitter` (`drawn` = 0) to 1 + `jitter` (`drawn` = 1): above 0, and never longer than that.

    None stays None; an invalid ttl stays as it is, for the cache to refuse.
    """
    if ttl is None:
        return None
    varied = ttl * (1 + jitter * (2 * drawn - 1))
    return varied if varied > 0 and math.isfinite(varied) else ttl


class Reader(Protocol):
    """`CacheBackend.get`, as a value."""

    def __call__(self, key: str) -> Value | Missing:
        """The value under `key`, or `MISSING`."""
        ...


class ManyReader(Protocol):
    """`CacheBackend.get_many`, as a value."""

    def __call__(self, keys: Iterable[str]) -> dict[str, Value]:
        """Those of `keys` that are there."""
        ...


class Guarded:
    """A `CacheBackend` around another, with `get_or_load`.

    It differs from the one below in one promise: every finite ttl is varied by `settings.jitter` on its way down, so a
    value lives between 0.9 and 1.1 of what was asked (by default), drawn from `draw` (0 to 1, such as that of a seeded
    `random.Random(seed).random`). Whoever needs an exact life sets the jitter to 0.

    Writes must come through this object to overtake a load: one made below it may be overwritten by an older answer.
    Thread-safe. `settings` may be replaced at any time and holds from the next call on.
    """

    get: Reader
    get_many: ManyReader

    def __init__(
        self, inner: CacheBackend, clock: Clock, draw: Callable[[], float], settings: GuardSettings | None = None
    ) -> None:
        self.settings = settings or GuardSettings()
        self.get = inner.get
        self.get_many = inner.get_many
        self._inner = inner
        self._clock = clock
        self._draw = draw
        self._flights = Flights()
        self._absent: dict[str, float] = {}
        self._absent_lock = Lock()
        refuse_after_fork(self, "_absent_lock")

    def __str__(self) -> str:
        return str(self._inner)

    def get_or_load(self, key: str, loader: Loader, ttl: float | None) -> Value | Missing:
        """What `get` finds; else what `loader` answers, stored for `ttl` seconds, or remembered as `MISSING`.

        One loader of a key runs at a time. Everybody who waits for it gets a copy of its value, or its error. An error
        is not remembered. An answer that a `set`, `delete` or `clear` overtook, or that finds no room, goes to those
        who had asked and is not stored.

        Raises what the loader raises, what `set` raises except for want of room, `StillLoading` after `settings.wait`
        seconds, and `RuntimeError` for a loader that asks for its own key.
        """
        while True:
            found = self.get(key)
            if found is not MISSING or self._known_missing(key):
                return found
            flight, leads, current = self._flights.join(key)
            if leads:
                try:
                    return self._lead(key, flight, loader, ttl)
                finally:
                    self._flights.land(key, flight)
                    flight.abandon()
            if not self._flights.wait(flight, self.settings.wait):
                raise StillLoading(
                    f"the load of {key!r} that is under way takes over {self.settings.wait:g} s; try again later"
                )
            if current and not flight.answer.cancelled():
                return _own(flight.answer.result())

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """Store `value` for about `ttl` seconds; overtakes a load under way. Raises as the cache below does."""
        with self._flights.writing((key,)):
            self._forget_missing((key,))
            self._inner.set(key, value, self._varied(ttl))

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """`set` for each item in order; lives differ from one part of the items to the next."""
        check_items(items)
        with self._flights.writing(items):
            self._forget_missing(items)
            if ttl is None:
                self._inner.set_many(items, None)
                return
            pairs = iter(items.items())
            while part := dict(islice(pairs, _SAME_LIFE)):
                self._inner.set_many(part, self._varied(ttl))

    def pin(self, key: str, value: Value) -> None:
        """Store `value` where no eviction reaches it; overtakes a load under way."""
        with self._flights.writing((key,)):
            self._forget_missing((key,))
            self._inner.pin(key, value)

    def delete(self, key: str) -> bool:
        """Forget `key`, and that it was missing; what is being loaded is not stored. True if it was there."""
        with self._flights.writing((key,)):
            self._forget_missing((key,))
            return self._inner.delete(key)

    def clear(self) -> None:
        """Forget everything, remembered misses too; nothing that is being loaded is stored."""
        with self._flights.clearing():
            with self._absent_lock:
                self._absent.clear()
            self._inner.clear()

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed below, remembered misses not counted."""
        now = self._clock.now()
        with self._absent_lock:
            # about in the order of their expiry; what is left behind is bounded, and never answered from
            while self._absent and self._absent[key := next(iter(self._absent))] <= now:
                del self._absent[key]
        return self._inner.sweep()

    def keys(self, prefix: str = "") -> Iterator[str]:
        """The keys of the cache below, without those that are remembered as missing."""
        return self._inner.keys(prefix)

    def usage(self) -> Usage:
        """What the cache below holds."""
        return self._inner.usage()

    def _lead(self, key: str, flight: Flight, loader: Loader, ttl: float | None) -> Value | Missing:
        ttl = check_ttl(ttl)
        # somebody may have ended a load between our look and our turn; those who wait for us then look again
        held = self.get(key)
        if held is not MISSING or self._known_missing(key):
            return held
        try:
            loaded = loader()
            frozen = loaded if isinstance(loaded, Missing) else freeze(loaded)
            if self._flights.may_store(flight):
                if isinstance(frozen, Missing):
                    self._remember(key)
                else:
                    self._store(key, thaw(frozen), ttl)
        except Exception as error:
            self._flights.land(key, flight)
            flight.answer.set_exception(error)
            raise
        self._flights.land(key, flight)
        flight.answer.set_result(frozen)
        return _own(frozen)

    def _store(self, key: str, value: Value, ttl: float | None) -> None:
        # a cache without room is no reason to fail whoever asked
        with suppress(StoreFull, TooLarge):
            self._inner.set(key, value, self._varied(ttl))

    def _forget_missing(self, keys: Iterable[str]) -> None:
        if self._absent:
            with self._absent_lock:
                for key in keys:
                    self._absent.pop(key, None)

    def _varied(self, ttl: float | None) -> float | None:
        ttl = check_ttl(ttl)
        jitter = self.settings.jitter
        return ttl if ttl is None or not jitter else jittered(ttl, jitter, self._draw())

    def _known_missing(self, key: str) -> bool:
        until = self._absent.get(key)
        return until is not None and until > self._clock.now()

    def _remember(self, key: str) -> None:
        settings = self.settings
        if not settings.negative_ttl:
            return
        with self._absent_lock:
            self._absent.pop(key, None)
            self._absent[key] = self._clock.now() + settings.negative_ttl
            while len(self._absent) > settings.negative_entries:
                del self._absent[next(iter(self._absent))]


def _own(answer: Frozen | Missing) -> Value | Missing:
    """A load's answer, for one caller alone."""
    return answer if isinstance(answer, Missing) else thaw(answer)
