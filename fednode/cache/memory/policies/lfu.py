"""Least frequently used, by exact counts while an entry is held."""

from collections import OrderedDict
from collections.abc import Iterable

from fednode.cache.memory.policies.protocol import Use


class Lfu:
    """Evicts the entry with the fewest reads, among equals the one that reached its count first. All steps O(1)."""

    def __init__(self) -> None:
        self.batch = 1
        self._by_count: dict[int, OrderedDict[str, None]] = {}
        self._least = 0

    def added(self, key: str, size: int, now: float) -> Use:
        """Add the key with a count of 0."""
        use = Use(key, size, now)
        self._insert(use)
        self._least = 0
        return use

    def used(self, marks: Iterable[Use], now: float) -> None:  # noqa: ARG002 - the protocol's
        """Count one read more."""
        for mark in marks:
            self.removed(mark)
            mark.count += 1
            self._insert(mark)

    def removed(self, mark: Use) -> None:
        """Forget it."""
        keys = self._by_count[mark.count]
        del keys[mark.key]
        if not keys:
            del self._by_count[mark.count]

    def victim(self, now: float) -> str | None:  # noqa: ARG002 - the protocol's
        """Evict the first of the lowest count."""
        if not self._by_count:
            return None
        keys = self._by_count.get(self._least)
        if keys is None:
            self._least = min(self._by_count)
            keys = self._by_count[self._least]
        key, _ = keys.popitem(last=False)
        if not keys:
            del self._by_count[self._least]
        return key

    def _insert(self, use: Use) -> None:
        keys = self._by_count.get(use.count)
        if keys is None:
            keys = self._by_count[use.count] = OrderedDict()
        keys[use.key] = None
