"""What the cache must hold, each limit with the figure it is held against; nothing is judged on a small run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from benchmarks.cache import array, hot, many, sweep
from benchmarks.cache.invalidation import BATCH, ONE_BY_ONE, ROUND_TRIP
from benchmarks.cache.suite import JUDGED_POLICIES, Measured
from benchmarks.cache.updates import ROOM
from benchmarks.harness.verdicts import Check, Outcome, Verdict
from benchmarks.harness.windows import Spread

STARVED: Final = 5_000
"""Entries up to which the default policy has to be better than LRU by a margin at one size at least."""


_GET_US: Final = 0.8
_OF_LOCKED: Final = 0.5
_WRAPPED_OF_LOCKED: Final = 0.6
_TOGETHER: Final = 2.0
_OF_COPY: Final = 0.8
_NEVER_UNDER: Final = -1.0
_OVER_SOMEWHERE: Final = 3.0
_OF_ALL: Final = 0.55
_OF_ROUND_TRIP: Final = 2.0
_BATCHED: Final = 20.0
_OF_BARE: Final = 1.5
_IDLE: Final = 2.0


def judged(measured: Measured) -> tuple[Verdict, ...]:
    """Return a verdict for each thing that must hold; open where this run did not measure it in full.

    A row that broke fails, in a small run too.
    """
    answers = measured.answers if measured.judged else {}
    whole = measured if measured.judged else Measured()
    verdicts = {
        "hot": _hot(spreads(answers.get("hot"))),
        "many": _many(spreads(answers.get("many"))),
        "array": _array(spreads(answers.get("array"))),
        "trace": _trace(whole),
        "updates": _updates(answers.get("updates")),
        "frozen": _frozen(answers.get("frozen")),
        "invalidation": _invalidation(spreads(answers.get("invalidation"))),
        "sweep": _sweep(answers.get("sweep")),
    }
    for row, why in measured.broken.items():
        verdicts[row] = replace(verdicts.get(row, Verdict(row, ())), broken=why)
    return tuple(verdicts.values())


def spreads(answer: Mapping[str, Any] | None) -> dict[str, Spread]:
    """Return the times of an answer by side; none for no answer."""
    return {} if answer is None else {name: Spread.from_dict(found) for name, found in answer["spreads"].items()}


def _hot(found: Mapping[str, Spread]) -> Verdict:
    bare = found.get(hot.BARE)
    seconds = None if bare is None else 1e6 * bare.middle
    return Verdict(
        "hot get, 64 B, all rules",
        (
            either(
                Check("one", seconds, "<=", _GET_US, "us"),
                Check("of cachetools TTL under a lock", _over(found, hot.BARE, hot.LOCKED), "<=", _OF_LOCKED, "x"),
            ),
            Check(
                "in the default wrappers, of the same", _over(found, hot.WRAPPED, hot.LOCKED), "<=", _WRAPPED_OF_LOCKED,
                "x",
            ),
        ),
    )  # fmt: skip


def _many(found: Mapping[str, Spread]) -> Verdict:
    over = _over(found, many.TOGETHER, many.LOOP)
    faster = None if over is None else 1 / over
    return Verdict("get_many of 1,000 keys", (Check("faster than the loop over get", faster, ">=", _TOGETHER, "x"),))


def _array(found: Mapping[str, Spread]) -> Verdict:
    over = _over(found, array.SET, array.KEPT)
    speed = None if over is None else 1 / over
    return Verdict("set of a 1 MB array, isolated", (Check("of np.copyto's speed", speed, ">=", _OF_COPY, "x"),))


def _trace(measured: Measured) -> Verdict:
    replayed, policy = measured.replayed, JUDGED_POLICIES[-1]
    over = {}
    if replayed is not None:
        over = {size: ratios for size in replayed.belady if (ratios := replayed.over_reference(policy, size))}
    lowest = min((100 * ratios.low for ratios in over.values()), default=None)
    best = max((100 * ratios.middle for size, ratios in over.items() if size <= STARVED), default=None)
    return Verdict(
        "default policy over LRU on a trace",
        (
            Check("at its worst size and seed", lowest, ">=", _NEVER_UNDER, "%"),
            Check(f"at its best size up to {STARVED:,}", best, ">=", _OVER_SOMEWHERE, "%"),
        ),
    )


def _updates(answer: Mapping[str, Any] | None) -> Verdict:
    checks = []
    for room in ROOM:
        runs = [] if answer is None else [run for run in answer["runs"] if run["room"] == room]
        lost = sum(int(run["lost"]) for run in runs) if runs else None
        checks.append(Check(f"lost at {room} x of a round, all policies", lost, "<=", 0))
    return Verdict("update store, 200 clients", tuple(checks))


def _frozen(answer: Mapping[str, Any] | None) -> Verdict:
    ratio = None if answer is None else float(answer["ratio"])
    return Verdict("frozen half of a model, 20 rounds", (Check("download of sending all", ratio, "<=", _OF_ALL, "x"),))


def _invalidation(found: Mapping[str, Spread]) -> Verdict:
    batched = _over(found, BATCH, ONE_BY_ONE)
    return Verdict(
        "invalidating 7 sharers, 64 keys",
        (
            Check("of a round trip with all", _over(found, BATCH, ROUND_TRIP), "<=", _OF_ROUND_TRIP, "x"),
            Check("a batch cheaper than key by key", None if batched is None else 1 / batched, ">=", _BATCHED, "x"),
        ),
    )


def _sweep(answer: Mapping[str, Any] | None) -> Verdict:
    found = spreads(answer)
    return Verdict(
        "sweep of 100,000 expired among 1,000,000",
        (
            Check("of bare heappop and dict.pop", _over(found, sweep.SWEEP, sweep.BARE), "<=", _OF_BARE, "x"),
            Check(
                "nothing expired, of an empty cache's sweep", _over(found, sweep.IDLE, sweep.EMPTY), "<=", _IDLE, "x"
            ),
        ),
    )


def either(first: Check, second: Check) -> Check:
    """Return the check that decides where one of two is enough: one that is kept, else the one that was measured."""
    return min((first, second), key=lambda check: (Outcome.PASS, Outcome.FAIL, Outcome.OPEN).index(check.outcome))


def _over(found: Mapping[str, Spread], side: str, other: str) -> float | None:
    if side not in found or other not in found:
        return None
    return found[side].over(found[other])
