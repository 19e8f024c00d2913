"""What every cache backend promises, in five verbs over `str -> bytes`.

Nothing here shows how a backend evicts or how much it holds: callers only see a miss, or a refusal.
`tests/kit/backend.py` is the conformance kit that each backend passes.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from fednode.errors import ConfigError, StoreError


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""What `get` answers when nothing is stored: different from every value, the empty one too."""


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


@dataclass(frozen=True, slots=True)
class Limits:
    """What a backend holds at most. Bytes are those of the values; `entries` bounds keys and bookkeeping.

    Raises `ConfigError` where a limit is not positive, or one value at its limit would not fit at all.
    """

    entries: int
    total_bytes: int
    value_bytes: int

    def __post_init__(self) -> None:
        for name in ("entries", "total_bytes", "value_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"the cache limit {name} is {getattr(self, name)}; it must be at least 1")
        if self.value_bytes > self.total_bytes:
            raise ConfigError(
                f"the cache limit value_bytes is {self.value_bytes}, over total_bytes ({self.total_bytes}); lower it"
            )


def check_ttl(ttl: float | None) -> None:
    """Raise `ValueError` unless `ttl` is None (never expires) or a finite number of seconds above 0."""
    if ttl is not None and not (math.isfinite(ttl) and ttl > 0):
        raise ValueError(f"a time to live of {ttl} s means nothing; give seconds above 0, or None for no expiry")


class CacheBackend(Protocol):
    """Bytes by key until they expire. Safe to call from several threads; every call is atomic."""

    def get(self, key: str) -> bytes | Missing:
        """The value last set and not expired, or `MISSING`. Reading never extends a life."""
        ...

    def set(self, key: str, value: bytes, ttl: float | None) -> None:
        """Store `value` for `ttl` seconds (None: no expiry); an older value and its expiry are replaced.

        Every limit holds when this returns, and `key` is there. Raises `TooLarge` for one value over its limit,
        `StoreFull` where a backend that keeps what it has finds no room, `ValueError` for a `ttl` that is not a finite
        number above 0; an older value under `key` is then untouched.
        """
        ...

    def delete(self, key: str) -> bool:
        """Forget `key`; True if it was there and had not expired."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed."""
        ...
