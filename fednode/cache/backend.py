"""The interface of every cache backend and wrapper, `str -> Value`, with its errors, limits and checks.

Every backend and wrapper passes the conformance kit `tests/kit/cache/backend.py`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any, Final, Literal, Protocol, TypeAlias

from fednode.errors import ConfigError, StoreError


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"

    def __bool__(self) -> Literal[False]:
        """False, so that `if cache.get(key):` never takes a miss for a value."""
        return False


MISSING: Final = Missing.MISSING
"""The result of `get` for a key that is not there. No value equals it.

It is false, but so are values such as b"" and 0: test `found is MISSING`.
"""

Value: TypeAlias = object
"""None, bool, int, float, str, bytes, a numpy array, a torch tensor, or a list, tuple or str-keyed dict of these.

`fednode.cache.values.codec` refuses anything else.
"""


_TEXT: Final = frozenset([str])


class Closed(StoreError):
    """The cache was closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed; open it again")


class StoreFull(StoreError):
    """There is no room; nothing was stored. `retry_after`: seconds after which to try again, None if unknown."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooLarge(StoreError):
    """A value over the limit for one value; nothing was stored, and waiting does not help."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"a value of {size} bytes is over the limit of {limit} bytes for one value; store it in pieces"
        )
        self.size = size
        self.limit = limit


WHAT_KEEPS_PINS: Final = (
    "set its maxmemory-policy to noeviction, let it persist to its disk (appendonly yes), and see who else writes there"
)


class PinLost(StoreError):
    """A pinned value that nobody deleted is gone from the server, or `damaged` there."""

    def __init__(self, key: str, place: str = "the server", *, damaged: bool = False) -> None:
        state = "is damaged on" if damaged else "is gone from"
        super().__init__(f"the pinned value {key} {state} {place}; {WHAT_KEEPS_PINS}")
        self.key = key
        self.place = place
        self.damaged = damaged


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a backend. Bytes are those of the values; `entries` bounds keys and bookkeeping.

    Raises `ConfigError` unless each is a positive `int` and `value_bytes` is at most `total_bytes`.
    """

    entries: int
    total_bytes: int
    value_bytes: int

    def __post_init__(self) -> None:
        for name in ("entries", "total_bytes", "value_bytes"):
            limit = getattr(self, name)
            if type(limit) is not int or limit < 1:
                raise ConfigError(f"the cache limit {name} is {limit!r}; it must be a whole number, at least 1")
        if self.value_bytes > self.total_bytes:
            raise ConfigError(
                f"the cache limit value_bytes is {self.value_bytes}, over total_bytes ({self.total_bytes}); lower it"
            )


class WhenFull(Enum):
    """What a backend does with a value that finds no room. Expired entries make room under both."""

    EVICT = "evict"
    """Evict what the policy chooses, never the entry just written: for values that can be had again."""
    REFUSE = "refuse"
    """Raise `StoreFull` and evict nothing: for values that nobody else has."""


def check_when_full(when_full: object) -> None:
    """Raise `TypeError` unless this is a `WhenFull`: a cache that should refuse must not evict because of a typo."""
    if not isinstance(when_full, WhenFull):
        raise TypeError(f"when_full is {when_full!r}; use WhenFull.EVICT or WhenFull.REFUSE")


def check_key(key: object) -> None:
    """Raise `TypeError` unless `key` is a plain `str`: a subclass could run its own code under a lock."""
    if type(key) is not str:
        raise TypeError(f"cache keys must be str, not {type(key).__name__}")


def checked_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """`keys` as a tuple. Raises as `check_key` does."""
    asked = tuple(keys)
    for key in asked if set(map(type, asked)) - _TEXT else ():
        check_key(key)
    return asked


def check_ttl(ttl: float | None) -> float | None:
    """`ttl` as a Python `float`: a numpy float would be added to the clock in its own, lower precision.

    Raises `ValueError` unless it is None (no expiry) or a finite number of seconds above 0; bools are refused.
    """
    if ttl is None:
        return None
    seconds = _seconds(ttl)
    if not 0 < seconds < math.inf:
        raise ValueError(f"the time to live is {ttl!r} s; give seconds above 0, or None for no expiry")
    return seconds


def is_number(value: object) -> bool:
    """Whether `value` is a real number, but no bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _seconds(ttl: Any) -> float:
    if type(ttl) is float:
        return ttl
    if not is_number(ttl):
        return math.nan
    try:
        return float(ttl)
    except OverflowError:
        # an int beyond all floats
        return math.inf


def check_items(items: object) -> None:
    """Raise `TypeError` unless `items` is a mapping."""
    if type(items) is not dict and not isinstance(items, Mapping):
        raise TypeError(f"set_many takes a dict of keys and values, not a {type(items).__name__}")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a backend holds now, expired entries included until they are swept, and counts since it was made."""

    entries: int
    bytes: int
    pinned_entries: int = 0
    pinned_bytes: int = 0
    evictions: int = 0
    expiries: int = 0
    refusals: int = 0
    """Sets and pins that found no room, or were over the limit for one value."""
    damaged: int = 0
    """Values found changed or incomplete: each was a miss."""


class CacheBackend(Protocol):
    """Values by key until they expire. Thread-safe; every call on one key is atomic.

    A key is any `str`; others raise `TypeError`. After `close`, where there is one, calls raise `Closed`. In a forked
    child calls raise `UsedAfterFork`. `str()` of a backend describes where the values are.
    """

    def get(self, key: str) -> Value | Missing:
        """The value last set and not expired, or `MISSING`. Reading never extends its life.

        The value is immutable, a read-only view or a copy: the caller cannot change what is stored.
        """
        ...

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """Those of `keys` that `get` would find, with their values, in the order asked."""
        ...

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """Store `value` for `ttl` seconds (None: no expiry), in place of an older value, its expiry and its pin.

        Every limit holds when this returns, and `key` is there. Raises `TooLarge` for a value over the limit for one,
        `StoreFull` if pinned entries leave no room or nothing may be evicted, `TypeError` for a value of another type,
        `ValueError` for another `ttl`; an older value under `key` is then untouched.
        """
        ...

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """`set` each item in order, up to the first that is refused; the items before it stay."""
        ...

    def pin(self, key: str, value: Value) -> None:
        """Store `value` without expiry and never evict it, until `delete`, `clear` or the next `set`.

        Unpinned entries are evicted for it. Raises `StoreFull` if pinned ones leave no room, else as `set` does.
        """
        ...

    def delete(self, key: str) -> bool:
        """Forget `key`; True if it was there and had not expired."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed. Looks at nothing else."""
        ...

    def keys(self, prefix: str = "") -> Iterator[str]:
        """The keys that begin with `prefix` and have not expired, in any order, as of some moment during the call."""
        ...

    def usage(self) -> Usage:
        """Entries, bytes and counts so far."""
        ...
