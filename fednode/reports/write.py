"""Writes both reports to disk, each whole or not at all."""

from pathlib import Path

from fednode.disk.atomic import write_whole
from fednode.reports.as_json import render_json
from fednode.reports.page import render_html
from fednode.reports.run_record import RunRecord

HTML_NAME, JSON_NAME = "report.html", "report.json"


def write_reports(record: RunRecord, folder: Path) -> tuple[Path, Path]:
    """Write `report.html` and `report.json` into an existing folder; return their paths in this order.

    Both are made before either is written. The JSON is written last: where it is, the page is too. Raises `ValueError`
    for a record that a report cannot hold, such as one with NaN, and `StoreError` if the disk refuses.
    """
    text = render_json(record)
    page = render_html(record)
    paths = folder / HTML_NAME, folder / JSON_NAME
    for path, data in zip(paths, (page, text), strict=True):
        write_whole(path, data)
    return paths
