"""Counters that many threads raise at once: exact under the GIL, and without a lock where they are raised by one."""

import itertools
from threading import Lock

from fednode.cache.fork_safety import refuse_after_fork


class Tally:
    """A number that only grows. `next(tally.ones)` raises it by one: a single call into C, so no thread comes between.

    Reading takes a lock and costs more, since it counts itself out again.
    """

    __slots__ = ("__weakref__", "_lock", "_more", "_reads", "ones")

    def __init__(self) -> None:
        self.ones = itertools.count()
        self._lock = Lock()
        self._reads = 0
        self._more = 0
        refuse_after_fork(self, "_lock")

    def one(self) -> None:
        """Raise it by one, where the cost of a method does not matter."""
        next(self.ones)

    def add(self, number: int) -> None:
        """Raise it by `number`."""
        with self._lock:
            self._more += number

    @property
    def value(self) -> int:
        """What it was raised by so far."""
        with self._lock:
            # stored before the call, with nothing in between where an interrupt could come
            reads = self._reads
            self._reads = reads + 1
            return next(self.ones) - reads + self._more
