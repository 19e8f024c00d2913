"""A get beside others, and hit ratios on the trace, as one SVG."""

import io
from typing import TYPE_CHECKING, Any, Final

from benchmarks.cache.suite import Measured
from benchmarks.trace.plot import STYLE
from benchmarks.trace.plot import draw as draw_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = ("get, 64 B, hot", "get, 64 B, cold", "set, 64 B, hot")


def svg(measured: Measured) -> str:
    """Return the plot: columns on the left, the replay on the right; empty axes for what was not measured."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 4.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_columns(left, measured.answers.get("columns", {}).get("lines", {}))
        if measured.replayed is not None:
            draw_trace(right, measured.replayed)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _draw_columns(axes: "Axes", lines: dict[str, Any]) -> None:
    names = [name for name in DRAWN if name in lines]
    columns = list(dict.fromkeys(column for name in names for column in lines[name]))
    high = 0.8 / max(len(names), 1)
    for number, name in enumerate(names):
        places = [place + high * number for place, column in enumerate(columns) if column in lines[name]]
        middles = [1e6 * found["middle"] for found in lines[name].values()]
        axes.barh(places, middles, high, color=f"C{number}", label=name)
    axes.set_yticks([place + 0.4 - high / 2 for place in range(len(columns))], columns)
    axes.set(xscale="log", xlabel="microseconds, median", title="one operation")
    axes.invert_yaxis()
    if names:
        axes.legend()
