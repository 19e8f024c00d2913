"""S3-FIFO: three queues, and no work on a read but one small count.

Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from fednode.cache.memory.policies.protocol import Use

_NEW, _MAIN = 0, 1
"""The places of an entry: the small queue of newcomers, or the main queue."""
_COUNT: Final = 3
_SMALL: Final = 0.1
"""The share of the bytes that the queue of newcomers may have before entries go from there."""
_PROMOTED: Final = 2
"""Reads in the small queue that move an entry to the main one."""


class S3Fifo:
    """Evicts newcomers that nobody reads soon; a key that comes back after that goes to the main queue at once.

    It remembers as many evicted keys as there are entries.
    """

    def __init__(self) -> None:
        self.batch = 1
        self._small: OrderedDict[str, Use] = OrderedDict()
        self._main: OrderedDict[str, Use] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._small_bytes = 0
        self._bytes = 0

    def added(self, key: str, size: int, now: float) -> Use:
        """Queue the key as a newcomer, or in the main queue if it was evicted from the small one not long ago."""
        # one byte more, so that a queue of empty values has a length
        use = Use(key, size + 1, now, _MAIN if key in self._gone else _NEW)
        self._gone.pop(key, None)
        self._queue(use)
        self._bytes += use.size
        return use

    def used(self, marks: Iterable[Use], now: float) -> None:  # noqa: ARG002 - the protocol's
        """Count one read more, up to the cap."""
        for mark in marks:
            if mark.count < _COUNT:
                mark.count += 1

    def removed(self, mark: Use) -> None:
        """Forget it."""
        if mark.place == _MAIN:
            del self._main[mark.key]
        else:
            del self._small[mark.key]
            self._small_bytes -= mark.size
        self._bytes -= mark.size

    def victim(self, now: float) -> str | None:  # noqa: ARG002 - the protocol's
        """Evict the oldest newcomer that was hardly read, or the oldest of the main queue not read since."""
        while self._small or self._main:
            if self._small and (self._small_bytes > _SMALL * self._bytes or not self._main):
                use = self._from_small()
            else:
                use = self._from_main()
            if use is not None:
                self._bytes -= use.size
                return use.key
        return None

    def _from_small(self) -> Use | None:
        key, use = self._small.popitem(last=False)
        self._small_bytes -= use.size
        if use.count >= _PROMOTED:
            use.place, use.count = _MAIN, 0
            self._queue(use)
            return None
        self._gone[key] = None
        while len(self._gone) > len(self._small) + len(self._main):
            self._gone.popitem(last=False)
        return use

    def _from_main(self) -> Use | None:
        key, use = self._main.popitem(last=False)
        if use.count:
            use.count -= 1
            self._main[key] = use
            return None
        return use

    def _queue(self, use: Use) -> None:
        if use.place == _MAIN:
            self._main[use.key] = use
        else:
            self._small[use.key] = use
            self._small_bytes += use.size
