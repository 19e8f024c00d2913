"""The score (1 + w * count) / (1 + age / tau) with constants, over the least recent entries."""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from math import inf


class _Use:
    __slots__ = ("count", "key", "last")

    def __init__(self, key: str, now: float) -> None:
        self.key = key
        self.count = 0
        self.last = now


class Hybrid:
    """The lowest score among the `batch` least recently used goes; `age` is the time since the last use, in seconds.

    `tau` is an age at which a score has halved, `weight` what one read adds. No constants suit all loads: on agent
    sessions 1000 s loses up to 60 % of the hits of LRU. `Adaptive` is the same idea without them.
    """

    def __init__(self, weight: float = 0.1, tau: float = 1_000.0, batch: int = 16) -> None:
        if not (0 <= weight < inf and 0 < tau < inf and type(batch) is int and batch >= 1):
            raise ValueError(
                f"weight {weight}, tau {tau} s and batch {batch} give no score; use 0 or more, above 0 and a whole "
                "number from 1 on"
            )
        self.batch = batch
        self._weight = weight
        self._tau = tau
        self._uses: OrderedDict[str, _Use] = OrderedDict()

    def added(self, key: str, size: int, now: float) -> _Use:  # noqa: ARG002 - the protocol's
        """Take the key as the most recent, with a count of 0."""
        use = self._uses[key] = _Use(key, now)
        return use

    def used(self, marks: Iterable[_Use], now: float) -> None:
        """Count one more and make it the most recent."""
        for mark in marks:
            mark.count += 1
            mark.last = now
            self._uses.move_to_end(mark.key)

    def removed(self, mark: _Use) -> None:
        """Forget it."""
        del self._uses[mark.key]

    def victim(self, now: float) -> str | None:
        """The lowest score of the tail; among equals the least recent."""
        if not self._uses:
            return None
        weight, tau = self._weight, self._tau
        worst = min(
            islice(self._uses.values(), self.batch),
            key=lambda use: (1 + weight * use.count) / (1 + max(0.0, now - use.last) / tau),
        )
        del self._uses[worst.key]
        return worst.key
