"""How a run of the cache's benchmark reads: times by side, columns beside others, the replay, verdicts, JSON."""

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.cache import hot
from benchmarks.cache.limits import spreads
from benchmarks.cache.suite import Measured
from benchmarks.harness.tables import aligned
from benchmarks.harness.verdicts import Verdict, readable
from benchmarks.harness.windows import Spread
from benchmarks.trace import report as trace_report

TIMED: Final = ("hot", "many", "array", "invalidation", "sweep")


def words(measured: Measured, verdicts: tuple[Verdict, ...]) -> list[str]:
    """Return all that a person reads at the end."""
    blocks = [
        _times(measured.answers),
        _columns(measured.answers.get("columns")),
        _updates(measured.answers.get("updates")),
        _frozen(measured.answers.get("frozen")),
        [] if measured.replayed is None else [f"{measured.replayed.name}:", *trace_report.words(measured.replayed)],
    ]
    lines = [line for block in blocks if block for line in (*block, "")]
    return [*lines, *(verdict.line() for verdict in verdicts), *_unmeasured(measured)]


def _times(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = [
        (row, side, _us(found.low), _us(found.middle), f"{found.windows:,}")
        for row in TIMED
        if row in answers
        for side, found in spreads(answers[row]).items()
    ]
    if not rows:
        return []
    lines = ["microseconds an operation:", *aligned([("row", "side", "low", "middle", "windows"), *rows])]
    return lines + _by_item(spreads(answers.get("hot")))


def _by_item(found: Mapping[str, Spread]) -> list[str]:
    if hot.BY_ITEM not in found:
        return []
    bare, wrapped = (readable(found[side].over(found[hot.BY_ITEM])) for side in (hot.BARE, hot.WRAPPED))
    return [f"hot get against the fastest way to read a locked TTLCache, not judged: {bare} x, in wrappers {wrapped} x"]


def _columns(answer: Mapping[str, Any] | None) -> list[str]:
    if answer is None:
        return []
    lines = {
        name: {column: Spread.from_dict(found) for column, found in line.items()}
        for name, line in answer["lines"].items()
    }
    columns = list(dict.fromkeys(column for line in lines.values() for column in line))
    rows = [
        (name, *(_pair(line[column]) if column in line else "-" for column in columns)) for name, line in lines.items()
    ]
    heading = "beside others, low/middle microseconds an operation, not judged:"
    return [heading, *aligned([("", *columns), *rows]), *answer["left_out"]]


def _updates(answer: Mapping[str, Any] | None) -> list[str]:
    if answer is None:
        return []
    names = ("policy", "room", "accepted", "refused", "lost", "lost_unpinned")
    rows = [tuple(str(run[name]) for name in names) for run in answer["runs"]]
    headings = ("policy", "room x", "accepted", "refused and retried", "lost", "lost without pins")
    return ["updates of all rounds:", *aligned([headings, *rows])]


def _frozen(answer: Mapping[str, Any] | None) -> list[str]:
    if answer is None:
        return []
    first, *later = answer["rounds"]
    last = f", {later[-1]:,.0f} in the last of {len(later) + 1}" if later else ""
    return [f"half of a model frozen: {first:,.0f} bytes down a client in the first round{last}"]


def _unmeasured(measured: Measured) -> list[str]:
    lines = []
    if not measured.judged:
        lines.append("a small run judges nothing: leave --quick out")
    elif measured.replayed is None and "trace" not in measured.broken:
        lines.append("the default policy was not judged: give a trace of block accesses with --trace FILE")
    return lines


def _us(seconds: float) -> str:
    return readable(round(1e6 * seconds, 4))


def _pair(spread: Spread) -> str:
    return f"{_us(spread.low)}/{_us(spread.middle)}"


def document(measured: Measured, verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    """Return the run as JSON holds it, without date and machine."""
    return {
        "full": measured.judged,
        "rows": {row: dict(answer) for row, answer in measured.answers.items()},
        "broken": dict(measured.broken),
        "trace": None if measured.replayed is None else trace_report.document(measured.replayed),
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }
