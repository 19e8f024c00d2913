"""The changes of a namespace as its server tells of them, for a near cache."""

from collections.abc import Callable
from typing import NamedTuple

from fednode.cache.redis.address import Names
from fednode.cache.redis.client import Tracking


class Changes(NamedTuple):
    """Keys that changed on the server; `everything`: nothing is certain any more; `probed`: a probe came back."""

    keys: tuple[str, ...] = ()
    everything: bool = False
    probed: bool = False


class Feed:
    """The changes of one namespace, whoever makes them. For one thread; `close` from any."""

    def __init__(self, tracking: Tracking, names: Names, write_probe: Callable[[], None]) -> None:
        self._tracking = tracking
        self._names = names
        self._write_probe = write_probe

    def probe(self) -> None:
        """Write something that the feed must tell of. Raises `StoreError`."""
        self._write_probe()

    def wait(self, seconds: float) -> Changes | None:
        """What the next message says; None if `seconds` pass. Raises `StoreError` where nothing will come any more."""
        names = self._tracking.wait(seconds)
        if names == ():
            return None
        if names is None:
            return Changes(everything=True)
        keys = tuple(key for name in names if (key := self._names.key(name)) is not None)
        return Changes(keys, probed=any(name.startswith(self._names.probe("")) for name in names))

    def close(self) -> None:
        """End it."""
        self._tracking.close()
