"""Row `sweep`: a sweep of 100,000 expired among 1,000,000, and the bare work of it: heappop and dict.pop."""

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any, Final

from benchmarks.cache import stores
from benchmarks.harness.windows import Side, Spread, in_turn, once, spreads_to_json
from fednode.clock import Clock, SystemClock

SWEEP: Final = "sweep"
BARE: Final = "heappop and dict.pop"
IDLE: Final = "sweep of nothing among all"
EMPTY: Final = "sweep of an empty cache"
LIFE: Final = 3_600.0

_SEED: Final = 20_260_101


def work(entries: int, expired: int, repeats: int, windows: int) -> dict[str, Any]:
    """Answer the seconds an expired entry over `repeats` sweeps, and those of a sweep where nothing has expired.

    Each sweep finds `expired` entries due among `entries`; as many new ones take their places before the next.
    Raises RuntimeError where a sweep does not free exactly what is due.
    """
    clock = SystemClock()
    race = _Race(clock, entries, expired, Random(_SEED))
    race.fill()
    taken: dict[str, list[float]] = {SWEEP: [], BARE: []}
    for number in range(repeats):
        for name, seconds in race.turn(number):
            taken[name].append(seconds)
    spreads = {name: Spread.of(seconds) for name, seconds in taken.items()}
    return {"spreads": spreads_to_json({**spreads, **_idle(clock, race, windows)}), "freed_idle": race.sweep()}


def _idle(clock: Clock, race: "_Race", windows: int) -> dict[str, Spread]:
    empty = stores.memory(stores.ManualClock(), race.entries)
    sides = [Side(IDLE, _often(race.sweep), _OFTEN), Side(EMPTY, _often(empty.sweep), _OFTEN)]
    return in_turn(clock, sides, windows)


_OFTEN: Final = 100


def _often(work: Callable[[], int]) -> Callable[[], None]:
    def window() -> None:
        for _ in range(_OFTEN):
            work()

    return window


class _Race:
    """The same keys and lives on both sides: a backend on a clock of its own, and a dict beside a heap."""

    def __init__(self, clock: Clock, entries: int, expired: int, choice: Random) -> None:
        self._clock, self.entries, self._expired, self._choice = clock, entries, expired, choice
        self._time = stores.ManualClock()
        self._backend = stores.memory(self._time, entries)
        self._bare: dict[str, bytes] = {}
        self._heap: list[tuple[float, str]] = []
        self._names = (f"session/{number:09d}" for number in count())
        self.sweep = self._backend.sweep

    def fill(self) -> None:
        """Set all entries: the first to expire in the first life, the next in the second, and so on."""
        for group in range(-(-self.entries // self._expired)):
            self._add(group)

    def _add(self, group: int) -> None:
        # lives lie anywhere inside the group's hour, and the groups are due one after another
        for _ in range(self._expired):
            key, value = next(self._names), b"value"
            due = LIFE * (group + self._choice.random())
            self._backend.set(key, value, due - self._time.now() + LIFE)
            self._bare[key] = value
            heapq.heappush(self._heap, (due + LIFE, key))

    def turn(self, number: int) -> Iterator[tuple[str, float]]:
        """Yield the seconds an entry of each side, the one that goes first changing by turns; then fill up."""
        self._time.at = LIFE * (number + 2)
        sides = [Side(SWEEP, self._swept, self._expired), Side(BARE, self._popped, self._expired)]
        for side in sides if number % 2 else reversed(sides):
            yield side.name, once(self._clock, side)
        self._add(number + -(-self.entries // self._expired))

    def _swept(self) -> None:
        freed = self.sweep()
        if freed != self._expired:
            raise RuntimeError(f"a sweep freed {freed} of {self._expired} expired entries, so the row is not measured")

    def _popped(self) -> None:
        heap, bare, now, pop = self._heap, self._bare, self._time.now(), heapq.heappop
        while heap and heap[0][0] <= now:
            bare.pop(pop(heap)[1])
