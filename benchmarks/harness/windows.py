"""Seconds an operation over short windows in turn: what disturbs the machine disturbs all sides alike.

A low percentile is what the work costs where nothing else ran, the median what it costs on the machine as it is.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Final, Self

from fednode.clock import Clock

LEAST: Final = 5
_SHORT: Final = 0.001
_TRIED: Final = 16


@dataclass(frozen=True, slots=True)
class Side:
    """One of those compared: `work` is one window of `count` operations; `before` is not timed."""

    name: str
    work: Callable[[], object]
    count: int = 1
    before: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds an operation: the 10th percentile and the median over `windows` windows."""

    low: float
    middle: float
    windows: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self:
        """Return the spread of at least two windows."""
        return cls(quantiles(seconds, n=10, method="inclusive")[0], median(seconds), len(seconds))

    def over(self, other: "Spread") -> float:
        """Return how many times as long this takes as `other`: the worse of low by low and middle by middle."""
        return max(self.low / other.low, self.middle / other.middle)


def in_turn(clock: Clock, sides: Sequence[Side], windows: int) -> dict[str, Spread]:
    """Time `windows` windows of each side, one of each in turn, beginning with another side each time.

    One window of each goes first and does not count. Raises ValueError under five windows or for two sides of one name.
    """
    if windows < LEAST or len({side.name for side in sides}) != len(sides):
        raise ValueError(f"give at least {LEAST} windows, and each side a name of its own")
    taken: dict[str, list[float]] = {side.name: [] for side in sides}
    for side in sides:
        once(clock, side)
    gc.collect()
    for turn in range(windows):
        first = turn % len(sides)
        for side in (*sides[first:], *sides[:first]):
            taken[side.name].append(once(clock, side))
    return {name: Spread.of(seconds) for name, seconds in taken.items()}


def once(clock: Clock, side: Side) -> float:
    """Return the seconds an operation of one window."""
    side.before()
    start = clock.now()
    side.work()
    return (clock.now() - start) / side.count


def spreads_to_json(spreads: Mapping[str, Spread]) -> dict[str, Any]:
    """Return the spreads by side as JSON holds them."""
    return {name: asdict(spread) for name, spread in spreads.items()}


def spreads_from_json(found: Mapping[str, Any]) -> dict[str, Spread]:
    """Undo `spreads_to_json`."""
    return {name: Spread(**spread) for name, spread in found.items()}


class OverKeys:
    """Calls `operation` with the next `count` of `keys` at each window, from `start` on and round again.

    Sides that share keys start at different ones: what one has just touched is not warm for the next.
    """

    def __init__(self, operation: Callable[[str], object], keys: Sequence[str], count: int, start: int = 0) -> None:
        if not 1 <= count <= len(keys):
            raise ValueError("a window is at least one key and at most all of them")
        self._operation = operation
        self._windows = [keys[first : first + count] for first in range(0, len(keys) - count + 1, count)]
        self._next = start // count % len(self._windows)

    def __call__(self) -> None:
        """Do one window."""
        operation = self._operation
        for key in self._windows[self._next]:
            operation(key)
        self._next = (self._next + 1) % len(self._windows)


def count_for(clock: Clock, operation: Callable[[str], object], keys: Sequence[str], most: int) -> int:
    """Return how many operations make a window of about a millisecond, at most `most`; tries them on a few keys."""
    count = min(_TRIED, len(keys))
    tried = Side("tried", OverKeys(operation, keys, count), count)
    once(clock, tried)
    each = max(once(clock, tried), 1e-9)
    return max(1, min(most, len(keys), int(_SHORT / each)))
