"""How a run of secure sums reads: table, lines, verdicts, JSON, and the plot."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from benchmarks.harness.results import Results, svg
from benchmarks.harness.suite import Measured
from benchmarks.harness.tables import aligned, readable
from benchmarks.harness.verdicts import Verdict
from benchmarks.sums.cases import FLOAT_BYTES, HOLDERS, THRESHOLD, VALUE_BITS, ConfirmStep, Figures
from benchmarks.sums.suite import TIMED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADINGS: Final = (
    "row", "d", "n", "up x", "down x", "client ms", "node ms a client", "holder bytes", "holder ms",
    "opening ms", "peak MB",
)  # fmt: skip
BUSY: Final = 1.1
"""The ratio of wall clock to core time above which a line says that the machine was busy."""

_MARKERS: Final = {"plain": "o", "secagg": "s", "ckks": "^", "bfv": "D", "ring": "P"}


def words(measured: Measured, verdicts: tuple[Verdict, ...]) -> list[str]:
    """Return all that a person reads at the end: the table, the other rows, the verdicts."""
    lines = [*table(measured), "", *_busy(measured)]
    for clients, step in _confirmed(measured).items():
        lines.append(
            f"confirm, n = {clients:,}: one of {HOLDERS} holders {_ms(step.holder.median)} ms, "
            f"{step.bytes_down:,} bytes down and {step.bytes_up:,} up"
        )
    if memory := measured.answers.get("memory"):
        few, many = (f"{readable(memory[f'peak_{n}'] / 1e6)} MB after {memory[n]:,}" for n in ("few", "many"))
        lines.append(f"node memory, d = {memory['dimension']:,}: {few}, {many} clients")
    if exact := measured.answers.get("exact"):
        lines.append(
            f"exact: {exact['differences']} differences in {exact['rounds']:,} small rounds, {exact['seconds']:.0f} s"
        )
    return [*lines, *(verdict.line() for verdict in verdicts)]


def table(measured: Measured) -> list[str]:
    """Return the timed rows as a table."""
    return aligned([HEADINGS, *(_cells(*row) for row in _rows(measured))])


def _rows(measured: Measured) -> Iterator[tuple[str, int, int, Figures]]:
    """Yield the timed rows by number of values, row and cohort."""
    found = [
        (row, dimension, clients, figures)
        for row in TIMED
        for (dimension, clients), figures in measured.answers.get(row, {}).items()
    ]
    yield from sorted(found, key=lambda row: row[1])


def _confirmed(measured: Measured) -> Mapping[int, ConfirmStep]:
    found: Mapping[int, ConfirmStep] = measured.answers.get("confirm", {})
    return found


def _cells(row: str, dimension: int, clients: int, figures: Figures) -> tuple[str, ...]:
    plain = FLOAT_BYTES * dimension
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


def _busy(measured: Measured) -> list[str]:
    timings = [timing for *_, figures in _rows(measured) for timing in figures.timings()]
    timings += [step.holder for step in _confirmed(measured).values()]
    core, wall = sum(timing.median for timing in timings), sum(timing.wall for timing in timings)
    if wall <= BUSY * core:
        return []
    return [f"the machine was busy: the wall clock showed {wall / core:.1f} x the time of the core"]


def results(measured: Measured, verdicts: tuple[Verdict, ...]) -> Results:
    """Return the run's JSON document and plot."""
    document = {
        "conditions": {"value_bits": VALUE_BITS, "holders": HOLDERS, "threshold": THRESHOLD},
        "rows": [
            {"row": row, "dimension": dimension, "clients": clients, **asdict(figures)}
            for row, dimension, clients, figures in _rows(measured)
        ],
        "confirm": [{"clients": clients, **asdict(step)} for clients, step in _confirmed(measured).items()],
        "memory": measured.answers.get("memory"),
        "exact": measured.answers.get("exact"),
        "broken": dict(measured.broken),
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }
    return Results("sum", document, _plot(measured))


def _plot(measured: Measured) -> str:
    """Bytes and seconds against the size of the cohort: a line of panels for each number of values."""
    sizes = sorted({dimension for _, dimension, *_ in _rows(measured)}) or [0]

    def draw(figure: "Figure") -> None:
        panels = figure.subplots(len(sizes), 2, squeeze=False)
        for dimension, (left, right) in zip(sizes, panels, strict=True):
            _draw(left, measured, dimension, "bytes up, x float32")
            _draw(right, measured, dimension, "client, s")
        handles, labels = panels[0][0].get_legend_handles_labels()
        if labels:
            figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))

    return svg((7.5, 2.8 * len(sizes) + 0.4), draw)


def _draw(axes: "Axes", measured: Measured, dimension: int, label: str) -> None:
    for colour, (row, marker) in enumerate(_MARKERS.items()):
        points = [
            (clients, f.bytes_up / (FLOAT_BYTES * size) if label.startswith("bytes") else f.client.median)
            for name, size, clients, f in _rows(measured)
            if (name, size) == (row, dimension)
        ]
        if points:
            axes.plot(*zip(*sorted(points), strict=True), marker=marker, color=f"C{colour}", label=row)
    axes.set(xscale="log", yscale="log", xlabel="clients", ylabel=label, title=f"{dimension:,} values")
