"""Counters that many threads raise at once: exact under the GIL, and without a lock where they are raised by one."""

import itertools
from threading import Lock

from fednode.cache.fork_safety import refuse_after_fork


class EventCounter:
    """A number that only grows. `next(counter.ones)` raises it by one, in a single call into C.

    Reading takes a lock and counts its own calls out again.
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
        """The number so far."""
        with self._lock:
            self._reads += 1
            return next(self.ones) - (self._reads - 1) + self._more
