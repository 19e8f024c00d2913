"""Row `array`: setting arrays of 1 MB, isolated from their caller, and np.copyto into memory that is kept."""

from collections.abc import Callable
from itertools import cycle
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.cache import stores
from benchmarks.harness.windows import Side, in_turn, spreads_to_json
from fednode.cache import CacheBackend
from fednode.clock import SystemClock

SET: Final = "set"
KEPT: Final = "np.copyto into kept memory"
FRESH: Final = "ndarray.copy"
PLACES: Final = 16
SOURCES: Final = 4
VALUES: Final = (1 << 20) // 4

Floats = NDArray[np.float32]


def work(windows: int) -> dict[str, Any]:
    """Answer the seconds a megabyte: 4 arrays in turn into 16 places in turn, on each side.

    Raises RuntimeError where what is stored changes with the caller's array.
    """
    clock = SystemClock()
    backend = stores.memory(clock)
    _check_isolated(backend)
    kept = [np.zeros(VALUES, np.float32) for _ in range(PLACES)]
    fresh: list[Floats | None] = [None] * PLACES
    names = stores.names(PLACES)

    def copy(place: int, source: Floats) -> None:
        fresh[place] = source.copy()

    sides = [
        Side(SET, _window(lambda place, source: backend.set(names[place], source, None)), PLACES),
        Side(KEPT, _window(lambda place, source: np.copyto(kept[place], source)), PLACES),
        Side(FRESH, _window(copy), PLACES),
    ]
    return {"spreads": spreads_to_json(in_turn(clock, sides, windows))}


def _window(into: Callable[[int, Floats], object]) -> Callable[[], None]:
    sources = [np.full(VALUES, number, np.float32) for number in range(SOURCES)]

    def window() -> None:
        for place, source in zip(range(PLACES), cycle(sources), strict=False):
            into(place, source)

    return window


def _check_isolated(backend: CacheBackend) -> None:
    mine = np.ones(VALUES, np.float32)
    backend.set("isolated", mine, None)
    mine[:] = 2.0
    found = backend.get("isolated")
    backend.delete("isolated")
    if not (isinstance(found, np.ndarray) and found.min() == found.max() == 1.0):
        raise RuntimeError("a caller's array reaches what is stored, so the row is not measured")
