"""The changes of a namespace as its server reports them, for a near cache."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fednode.cache.redis.address import Names

if TYPE_CHECKING:
    from fednode.cache.redis.redis_py import Tracking


class Changes(NamedTuple):
    """Keys that changed on the server. `everything`: any key may have changed; `probed`: a probe was reported."""

    keys: tuple[str, ...] = ()
    everything: bool = False
    probed: bool = False


class Feed:
    """The changes of one namespace, whoever makes them. For one thread; any thread may `close` it."""

    def __init__(self, tracking: "Tracking", names: Names, write_probe: Callable[[], None]) -> None:
        self._tracking = tracking
        self._names = names
        self._write_probe = write_probe

    def probe(self) -> None:
        """Write a key that the feed must report. Raises `StoreError`."""
        self._write_probe()

    def wait(self, seconds: float) -> Changes | None:
        """The next message; None if `seconds` pass without one. Raises `StoreError` if the connection is gone."""
        names = self._tracking.wait(seconds)
        if names == ():
            return None
        if names is None:
            return Changes(everything=True)
        keys = tuple(key for name in names if (key := self._names.key(name)) is not None)
        return Changes(keys, probed=any(name.startswith(self._names.probe("")) for name in names))

    def close(self) -> None:
        """Close the connection."""
        self._tracking.close()
