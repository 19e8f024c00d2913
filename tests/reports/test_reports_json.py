"""`report.json`: canonical, versioned, and nothing in it that is not a fact."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from kit.sample_record import sample_record, sample_round

from fednode.errors import DataError
from fednode.reports import SCHEMA_VERSION, RoundRecord, RunRecord, parse_report, render_json
from fednode.wire import canonical


def test_it_is_canonical_and_says_its_schema() -> None:
    data = render_json(sample_record())
    report = json.loads(data)
    assert data == canonical(report) + b"\n"
    assert (report["kind"], report["schema_version"], set(report)) == (
        "fednode-report",
        SCHEMA_VERSION,
        {"kind", "schema_version", "statement", "run"},
    )
    assert set(report["run"]) == {field.name for field in fields(RunRecord)}
    assert all(set(entry) == {field.name for field in fields(RoundRecord)} for entry in report["run"]["rounds"])


def test_schema_version_3_has_these_fields() -> None:
    """Whoever changes this list raises SCHEMA_VERSION: other people's programs read it."""
    entry = json.loads(render_json(sample_record()))["run"]["rounds"][4]
    assert SCHEMA_VERSION == 3
    assert " ".join(sorted(entry)) == (
        "accuracy asked_again bytes_down bytes_up charged clip discarded epsilon_after holders_answered "
        "holders_silent invited lost model_digest noise_added noise_planned outcome reason rejected "
        "renyi_after round seconds survivors"
    )
    assert entry["rejected"] == [
        {"name": "client-18", "reason": "damaged"},
        {"name": "client-19", "reason": "other-round"},
    ]


def test_it_comes_back_as_the_record_it_was_made_from() -> None:
    record = sample_record()
    data = render_json(record)
    assert parse_report(data) == record
    assert render_json(parse_report(data)) == data


def test_equal_records_give_equal_bytes() -> None:
    record = sample_record()
    shuffled = replace(record, settings=dict(reversed(list(record.settings.items()))))
    assert render_json(sample_record()) == render_json(record) == render_json(shuffled)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), np.float64("nan")])
def test_what_is_not_finite_is_refused_by_name(value: float) -> None:
    record = sample_record()
    broken = replace(record, rounds=(*record.rounds, sample_round(21, value)))
    with pytest.raises(ValueError, match=r"run\.rounds\[20\]\.epsilon_after is -?(nan|inf)"):
        render_json(broken)
    with pytest.raises(ValueError, match=r"run\.started"):
        render_json(replace(record, started=value))


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, np.int64(3), object(), {"nested": [b""]}, {3: "x"}])
def test_what_json_does_not_know_is_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"run\.settings"):
        render_json(replace(sample_record(), settings={"odd": value}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'{"kind":"fednode-report","schema_version":3,"run":{}}',
        b'{"kind":"fednode-report","schema_version":1,"run":{}}',
        b'{"kind":"other","schema_version":1}',
        render_json(sample_record()).replace(b'"outcome":"failed"', b'"outcome":"fine"'),
        render_json(sample_record()).replace(b'"invited":20', b'"invited":"20"'),
        render_json(sample_record()).replace(b'"clip":1.0', b'"clip":NaN'),
    ],
)
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="report"):
        parse_report(data)
