"""S3-FIFO: three queues, and no work on a read but one small count.

Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

_COUNT: Final = 3
_SMALL: Final = 0.1
"""The share of the bytes held that the queue of newcomers may have before it has to give."""
_PROMOTED: Final = 2
"""Reads in the small queue that take an entry to the main one."""


class _Use:
    __slots__ = ("count", "key", "main", "size")

    def __init__(self, key: str, size: int, *, main: bool) -> None:
        self.key = key
        self.size = size
        self.count = 0
        self.main = main


class S3Fifo:
    """Newcomers that nobody reads go soon; keys that come back after that go to the main queue at once.

    The keys of those that went are remembered, as many as there are entries.
    """

    def __init__(self) -> None:
        self.batch = 1
        self._small: OrderedDict[str, _Use] = OrderedDict()
        self._main: OrderedDict[str, _Use] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._small_bytes = 0
        self._bytes = 0

    def added(self, key: str, size: int, now: float) -> _Use:  # noqa: ARG002 - the protocol's
        """Queue the key as a newcomer, or in the main queue if it went from the small one not long ago."""
        # a byte more: a queue of empty values has a length too
        use = _Use(key, size + 1, main=key in self._gone)
        self._gone.pop(key, None)
        self._queue(use)
        self._bytes += use.size
        return use

    def used(self, marks: Iterable[_Use], now: float) -> None:  # noqa: ARG002 - the protocol's
        """Count one more, up to the cap."""
        for mark in marks:
            if mark.count < _COUNT:
                mark.count += 1

    def removed(self, mark: _Use) -> None:
        """Forget it."""
        if mark.main:
            del self._main[mark.key]
        else:
            del self._small[mark.key]
            self._small_bytes -= mark.size
        self._bytes -= mark.size

    def victim(self, now: float) -> str | None:  # noqa: ARG002 - the protocol's
        """The oldest newcomer nobody came back to, or the oldest of the main queue that was not read since."""
        while self._small or self._main:
            if self._small and (self._small_bytes > _SMALL * self._bytes or not self._main):
                use = self._from_small()
            else:
                use = self._from_main()
            if use is not None:
                self._bytes -= use.size
                return use.key
        return None

    def _from_small(self) -> _Use | None:
        key, use = self._small.popitem(last=False)
        self._small_bytes -= use.size
        if use.count >= _PROMOTED:
            use.main, use.count = True, 0
            self._queue(use)
            return None
        self._gone[key] = None
        while len(self._gone) > len(self._small) + len(self._main):
            self._gone.popitem(last=False)
        return use

    def _from_main(self) -> _Use | None:
        key, use = self._main.popitem(last=False)
        if use.count:
            use.count -= 1
            self._main[key] = use
            return None
        return use

    def _queue(self, use: _Use) -> None:
        if use.main:
            self._main[use.key] = use
        else:
            self._small[use.key] = use
            self._small_bytes += use.size
