"""docs/report.schema.json: what it says is what a report is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from kit.sample_record import sample_record

from fednode.reports import render_json
from fednode.reports.run_record import About
from scripts.report_schema import schema

FILE = Path(__file__).resolve().parents[2] / "docs/report.schema.json"


def faults(report: object) -> list[str]:
    return [error.message for error in Draft202012Validator(json.loads(FILE.read_bytes())).iter_errors(report)]


def test_the_file_is_made_from_the_fields() -> None:
    """If not: python -m scripts.report_schema > docs/report.schema.json."""
    assert json.loads(FILE.read_bytes()) == schema()


def test_a_report_keeps_to_it() -> None:
    for record in (sample_record(), replace(sample_record(), rounds=(), audit=None, about=About(), labels=())):
        assert faults(json.loads(render_json(record))) == []


@pytest.mark.parametrize(
    ("part", "value"),
    [("epsilon", "7"), ("epsilon", None), ("rounds_left", 1.5), ("unit", None), ("more", 1)],
)
def test_what_is_no_report_is_told(part: str, value: object) -> None:
    report: dict[str, Any] = json.loads(render_json(sample_record()))
    report["run"]["guarantee"][part] = value
    assert len(faults(report)) == 1
    del report["run"]["guarantee"]
    assert faults(report) == ["'guarantee' is a required property"]
