"""The reports of a run: `report.json` (the source of truth), `report.html` (one page), a table for the terminal.

All are made from one frozen `RunRecord`. `ledger_check` alone reads a file: the ledger, for `fednode ledger`.
"""

from fednode.reports.as_json import SCHEMA_VERSION, parse_audit, parse_report, render_json
from fednode.reports.page import render_html
from fednode.reports.run_record import (
    About,
    AuditFound,
    Claim,
    Claims,
    DeltaPrice,
    GroupPrice,
    Guarantee,
    LabelScore,
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
    "About",
    "AuditFound",
    "Claim",
    "Claims",
    "DeltaPrice",
    "GroupPrice",
    "Guarantee",
    "LabelScore",
    "Mechanism",
    "NamedReason",
    "RoundRecord",
    "RunRecord",
    "TaskFacts",
    "Trust",
    "parse_audit",
    "parse_report",
    "render_html",
    "render_json",
    "summary_rows",
    "write_reports",
]
