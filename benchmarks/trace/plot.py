"""Hit ratio against the size of the cache, as one SVG."""

import io
from typing import TYPE_CHECKING, Final

from benchmarks.trace.suite import Replayed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE: Final = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9.0,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "fednode-bench-cache",
}
_MARKERS: Final = {"lru": "o", "lfu": "s", "hybrid": "^", "adaptive": "P", "s3fifo": "D"}


def svg(found: Replayed) -> str:
    """Return the plot: a line a policy, Belady's above them, the infinite cache as the line that nothing crosses."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.0, 4.0), layout="constrained")
        draw(figure.subplots(), found)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def draw(axes: "Axes", found: Replayed) -> None:
    """Draw the replay into `axes`."""
    sizes = sorted(found.belady)
    axes.plot(sizes, [100 * found.belady[size] for size in sizes], color="grey", linestyle="--", label="Belady")
    axes.axhline(100 * found.infinite, color="grey", linestyle=":", label="infinite")
    for colour, (policy, marker) in enumerate(_MARKERS.items()):
        points = found.policies.get(policy, {})
        if points:
            hits = [100 * points[size].middle for size in sizes]
            axes.plot(sizes, hits, marker=marker, color=f"C{colour}", label=policy)
    axes.set(xscale="log", xlabel="entries", ylabel="hits, % of accesses", title=found.name)
    axes.legend()
