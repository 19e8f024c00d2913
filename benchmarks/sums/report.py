"""Everything that one run of the benchmark found, and how it reads: table, verdicts, JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.harness.tables import aligned
from benchmarks.harness.verdicts import Verdict, readable
from benchmarks.sums.cases import HOLDERS, THRESHOLD, VALUE_BITS, Case, Confirmed, Figures

HEADINGS: Final = (
    "row", "d", "n", "up x", "down x", "client ms", "node ms a client", "holder bytes", "holder ms",
    "opening ms", "peak MB",
)  # fmt: skip


BUSY: Final = 1.1
"""How much longer than its core's time work takes on the wall clock of a machine that does other things too."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak bytes of a node that folded `clients` updates from disk, under one plan for the larger cohort."""

    dimension: int
    few: int
    many: int
    peak_few: int
    peak_many: int

    @property
    def ratio(self) -> float:
        """How much more the larger cohort took."""
        return self.peak_many / self.peak_few


@dataclass(frozen=True, slots=True)
class Exactness:
    """Small rounds with random drops: how many were run, and in how many the opened sum was not the sum."""

    rounds: int
    differences: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one run, by row name and case; what a holder takes to confirm a roster, by its clients."""

    rows: Mapping[tuple[str, int, int], Figures] = field(default_factory=dict)
    memory: Memory | None = None
    exact: Exactness | None = None
    confirmed: Mapping[int, Confirmed] = field(default_factory=dict)

    def get(self, row: str, dimension: int, clients: int) -> Figures | None:
        """Return a row's figures, None when this run did not measure it."""
        return self.rows.get((row, dimension, clients))


def table(measured: Measured) -> list[str]:
    """Return the rows as lines of a Markdown table that also reads well on a terminal."""
    return aligned([HEADINGS, *(_cells(*key, figures) for key, figures in measured.rows.items())])


def _cells(row: str, dimension: int, clients: int, figures: Figures) -> tuple[str, ...]:
    plain = Case(dimension, clients).float_bytes
    return (
        row,
        f"{dimension:,}",
        f"{clients:,}",
        f"{figures.bytes_up / plain:.3f}",
        f"{figures.bytes_down / plain:.3f}",
        _ms(figures.client.median),
        _ms(figures.node.median),
        "-" if figures.holder_bytes is None else f"{figures.holder_bytes:,}",
        "-" if figures.holder is None else _ms(figures.holder.median),
        _ms(figures.opening.median),
        f"{figures.peak_bytes / 1e6:,.0f}",
    )


def _ms(seconds: float) -> str:
    return readable(round(1e3 * seconds, 3))


def words(measured: Measured, verdicts: tuple[Verdict, ...]) -> list[str]:
    """Return all that a person reads at the end: the table, what stands beside it, the verdicts."""
    lines = [*table(measured), "", *_disturbed(measured)]
    for clients, step in measured.confirmed.items():
        lines.append(
            f"confirm, n = {clients:,}: one of {HOLDERS} holders {_ms(step.holder.median)} ms, "
            f"{step.bytes_down:,} bytes down and {step.bytes_up:,} up"
        )
    if measured.memory is not None:
        found = measured.memory
        peaks = [f"{readable(peak / 1e6)} MB after {n:,}" for peak, n in
                 ((found.peak_few, found.few), (found.peak_many, found.many))]  # fmt: skip
        lines.append(f"node memory, d = {found.dimension:,}: {', '.join(peaks)} clients")
    if measured.exact is not None:
        exact = measured.exact
        lines.append(f"exact: {exact.differences} differences in {exact.rounds:,} small rounds, {exact.seconds:.0f} s")
    return [*lines, *(verdict.line() for verdict in verdicts)]


def _disturbed(measured: Measured) -> list[str]:
    timings = [timing for figures in measured.rows.values() for timing in figures.timings()]
    timings += [step.holder for step in measured.confirmed.values()]
    core, wall = sum(timing.median for timing in timings), sum(timing.wall for timing in timings)
    if wall <= BUSY * core:
        return []
    return [f"the machine was busy: on the wall clock all this took {wall / core:.1f} x the time of its core"]


def document(measured: Measured, verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    """Return the run as JSON holds it, without date and machine."""
    return {
        "conditions": {"value_bits": VALUE_BITS, "holders": HOLDERS, "threshold": THRESHOLD},
        "rows": [
            {"row": row, "dimension": dimension, "clients": clients, **figures.to_dict()}
            for (row, dimension, clients), figures in measured.rows.items()
        ],
        "confirm": [{"clients": clients, **step.to_dict()} for clients, step in measured.confirmed.items()],
        "memory": None if measured.memory is None else _fields(measured.memory),
        "exact": None if measured.exact is None else _fields(measured.exact),
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }


def _fields(value: Memory | Exactness) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}
