"""What a run leaves for people: `report.json` (the source of truth), `report.html` (one page), a terminal table.

Everything is computed from one frozen `RunRecord`; nothing here reads a ledger, a cache or a clock.
"""

from fednode.reports.as_json import SCHEMA_VERSION, parse_report, render_json
from fednode.reports.page import render_html
from fednode.reports.record import (
    Claim,
    Claims,
    Guarantee,
    Mechanism,
    NamedReason,
    RoundRecord,
    RunRecord,
    TaskFacts,
    Trust,
)
from fednode.reports.summary import summary_rows
from fednode.reports.write import HTML_NAME, JSON_NAME, write_reports

__all__ = [
    "HTML_NAME",
    "JSON_NAME",
    "SCHEMA_VERSION",
    "Claim",
    "Claims",
    "Guarantee",
    "Mechanism",
    "NamedReason",
    "RoundRecord",
    "RunRecord",
    "TaskFacts",
    "Trust",
    "parse_report",
    "render_html",
    "render_json",
    "summary_rows",
    "write_reports",
]
