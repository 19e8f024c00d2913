"""The run: which rows, one after another, each in its own process; those without times side by side."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.processes import Job, run_job, run_side_by_side
from benchmarks.trace.reading import BadTrace
from benchmarks.trace.suite import Replayed, TraceOptions, run_trace
from fednode.clock import Clock
from fednode.errors import ConfigError, FednodeError

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
    sweeps=5,
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

    Raises ConfigError for an unknown row, BadTrace for a trace that is no file, whether its row is measured or not.
    """

    rows: tuple[str, ...] = ROWS
    trace: Path | None = None
    sizes: Sizes = FULL

    def __post_init__(self) -> None:
        unknown = [row for row in self.rows if row not in ROWS]
        if unknown:
            raise ConfigError(f"there is no row '{unknown[0]}': choose from {', '.join(ROWS)}")
        if self.trace is not None and (not self.trace.exists() or self.trace.is_dir()):
            raise BadTrace(f"{self.trace} is not a file: name a trace of block accesses with --trace")


@dataclass(frozen=True, slots=True)
class Measured:
    """The answers of one run by row, and the replay. `judged`: whether it was a full run, whose limits count; `broken`:
    why the other rows have none."""

    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    replayed: Replayed | None = None
    judged: bool = True
    broken: Mapping[str, str] = field(default_factory=dict)


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Runner:
    """How jobs become answers: one alone, whose times count, or several side by side, whose times do not."""

    alone: Callable[[Job], dict[str, Any]] = run_job
    together: Callable[[list[Job]], list[dict[str, Any]]] = run_side_by_side


def run_cache(options: CacheOptions, say: Say, clock: Clock, runner: Runner | None = None) -> Measured:
    """Measure all rows and return the answers; `say` hears of each after it. A row that breaks costs no other."""
    runner = runner or Runner()
    answers: dict[str, dict[str, Any]] = {}
    broken: dict[str, str] = {}
    replayed = None
    for row in dict.fromkeys(options.rows):
        start = clock.now()
        try:
            if row != "trace":
                answers[row] = runner.alone(Job(row, f"benchmarks.cache.{row}", asked(row, options.sizes)))
            elif options.trace is not None:
                replayed = run_trace(options.trace, options.sizes.trace, say, runner.together)
            else:
                say("trace: not measured; give a trace of block accesses with --trace FILE")
                continue
        except Exception as error:  # noqa: BLE001 (whatever it is, the other rows are worth having)
            broken[row] = _why(error)
            say(f"{row}: broken: {broken[row]}")
            continue
        say(f"{row}: {clock.now() - start:.0f} s")
    return Measured(answers, replayed, options.sizes == FULL, broken)


def _why(error: Exception) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return words if isinstance(error, FednodeError) else f"{type(error).__name__}: {words}"


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
