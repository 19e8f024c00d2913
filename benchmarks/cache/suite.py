"""The rows of the cache: each a process of its own, apart from the replay of a trace, which is several side by side."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.processes import Job
from benchmarks.harness.suite import BenchSession, Measured, check_known, measure
from benchmarks.trace.reading import BadTrace
from benchmarks.trace.suite import TraceOptions, run_trace

ROWS: Final = ("hot", "many", "array", "trace", "updates", "frozen", "invalidation", "sweep", "columns")
JUDGED_POLICIES: Final = ("lru", "adaptive")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything. `windows`: of each side that is timed; `sweeps`: times that as many expire at once."""

    windows: int = 300
    entries: int = 1_000_000
    expired: int = 100_000
    sweeps: int = 5
    cold_keys: int = 100_000
    column_windows: int = 60
    clients: int = 200
    update_rounds: int = 8
    frozen_rounds: int = 20
    batches: int = 200
    trace: TraceOptions = field(default_factory=lambda: TraceOptions(policies=JUDGED_POLICIES, seeds=3))


FULL: Final = Sizes()
QUICK: Final = Sizes(
    windows=5,
    entries=20_000,
    expired=2_000,
    cold_keys=2_000,
    column_windows=5,
    clients=20,
    update_rounds=3,
    frozen_rounds=2,
    batches=5,
    trace=TraceOptions(sizes=(500, 5_000), policies=JUDGED_POLICIES, seeds=1),
)
"""Everything once, small: shows that the benchmark works, judges nothing."""


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """What to measure; `trace` is the file that hit ratios are taken on.

    Raises ConfigError for an unknown row, BadTrace for a trace that is not a file, whether its row is measured or not.
    """

    rows: tuple[str, ...] = ROWS
    trace: Path | None = None
    sizes: Sizes = FULL

    def __post_init__(self) -> None:
        check_known("row", self.rows, ROWS)
        if self.trace is not None and (not self.trace.exists() or self.trace.is_dir()):
            raise BadTrace(f"{self.trace} is not a file: name a trace of block accesses with --trace")


def run_cache(options: CacheOptions, session: BenchSession) -> Measured:
    """Measure all rows: `trace` answers a Replayed, the others what their programs answer."""
    rows: dict[str, Callable[[BenchSession], Any]] = {}
    for row in dict.fromkeys(options.rows):
        if row != "trace":
            rows[row] = partial(_alone, job=Job(row, f"benchmarks.cache.{row}", asked(row, options.sizes)))
        elif options.trace is not None:
            rows[row] = partial(run_trace, options.trace, options.sizes.trace)
    return measure(rows, session, full=options.sizes == FULL)


def _alone(session: BenchSession, job: Job) -> dict[str, Any]:
    return session.processes.alone(job)


def asked(row: str, sizes: Sizes) -> dict[str, Any]:
    """Return what the process of a row is asked."""
    return {
        "sweep": {
            "entries": sizes.entries, "expired": sizes.expired, "repeats": sizes.sweeps, "windows": sizes.windows
        },
        "columns": {"cold_keys": sizes.cold_keys, "windows": sizes.column_windows},
        "updates": {"clients": sizes.clients, "rounds": sizes.update_rounds},
        "frozen": {"rounds": sizes.frozen_rounds},
        "invalidation": {"batches": sizes.batches},
    }.get(row, {"windows": sizes.windows})  # fmt: skip
