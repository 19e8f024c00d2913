"""Bytes and seconds against the size of the cohort, as one SVG."""

import io
from typing import TYPE_CHECKING, Final

from benchmarks.sums.cases import Case, Figures
from benchmarks.sums.report import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS: Final = {"plain": "o", "secagg": "s", "ckks": "^", "bfv": "D", "ring": "P"}
_STYLE: Final = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9.0,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "fednode-bench-sum",
}


def svg(measured: Measured) -> str:
    """Return the plot: a line of panels for each number of values; empty panels' axes when nothing was measured."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    sizes = sorted({dimension for _, dimension, _ in measured.rows}) or [0]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.5, 2.8 * len(sizes) + 0.4), layout="constrained")
        panels = figure.subplots(len(sizes), 2, squeeze=False)
        for dimension, (left, right) in zip(sizes, panels, strict=True):
            _draw(left, measured, dimension, "bytes up, x float32")
            _draw(right, measured, dimension, "client, s")
        handles, labels = panels[0][0].get_legend_handles_labels()
        if labels:
            figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _draw(axes: "Axes", measured: Measured, dimension: int, label: str) -> None:
    for colour, (row, marker) in enumerate(_MARKERS.items()):
        points = [
            (clients, _value(label, Case(size, clients), figures))
            for (name, size, clients), figures in measured.rows.items()
            if (name, size) == (row, dimension)
        ]
        if points:
            axes.plot(*zip(*sorted(points), strict=True), marker=marker, color=f"C{colour}", label=row)
    axes.set(xscale="log", yscale="log", xlabel="clients", ylabel=label, title=f"{dimension:,} values")


def _value(label: str, case: Case, figures: Figures) -> float:
    return figures.bytes_up / case.float_bytes if label.startswith("bytes") else figures.client.median
