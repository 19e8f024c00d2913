"""A score of uses against age, with a `tau` that follows the load: the default policy."""

from collections.abc import Callable, Iterable
from typing import Final

from fednode.cache.memory.policies.protocol import Use

_COUNT: Final = 3
"""Further reads add nothing to a score, or an entry that was read often and then abandoned would stay for ever."""
_WEIGHT: Final = 0.2
"""What one read adds to a score; measured from 0.1 to 0.3 on dialogue traces."""
_SMOOTHING: Final = 0.01
_SHARES: Final = tuple(1 / (1 + _WEIGHT * count) for count in range(_COUNT + 1))
"""The factor for an age after so many reads."""


class Adaptive:
    """Evicts the lowest score (1 + 0.2 * min(count, 3)) / (1 + age / tau) of `batch` entries drawn at random.

    `age` is seconds since the last use, `tau` the smoothed age of the entries that were evicted. `random` draws from
    [0, 1). Every step is O(1), and a read moves nothing.
    """

    def __init__(self, random: Callable[[], float], batch: int = 16) -> None:
        self.batch = batch
        self.tau = 0.0
        self._random = random
        self._uses: list[Use] = []

    def added(self, key: str, size: int, now: float) -> Use:
        """Add the key with a count of 0."""
        use = Use(key, size, now, len(self._uses))
        self._uses.append(use)
        return use

    def used(self, marks: Iterable[Use], now: float) -> None:
        """Count one read more, up to the cap."""
        for mark in marks:
            mark.last = now
            if mark.count < _COUNT:
                mark.count += 1

    def removed(self, mark: Use) -> None:
        """Forget it; the last entry takes its place."""
        last = self._uses.pop()
        if last is not mark:
            self._uses[mark.place] = last
            last.place = mark.place

    def victim(self, now: float) -> str | None:
        """Evict the lowest score of `batch` entries drawn at random, or of all if there are no more."""
        uses, draw = self._uses, self._random
        if not uses:
            return None
        held, tau = len(uses), self.tau
        drawn = uses if held <= self.batch else [uses[int(draw() * held)] for _ in range(self.batch)]
        # the reciprocal of the score, times tau, which may be 0: the highest goes
        worst = max(drawn, key=lambda use: (tau + now - use.last) * _SHARES[use.count])
        age = max(0.0, now - worst.last)
        self.tau += (age - tau) * (_SMOOTHING if tau else 1.0)
        self.removed(worst)
        return worst.key
