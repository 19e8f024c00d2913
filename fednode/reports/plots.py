"""Four plots as inline SVG: the same record gives the same bytes, and colours follow the page's theme.

matplotlib has no CSS variables: it draws in stand-in colours, which are replaced by variables afterwards.
"""

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fednode.reports.run_record import RoundRecord, RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _FAINT, _FIRST, _SECOND, _LIMIT = "#010101", "#020202", "#030303", "#040404", "#050505"
_THEME = {_INK: "--ink", _FAINT: "--line", _FIRST: "--first", _SECOND: "--second", _LIMIT: "--limit"}
_STYLE = {
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "font.size": 9.0,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "hatch.color": _LIMIT,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 3.5,
    "svg.fonttype": "none",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
}
Draw = Callable[["Axes"], None]
Plot = Callable[[RunRecord], str]


def accuracy_plot(record: RunRecord) -> str:
    """Accuracy on the test set after each round, in per cent."""
    measured = [(entry.round, 100 * entry.accuracy) for entry in record.rounds if entry.accuracy is not None]

    def draw(axes: "Axes") -> None:
        axes.plot(*zip(*measured, strict=True), color=_FIRST, marker="o", label="accuracy")
        axes.set_ylim(0, 100)
        axes.set_ylabel("accuracy, %")

    return _svg("accuracy", record.rounds, draw) if measured else ""


def epsilon_plot(record: RunRecord) -> str:
    """Epsilon spent after each round: what is charged, the Renyi bound, and the limit."""
    claim, rounds = record.guarantee, _numbers(record.rounds)

    def draw(axes: "Axes") -> None:
        axes.axhline(claim.epsilon_limit, color=_LIMIT, linestyle="--", label="limit")
        axes.plot(rounds, [entry.epsilon_after for entry in record.rounds], color=_FIRST, marker="o", label="charged")
        reference = [entry.renyi_after for entry in record.rounds]
        axes.plot(rounds, reference, color=_SECOND, marker="s", linestyle=":", label="Renyi bound")
        axes.set_ylim(0, 1.08 * max(claim.epsilon_limit, *(entry.epsilon_after for entry in record.rounds)))
        axes.set_ylabel("epsilon spent")

    return _svg("epsilon", record.rounds, draw) if rounds else ""


def noise_plot(record: RunRecord) -> str:
    """Noise in the released sums: planned, and added by the survivors."""
    released, rounds = record.released, _numbers(record.released)

    def draw(axes: "Axes") -> None:
        axes.bar(rounds, [entry.noise_added for entry in released], color=_FIRST, width=0.7, label="added")
        planned = [entry.noise_planned for entry in released]
        axes.plot(
            rounds, planned, color=_LIMIT, marker="_", markersize=9, markeredgewidth=1.8, linestyle="", label="planned"
        )
        axes.set_ylim(0, 1.12 * max(planned + [entry.noise_added for entry in released]))
        axes.set_ylabel("noise in the sum")

    return _svg("noise", record.rounds, draw) if rounds else ""


def survivors_plot(record: RunRecord) -> str:
    """Survivors of each round, released or failed, and the floor."""

    def draw(axes: "Axes") -> None:
        _survivor_bars(axes, record.released, "released", {"color": _FIRST})
        failed = tuple(entry for entry in record.rounds if not entry.released)
        _survivor_bars(axes, failed, "failed", {"facecolor": "none", "edgecolor": _LIMIT, "hatch": "////"})
        axes.axhline(record.mechanism.min_survivors, color=_LIMIT, linestyle="--", label="floor")
        axes.set_ylim(0, 1.08 * max(record.mechanism.min_survivors, *(entry.invited for entry in record.rounds)))
        axes.set_ylabel("survivors")

    return _svg("survivors", record.rounds, draw) if record.rounds else ""


PLOTS: tuple[tuple[str, Plot, str], ...] = (
    ("Accuracy per round", accuracy_plot, "No accuracy was measured."),
    ("Epsilon spent, and the limit", epsilon_plot, "No round ended."),
    ("Noise planned and noise really added", noise_plot, "No round was released."),
    ("Survivors per round, and the floor", survivors_plot, "No round ended."),
)
"""For each plot its title, its function (SVG, or "" for nothing to draw), and what the page shows in place of it."""


def _survivor_bars(axes: "Axes", rounds: tuple[RoundRecord, ...], label: str, look: dict[str, Any]) -> None:
    if rounds:
        axes.bar(_numbers(rounds), [len(entry.survivors) for entry in rounds], width=0.7, label=label, **look)


def _numbers(rounds: tuple[RoundRecord, ...]) -> list[int]:
    return [entry.round for entry in rounds]


def _svg(name: str, rounds: tuple[RoundRecord, ...], draw: Draw) -> str:
    # Figure in place of pyplot: it needs no window system and keeps no global state
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with mpl.rc_context({**_STYLE, "svg.hashsalt": f"fednode-{name}"}):
        figure = Figure(figsize=(4.7, 2.7), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_xlabel("round")
        axes.set_xlim(rounds[0].round - 0.7, rounds[-1].round + 0.7)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
        if len(axes.get_legend_handles_labels()[1]) > 1:
            figure.legend(loc="outside upper left", ncols=3, handlelength=1.6, columnspacing=1.4)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inline(name, out.getvalue())


def _inline(name: str, document: str) -> str:
    """The `<svg>` element alone: without namespaces and metadata, with unique ids and the theme's colours."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'\sid="(?!m|p|h)\w*"', "", svg)
    svg = re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r'\1 aria-hidden="true"', svg)
    for stand_in, variable in _THEME.items():
        svg = svg.replace(stand_in, f"var({variable})")
    return svg.strip()
