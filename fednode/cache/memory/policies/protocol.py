"""What an eviction policy is: it chooses which entry goes, and sees only keys, sizes and times, never values."""

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

Mark: TypeAlias = Any
"""What a policy keeps of one entry. The cache only hands it back."""


class Policy(Protocol):
    """Chooses victims among the entries it was given; it never sees pinned ones.

    `now` is seconds on the cache's clock. Not thread-safe: the cache calls it under its own lock. A mark that `added`
    returned is valid until it is passed to `removed`, or `victim` returns its key.
    """

    batch: int
    """How many candidates a victim is chosen from; ignored by policies that keep a strict order."""

    def added(self, key: str, size: int, now: float) -> Mark:
        """An entry of `size` bytes was added under a new key; its count of uses is 0."""
        ...

    def used(self, marks: Iterable[Mark], now: float) -> None:
        """Each of these entries was read, in this order."""
        ...

    def removed(self, mark: Mark) -> None:
        """The entry expired, was deleted, or is replaced by a new value."""
        ...

    def victim(self, now: float) -> str | None:
        """Choose a key to evict and forget it; None if there is no entry."""
        ...


class Use:
    """The mark of policies that count: an entry's reads, the time of the last one, and its place in the policy."""

    __slots__ = ("count", "key", "last", "place", "size")

    def __init__(self, key: str, size: int, now: float, place: int = 0) -> None:
        self.key = key
        self.size = size
        self.count = 0
        self.last = now
        self.place = place
