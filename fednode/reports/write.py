"""Both reports on disk, each whole or absent."""

from pathlib import Path

from fednode.disk.atomic import write_whole
from fednode.reports.as_json import render_json
from fednode.reports.page import render_html
from fednode.reports.record import RunRecord

HTML_NAME, JSON_NAME = "report.html", "report.json"


def write_reports(record: RunRecord, folder: Path) -> tuple[Path, Path]:
    """Write `report.html` and `report.json` into `folder`, which exists; returns their paths, the page's first.

    Both are made before either is written, and each is renamed into place when it is whole; the JSON comes last, so
    where it is, the page is. Raises `ValueError` for a record that no report can hold (NaN, say), `StoreError` where
    the disk refuses.
    """
    text = render_json(record)
    page = render_html(record)
    paths = folder / HTML_NAME, folder / JSON_NAME
    for path, data in zip(paths, (page, text), strict=True):
        write_whole(path, data)
    return paths
