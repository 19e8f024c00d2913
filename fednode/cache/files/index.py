"""The accounts of a `FileBackend`: the shared index, and the order of use of what may be evicted."""

from math import inf

from fednode.cache.backend import Limits
from fednode.cache.entry_index import CacheEntry, EntryIndex


class FileEntry(CacheEntry):
    """One value in the folder, in the file called `name`."""

    __slots__ = ("name",)

    def __init__(self, name: str, size: int, expires_at: float = inf, *, pinned: bool = False) -> None:
        super().__init__(size, expires_at, pinned=pinned)
        self.name = name


class FileIndex(EntryIndex[FileEntry]):
    """An `EntryIndex` that knows the least recently used entry."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._order: dict[str, None] = {}
        """Keys that are not pinned, the least recently used first."""

    def add(self, key: str, entry: FileEntry) -> None:
        """Add `entry` as the most recently used."""
        super().add(key, entry)
        if not entry.pinned:
            self._order[key] = None

    def drop(self, key: str) -> FileEntry:
        """Take out the entry under `key`, which must be there."""
        self._order.pop(key, None)
        return super().drop(key)

    def used(self, key: str) -> None:
        """Make `key` the most recently used."""
        if key in self._order:
            del self._order[key]
            self._order[key] = None

    def victim(self, but: str | None = None) -> str | None:
        """The key to evict next, but never `but`; None if nothing may be evicted."""
        return next((key for key in self._order if key != but), None)

    def larger(self, value_bytes: int) -> list[str]:
        """The keys that may be evicted and whose values are over `value_bytes`."""
        return [key for key in self._order if self.entries[key].size > value_bytes]
