"""What a policy is: it says which entry goes, and sees of the entries their keys, sizes and times only."""

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

Mark: TypeAlias = Any
"""What a policy keeps of one entry. The cache hands it back and looks into it no further."""


class Policy(Protocol):
    """Chooses victims among the entries it was told of; pinned entries are never shown to it.

    `now` is in seconds on the cache's clock. Not thread-safe: the cache calls it under its own lock. Each mark that
    `added` returned is valid until `removed` was given it, or `victim` chose its key.
    """

    batch: int
    """How many candidates a victim is chosen from; without meaning for a policy whose order alone says who goes."""

    def added(self, key: str, size: int, now: float) -> Mark:
        """An entry of `size` bytes came, under a key that the policy does not hold; its count of uses is 0."""
        ...

    def used(self, marks: Iterable[Mark], now: float) -> None:
        """Each of these entries was read, in this order."""
        ...

    def removed(self, mark: Mark) -> None:
        """The entry expired, was deleted, or makes way for a new value under its key."""
        ...

    def victim(self, now: float) -> str | None:
        """The key that has to go, which the policy has then forgotten; None if it holds nothing."""
        ...
