"""What every cache backend promises, over `str -> Value`.

Nothing here shows how a backend evicts: callers only see a miss, or a refusal.
`tests/kit/cache/backend.py` is the conformance kit that each backend and each wrapper passes.
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
        """False, so that `if cache.get(key):` at least never takes a miss for a value."""
        return False


MISSING: Final = Missing.MISSING
"""What `get` answers when nothing is stored: different from every value, None and the empty one too.

It is false, but so are stored values such as b"" and 0: ask `found is MISSING`.
"""

Value: TypeAlias = object
"""None, bool, int, float, str, bytes, a numpy array, a torch tensor, or a list, tuple or str-keyed dict of these.

`fednode.cache.values.codec` says so in code: it refuses anything else, and keeps what is stored out of its callers'
reach.
"""


_TEXT: Final = frozenset([str])


class Closed(StoreError):
    """The cache was closed: nothing is read from it, and nothing stored."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed; open it again")


class StoreFull(StoreError):
    """No room without breaking a promise; nothing was stored. `retry_after`: seconds, None where nobody can say."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooLarge(StoreError):
    """One value over the limit for one value; nothing was stored and waiting will not help."""

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
    """What a backend holds at most. Bytes are those of the values; `entries` bounds keys and bookkeeping.

    Raises `ConfigError` where a limit is no positive `int`, or one value at its limit would not fit at all.
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
    """Raise `TypeError` unless `key` is text, and of no class of its own: foreign code would run under a lock."""
    if type(key) is not str:
        raise TypeError(f"a cache key of type {type(key).__name__} means nothing; make it text (str)")


def checked_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """`keys`, read once, before any is compared with another. Raises as `check_key` does."""
    asked = tuple(keys)
    for key in asked if set(map(type, asked)) - _TEXT else ():
        check_key(key)
    return asked


def check_ttl(ttl: float | None) -> float | None:
    """`ttl` as a `float` of Python; a narrower one, such as numpy's, would be added to the clock in its own precision.

    Raises `ValueError` unless it is None (never expires) or a finite number of seconds above 0; True is none. One too
    short for the clock to tell from now is a number all the same: such a value has expired once it is stored.
    """
    if ttl is None:
        return None
    seconds = _seconds(ttl)
    if not 0 < seconds < math.inf:
        raise ValueError(
            f"a time to live of {_shown(ttl)} s means nothing; give seconds above 0, or None for no expiry"
        )
    return seconds


def is_number(value: object) -> bool:
    """Whether `value` may be compared with numbers and means one: text and True do not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _seconds(ttl: Any) -> float:
    if type(ttl) is float:
        return ttl
    if not is_number(ttl):
        return math.nan
    try:
        return float(ttl)
    except OverflowError:
        # a whole number beyond all floats
        return math.inf


def check_items(items: object) -> None:
    """Raise `TypeError` unless `items` is a mapping, as `set_many` takes it."""
    if type(items) is not dict and not isinstance(items, Mapping):
        raise TypeError(f"set_many takes a dict of keys and values, not a {type(items).__name__}; make it one")


def _shown(ttl: Any) -> str:
    return f"2**{ttl.bit_length() - 1}" if isinstance(ttl, int) and ttl.bit_length() > 1_024 else repr(ttl)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a backend holds right now, not yet swept entries included, and what has happened since it was made."""

    entries: int
    bytes: int
    pinned_entries: int = 0
    pinned_bytes: int = 0
    evictions: int = 0
    expiries: int = 0
    refusals: int = 0
    """Sets and pins that found no room, or were over the limit for one value."""
    damaged: int = 0
    """Values that were not what was stored, or were half there: each was a miss."""


class CacheBackend(Protocol):
    """Values by key until they expire. Safe to call from several threads; every call on one key is atomic.

    A key is any text: for another one every call raises `TypeError`, and nothing is stored. Where a backend can be
    closed, calls that read or write values raise `Closed` from then on. `str()` of it says in words where values lie.
    """

    def get(self, key: str) -> Value | Missing:
        """The value last set and not expired, or `MISSING`. Reading never extends a life.

        What comes out is immutable, a read-only view or a copy: nothing a caller does to it reaches the store.
        """
        ...

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """Those of `keys` that `get` would find, with their values, in the order asked."""
        ...

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """Store `value` for `ttl` seconds (None: no expiry); an older value, its expiry and its pin are replaced.

        Every limit holds when this returns, and `key` is there. Raises `TooLarge` for one value over its limit,
        `StoreFull` where pinned entries leave no room or the backend keeps all it has, `TypeError` for what is no
        `Value`, `ValueError` for a `ttl` that is not a finite number above 0; an older value under `key` is then
        untouched.
        """
        ...

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """`set` for each item in order; the first refusal is raised and ends it, what was stored before stays."""
        ...

    def pin(self, key: str, value: Value) -> None:
        """Store `value` without expiry where no eviction reaches it, until `delete`, `clear` or the next `set`.

        Unpinned entries make way. Pinned ones never do: raises `StoreFull` once they leave no room, and as `set` else.
        """
        ...

    def delete(self, key: str) -> bool:
        """Forget `key`; True if it was there and had not expired."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed. No work for what has not."""
        ...

    def keys(self, prefix: str = "") -> Iterator[str]:
        """The keys that begin with `prefix` and have not expired, in no order, as of some moment during the call."""
        ...

    def usage(self) -> Usage:
        """Entries, bytes and counts so far."""
        ...
