"""How long a piece of work takes: a median after a first run that is counted apart."""

import resource
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Self

from fednode.clock import Clock


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often to measure: at least `least` times, then on until `seconds` are spent, at most `most` times."""

    least: int = 5
    seconds: float = 0.3
    most: int = 25

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most or self.seconds < 0:
            raise ValueError("repeats need 1 <= least <= most and seconds of at least 0")


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one core for one piece of work: `median` and `best` of `runs`.

    `warm_up` is the first run, `wall` the median of the others, both on the wall clock. On a quiet machine `wall` is
    close to `median`; on a busy one it says more about the other programs.
    """

    median: float
    best: float
    runs: int
    warm_up: float
    wall: float

    def times(self, count: int) -> Self:
        """Return the time of doing it `count` times; the first run stays one."""
        return replace(self, median=self.median * count, best=self.best * count, wall=self.wall * count)

    def plus(self, other: "Timing") -> Self:
        """Return the time of doing this and then `other`, each measured by itself."""
        return type(self)(
            self.median + other.median,
            self.best + other.best,
            min(self.runs, other.runs),
            self.warm_up + other.warm_up,
            self.wall + other.wall,
        )


def core_seconds() -> float:
    """Return the seconds that this process has spent on a core, user and system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Measures on a clock and on the core. The garbage collector stays on, as in a real run."""

    clock: Clock
    repeats: Repeats
    cores: Callable[[], float] = core_seconds

    def time(self, work: Callable[[], object], before: Callable[[], object] = lambda: None) -> Timing:
        """Run `work` once to warm up, then as often as `repeats` says, and return the medians.

        `before` runs ahead of each; it, and dropping what `work` returns, is outside the measured time.
        """
        _, warm_up = self._once(work, before)
        core: list[float] = []
        wall: list[float] = []
        repeats = self.repeats
        while len(core) < repeats.least or (len(core) < repeats.most and sum(core) < repeats.seconds):
            on_core, took = self._once(work, before)
            core.append(on_core)
            wall.append(took)
        return Timing(median(core), min(core), len(core), warm_up, median(wall))

    def _once(self, work: Callable[[], object], before: Callable[[], object]) -> tuple[float, float]:
        before()
        start, used = self.clock.now(), self.cores()
        result = work()
        on_core, took = self.cores() - used, self.clock.now() - start
        del result
        return on_core, took
