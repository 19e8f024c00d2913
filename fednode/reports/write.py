"""Writes the reports to disk, each whole or not at all."""

from collections.abc import Sequence
from pathlib import Path

from fednode.disk.atomic import write_whole
from fednode.privacy import ChargeRecord
from fednode.reports.as_json import render_json
from fednode.reports.exports import ledger_csv, registry_yaml
from fednode.reports.page import render_html
from fednode.reports.run_record import RunRecord

HTML_NAME, JSON_NAME, CSV_NAME, REGISTRY_NAME = "report.html", "report.json", "ledger.csv", "registry.yaml"


def write_reports(record: RunRecord, folder: Path, charges: Sequence[ChargeRecord] = ()) -> tuple[Path, Path]:
    """Write all reports into an existing folder, the table if there are charges; return the paths of page and JSON.

    All are made before one is written. The JSON is written last: where it is, the others are too. Raises `ValueError`
    for a record that a report cannot hold, such as one with NaN, and `StoreError` if the disk refuses.
    """
    text = render_json(record)
    files = {HTML_NAME: render_html(record), REGISTRY_NAME: registry_yaml(record)}
    files |= {CSV_NAME: ledger_csv(charges)} if charges else {}
    for name, data in (files | {JSON_NAME: text}).items():
        write_whole(folder / name, data)
    return folder / HTML_NAME, folder / JSON_NAME
