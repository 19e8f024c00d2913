"""Time is an argument: deadlines read `now`, records read `time`, waiting is `sleep`."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the node may know of time."""

    def now(self) -> float:
        """Seconds on a monotonic clock: for deadlines and expiry."""
        ...

    def time(self) -> float:
        """Seconds since 1970, UTC: for records that people read."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds on the machine's monotonic clock."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since 1970, UTC."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait for real."""
        time.sleep(seconds)


class SkippingClock(SystemClock):
    """A clock on which waiting takes no time: for a run in one process, where nobody is far away.

    `sleep` moves `now` forward at once, so deadlines pass as they would on a network and a slow peer costs no wall
    time.
    """

    def __init__(self) -> None:
        self._skipped = 0.0

    def now(self) -> float:
        """The machine's monotonic clock plus all that was slept."""
        return super().now() + self._skipped

    def sleep(self, seconds: float) -> None:
        """Move `now` forward by `seconds` and return at once."""
        self._skipped += seconds
