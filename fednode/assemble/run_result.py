"""How a run ends: its reports are written, whatever happened, and its result is returned."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fednode.assemble.report_facts import run_record
from fednode.assemble.session import Session
from fednode.errors import FednodeError
from fednode.reports import RunRecord, summary_rows, write_reports

_FILES = ("report.html", "report.json", "registry.yaml", "ledger.csv", "model.safetensors", "preparation.safetensors",
          "ledger.jsonl", "run.log", "config.toml")  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that ended: its record, its folder, what ended it early, and the lines to print."""

    record: RunRecord
    folder: Path
    error: FednodeError | None
    lines: tuple[str, ...]


def conclude(session: Session, work: Callable[[], FednodeError | None]) -> RunResult:
    """Do the work, then write the reports; also if the work raises, before its exception goes on."""
    session.started = session.environment.clock.time()
    try:
        error = work()
    except BaseException as raised:
        try:
            write_reports(run_record(session, raised), session.folder, session.spending().charges)
        except Exception as refused:  # noqa: BLE001 - the operator has to see what ended the run
            logging.getLogger("fednode.run").error("no report could be written: %s", refused)
        raise
    session.observer.phase("writing the report")
    record = run_record(session, error)
    write_reports(record, session.folder, session.spending().charges)
    session.observer.finished()
    return RunResult(record, session.folder, error, closing_lines(record, session.folder))


def closing_lines(record: RunRecord, folder: Path) -> tuple[str, ...]:
    """The final table, and the paths of all files."""
    rows = summary_rows(record)
    width = max(len(what) for what, _ in rows)
    table = (f"{what:<{width}}  {value}" for what, value in rows)
    return ("", *table, "", *(str(folder / name) for name in _FILES if (folder / name).exists()))
