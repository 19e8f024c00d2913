"""Runs side by side: what each reached, and what it cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from fednode.disk.atomic import write_whole
from fednode.errors import ConfigError
from fednode.front.run import Run, load

if TYPE_CHECKING:
    from fednode.reports import RunRecord

HEADINGS = ("run", "outcome", "accuracy", "epsilon", "unit", "rounds", "survivors", "kB up", "kB down", "seconds")
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>FedNode: {count} runs</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width"><style>body{{font:16px/1.5 sans-serif;margin:2em auto;max-width:70em;
padding:0 1em;overflow-x:auto}}td,th{{padding:.3em .8em;text-align:right;border-bottom:1px solid #ccc}}</style>
<h1>{count} runs</h1>{table}<p>Upload and download are means of one client and round. Epsilon is what the run's ledger
holds; runs over the same records add up.</p></html>"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A table of runs, a row each under `HEADINGS`; prints as text, shows as a table in a notebook."""

    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(HEADINGS, *self.rows, strict=True)]
        lines = ("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in self._all())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table(HEADINGS, self.rows)

    def page(self, path: str | Path) -> Path:
        """Write the table as a page of its own; returns where it is. Raises `StoreError`."""
        text = _PAGE.format(count=len(self.rows), table=self._repr_html_())
        write_whole(Path(path), text.encode("utf-8"), 0o644)
        return Path(path)

    def _all(self) -> Iterable[Sequence[str]]:
        return (HEADINGS, *self.rows)


def compare(runs: Iterable[Run | str | Path]) -> Comparison:
    """A table of runs, as `simulate` returns them or by their folders. Raises `DataError`, `ConfigError`."""
    found = [run if isinstance(run, Run) else load(run) for run in runs]
    if not found:
        raise ConfigError("there is no run to compare; name the folders of one or more")
    return Comparison(tuple(_row(run.record) for run in found))


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A plain table; every cell is escaped."""

    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + line(headings, "th") + "".join(line(row, "td") for row in rows) + "</table>"


def _row(record: "RunRecord") -> tuple[str, ...]:
    asked = [one for one in record.rounds if one.invited]
    survivors = sum(len(one.survivors) for one in asked) / len(asked) if asked else 0.0
    up = sum(one.bytes_up for one in asked) / len(asked) if asked else 0.0
    return (
        record.run_id,
        record.outcome,
        f"{100 * record.accuracies[-1]:.1f} %" if record.accuracies else "-",
        f"{record.guarantee.epsilon:.3f}",
        record.guarantee.unit,
        str(len(record.released)),
        f"{survivors:.1f}",
        f"{up / 1000:.1f}",
        f"{record.mean_download / 1000:.1f}",
        f"{record.ended - record.started:.0f}",
    )
