"""How a run of the cache's benchmark reads: times by side, columns beside others, the replay, verdicts, JSON, plot."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from benchmarks.cache import hot
from benchmarks.harness.results import Results, svg
from benchmarks.harness.suite import Measured
from benchmarks.harness.tables import aligned, readable
from benchmarks.harness.verdicts import Verdict
from benchmarks.harness.windows import Spread, spreads_from_json
from benchmarks.trace import report as trace_report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TIMED: Final = ("hot", "many", "array", "invalidation", "sweep")
DRAWN: Final = ("get, 64 B, hot", "get, 64 B, cold", "set, 64 B, hot")


def words(measured: Measured, verdicts: tuple[Verdict, ...]) -> list[str]:
    """Return all that a person reads at the end."""
    blocks = {"columns": _columns, "updates": _updates, "frozen": _frozen, "trace": _replay}
    found = [_times(measured.answers)]
    found += [block(measured.answers[row]) for row, block in blocks.items() if row in measured.answers]
    lines = [line for block in found if block for line in (*block, "")]
    return [*lines, *(verdict.line() for verdict in verdicts), *_unmeasured(measured)]


def _times(answers: Mapping[str, Any]) -> list[str]:
    rows = [
        (row, side, _us(found.low), _us(found.middle), f"{found.windows:,}")
        for row in TIMED
        if row in answers
        for side, found in spreads_from_json(answers[row]["spreads"]).items()
    ]
    if not rows:
        return []
    lines = ["microseconds an operation:", *aligned([("row", "side", "low", "middle", "windows"), *rows])]
    found = spreads_from_json(answers["hot"]["spreads"]) if "hot" in answers else {}
    if hot.BY_ITEM in found:
        bare, wrapped = (readable(found[side].over(found[hot.BY_ITEM])) for side in (hot.BARE, hot.WRAPPED))
        lines.append(
            f"hot get against the fastest way to read a locked TTLCache, not judged: {bare} x, in wrappers {wrapped} x"
        )
    return lines


def _columns(answer: Mapping[str, Any]) -> list[str]:
    lines = {name: spreads_from_json(line) for name, line in answer["lines"].items()}
    columns = list(dict.fromkeys(column for line in lines.values() for column in line))
    rows = [
        (name, *(_pair(line[column]) if column in line else "-" for column in columns)) for name, line in lines.items()
    ]
    heading = "beside others, low/middle microseconds an operation, not judged:"
    return [heading, *aligned([("", *columns), *rows]), *answer["left_out"]]


def _updates(answer: Mapping[str, Any]) -> list[str]:
    names = ("policy", "room", "accepted", "refused", "lost", "lost_unpinned")
    rows = [tuple(str(run[name]) for name in names) for run in answer["runs"]]
    headings = ("policy", "room x", "accepted", "refused and retried", "lost", "lost without pins")
    return ["updates of all rounds:", *aligned([headings, *rows])]


def _frozen(answer: Mapping[str, Any]) -> list[str]:
    first, *later = answer["rounds"]
    last = f", {later[-1]:,.0f} in the last of {len(later) + 1}" if later else ""
    return [f"half of a model frozen: {first:,.0f} bytes down a client in the first round{last}"]


def _replay(replayed: Any) -> list[str]:
    return [f"{replayed.name}:", *trace_report.words(replayed)]


def _unmeasured(measured: Measured) -> list[str]:
    lines = []
    if not measured.full:
        lines.append("a small run judges nothing: leave --quick out")
    if "trace" not in {*measured.answers, *measured.broken}:
        lines.append("the default policy was not judged: give a trace of block accesses with --trace FILE")
    return lines


def _us(seconds: float) -> str:
    return readable(round(1e6 * seconds, 4))


def _pair(spread: Spread) -> str:
    return f"{_us(spread.low)}/{_us(spread.middle)}"


def results(measured: Measured, verdicts: tuple[Verdict, ...]) -> Results:
    """Return the run's JSON document and plot."""
    replayed = measured.answers.get("trace")
    document = {
        "full": measured.full,
        "rows": {row: answer for row, answer in measured.answers.items() if row != "trace"},
        "broken": dict(measured.broken),
        "trace": None if replayed is None else trace_report.document(replayed),
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }
    return Results("cache", document, _plot(measured.answers))


def _plot(answers: Mapping[str, Any]) -> str:
    """Columns on the left, the replay on the right; empty axes for what was not measured."""

    def draw(figure: "Figure") -> None:
        left, right = figure.subplots(1, 2)
        _draw_columns(left, answers.get("columns", {}).get("lines", {}))
        if "trace" in answers:
            trace_report.draw(right, answers["trace"])

    return svg((9.5, 4.0), draw)


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
