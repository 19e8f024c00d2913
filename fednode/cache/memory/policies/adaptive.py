"""The hybrid score with a tau that follows the load: the default policy."""

from collections.abc import Callable, Iterable
from typing import Final

_COUNT: Final = 3
"""Reads beyond these add nothing to a score: without the cap an entry read often and then abandoned stays for ever."""
_WEIGHT: Final = 0.2
"""What one read adds to a score; measured from 0.1 to 0.3 on dialogue traces."""
_SMOOTHING: Final = 0.01
_SHARES: Final = tuple(1 / (1 + _WEIGHT * count) for count in range(_COUNT + 1))
"""What an age is worth after so many reads."""


class _Use:
    __slots__ = ("count", "key", "last", "place")

    def __init__(self, key: str, now: float, place: int) -> None:
        self.key = key
        self.count = 0
        self.last = now
        self.place = place


class Adaptive:
    """The lowest score (1 + 0.2 * min(count, 3)) / (1 + age / tau) of `batch` entries drawn at random goes.

    `tau` is the smoothed age at which entries are evicted, in seconds since their last use. `random` draws from [0, 1).
    Every step is O(1), and a read does not move anything.
    """

    def __init__(self, random: Callable[[], float], batch: int = 16) -> None:
        self.batch = batch
        self.tau = 0.0
        self._random = random
        self._uses: list[_Use] = []

    def added(self, key: str, size: int, now: float) -> _Use:  # noqa: ARG002 - the protocol's
        """Take the key with a count of 0."""
        use = _Use(key, now, len(self._uses))
        self._uses.append(use)
        return use

    def used(self, marks: Iterable[_Use], now: float) -> None:
        """Count one more, up to the cap."""
        for mark in marks:
            mark.last = now
            if mark.count < _COUNT:
                mark.count += 1

    def removed(self, mark: _Use) -> None:
        """Forget it: the last one takes its place."""
        last = self._uses.pop()
        if last is not mark:
            self._uses[mark.place] = last
            last.place = mark.place

    def victim(self, now: float) -> str | None:
        """The lowest score of those drawn; of all, where there are no more than `batch`."""
        uses, draw = self._uses, self._random
        if not uses:
            return None
        held, tau = len(uses), self.tau
        drawn = uses if held <= self.batch else [uses[int(draw() * held)] for _ in range(self.batch)]
        # the highest of these is the lowest score, and tau may be 0
        worst = max(drawn, key=lambda use: (tau + now - use.last) * _SHARES[use.count])
        age = max(0.0, now - worst.last)
        self.tau += (age - tau) * (_SMOOTHING if tau else 1.0)
        self.removed(worst)
        return worst.key
