"""What expires when: a heap that keeps items of older values until they are due, or too many."""

import heapq
from collections.abc import Iterable
from typing import Final, TypeVar

_Number = TypeVar("_Number", int, bytes)

_SLACK: Final = 64
"""Stale items that are tolerated before the heap is made anew, on top of one for each live one."""


class Expiries(list[tuple[float, _Number, str]]):
    """Items of a time, the number of a value and its key, the next first. For use under its owner's lock.

    An overwritten or deleted key leaves an item behind that speaks of an older value: its number says so.
    """

    __slots__ = ()

    @classmethod
    def of(cls, items: Iterable[tuple[float, _Number, str]]) -> "Expiries[_Number]":
        """A heap of these."""
        heap = cls(items)
        heapq.heapify(heap)
        return heap

    def add(self, expires_at: float, number: _Number, key: str) -> None:
        """Take one in."""
        heapq.heappush(self, (expires_at, number, key))

    def is_overgrown(self, live: int) -> bool:
        """Whether it is time to make the heap anew, where at most `live` values expire at all."""
        return len(self) > 2 * live + _SLACK

    def is_due(self, now: float) -> bool:
        """Whether the first is due by `now`."""
        return bool(self) and self[0][0] <= now
