"""Strict least recently used."""

from collections import OrderedDict
from collections.abc import Iterable


class Lru:
    """Evicts the least recently used entry; reading and writing both count as a use."""

    def __init__(self) -> None:
        self.batch = 1
        self._order: OrderedDict[str, None] = OrderedDict()

    def added(self, key: str, size: int, now: float) -> str:  # noqa: ARG002 - the protocol's
        """Add the key as the most recent."""
        self._order[key] = None
        return key

    def used(self, marks: Iterable[str], now: float) -> None:  # noqa: ARG002 - the protocol's
        """Make each the most recent again."""
        touch = self._order.move_to_end
        for mark in marks:
            touch(mark)

    def removed(self, mark: str) -> None:
        """Forget it."""
        del self._order[mark]

    def victim(self, now: float) -> str | None:  # noqa: ARG002 - the protocol's
        """Evict the least recent."""
        return self._order.popitem(last=False)[0] if self._order else None
