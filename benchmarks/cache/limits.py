"""What the cache must hold, each limit with the figure it is held against. A small run is not judged."""

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.cache import array, hot, many, sweep
from benchmarks.cache.invalidation import BATCH, ONE_BY_ONE, ROUND_TRIP
from benchmarks.cache.suite import JUDGED_POLICIES
from benchmarks.cache.updates import ROOM
from benchmarks.harness.suite import Measured
from benchmarks.harness.verdicts import LimitCheck, Verdict, either, figure, with_broken
from benchmarks.harness.windows import Spread, spreads_from_json
from benchmarks.trace.suite import Ratios

STARVED: Final = 5_000
"""Entries up to which the default policy has to be better than LRU by a margin at one size at least."""


def judged(measured: Measured) -> tuple[Verdict, ...]:
    """Return a verdict for each thing that must hold; open where this run did not measure it in full.

    A row that broke fails, in a small run too.
    """
    found = _Found(measured.answers if measured.full else {})
    return with_broken((*_times(found), *_others(found)), measured.broken)


def _times(found: "_Found") -> tuple[Verdict, ...]:
    over, times = found.over, found.times
    return (
        Verdict("hot", "hot get, 64 B, all rules", (
            either(
                LimitCheck("one", figure(lambda: 1e6 * found.side("hot", hot.BARE).middle), "<=", 0.8, "us"),
                LimitCheck("of cachetools TTL under a lock", over("hot", hot.BARE, hot.LOCKED), "<=", 0.5, "x"),
            ),
            LimitCheck("in the default wrappers, of the same", over("hot", hot.WRAPPED, hot.LOCKED), "<=", 0.6, "x"),
        )),
        Verdict("many", "get_many of 1,000 keys", (
            LimitCheck("faster than the loop over get", times("many", many.TOGETHER, many.LOOP), ">=", 2.0, "x"),
        )),
        Verdict("array", "set of a 1 MB array, isolated", (
            LimitCheck("of np.copyto's speed", times("array", array.SET, array.KEPT), ">=", 0.8, "x"),
        )),
        Verdict("invalidation", "invalidating 7 sharers, 64 keys", (
            LimitCheck("of a round trip with all", over("invalidation", BATCH, ROUND_TRIP), "<=", 2.0, "x"),
            LimitCheck("a batch cheaper than key by key", times("invalidation", BATCH, ONE_BY_ONE), ">=", 20.0, "x"),
        )),
        Verdict("sweep", "sweep of 100,000 expired among 1,000,000", (
            LimitCheck("of bare heappop and dict.pop", over("sweep", sweep.SWEEP, sweep.BARE), "<=", 1.5, "x"),
            LimitCheck(
                "nothing expired, of an empty cache's sweep", over("sweep", sweep.IDLE, sweep.EMPTY), "<=", 2.0, "x"
            ),
        )),
    )  # fmt: skip


def _others(found: "_Found") -> tuple[Verdict, ...]:
    return (
        Verdict("trace", "default policy over LRU on a trace", (
            LimitCheck("at its worst size and seed", figure(found.under_lru), ">=", -1.0, "%"),
            LimitCheck(f"at its best size up to {STARVED:,}", figure(found.over_lru), ">=", 3.0, "%"),
        )),
        Verdict("updates", "update store, 200 clients", tuple(
            LimitCheck(f"lost at {room} x of a round, all policies", found.lost(room), "<=", 0) for room in ROOM
        )),
        Verdict("frozen", "frozen half of a model, 20 rounds", (
            LimitCheck("download of sending all", figure(lambda: found.answers["frozen"]["ratio"]), "<=", 0.55, "x"),
        )),
    )  # fmt: skip


class _Found:
    """The judged figures; what this run did not measure raises LookupError or is None."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers

    def side(self, row: str, name: str) -> Spread:
        return spreads_from_json(self.answers[row]["spreads"])[name]

    def over(self, row: str, side: str, other: str) -> float | None:
        """How many times as long `side` takes as `other`."""
        return figure(lambda: self.side(row, side).over(self.side(row, other)))

    def times(self, row: str, side: str, other: str) -> float | None:
        """How many times as fast `side` is as `other`."""
        over = self.over(row, side, other)
        return None if over is None else 1 / over

    def under_lru(self) -> float:
        return min(100 * ratios.low for ratios in self._over_lru().values())

    def over_lru(self) -> float:
        starved = [100 * ratios.middle for size, ratios in self._over_lru().items() if size <= STARVED]
        if not starved:
            raise LookupError("sizes")
        return max(starved)

    def _over_lru(self) -> dict[int, Ratios]:
        replayed = self.answers["trace"]
        over = {size: replayed.over_reference(JUDGED_POLICIES[-1], size) for size in replayed.belady}
        found = {size: ratios for size, ratios in over.items() if ratios is not None}
        if not found:
            raise LookupError("trace")
        return found

    def lost(self, room: float) -> float | None:
        runs = [run["lost"] for run in self.answers.get("updates", {}).get("runs", ()) if run["room"] == room]
        return float(sum(runs)) if runs else None
