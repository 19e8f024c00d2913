"""`report.json`: canonical and versioned; reading it gives the record from which it was made."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TypeVar

from fednode.errors import DataError
from fednode.reports.page import statement
from fednode.reports.run_record import AuditFound, RunRecord
from fednode.wire import canonical

SCHEMA_VERSION = 3
_KIND = "fednode-report"
_T = TypeVar("_T")


def render_json(record: RunRecord) -> bytes:
    """The report as canonical JSON (sorted keys, ASCII, no NaN) with a line feed at the end.

    Equal records give equal bytes. Raises `ValueError`, naming the field, for NaN, infinity or types unknown to JSON.
    """
    run = _plain(record, "run")
    report = {"kind": _KIND, "schema_version": SCHEMA_VERSION, "statement": statement(record), "run": run}
    return canonical(report) + b"\n"


def parse_report(data: bytes) -> RunRecord:
    """The record in a `report.json`. Raises `DataError` if a field is missing or of another type."""
    try:
        report = json.loads(data)
        if report["kind"] != _KIND or report["schema_version"] != SCHEMA_VERSION:
            raise DataError(
                f"not a report of schema version {SCHEMA_VERSION}; read it with the FedNode version that wrote it"
            )
        return _checked(RunRecord, report["run"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"the report cannot be read ({type(error).__name__}); remove it, and `fednode report` makes it again from "
            "the notes of the run"
        ) from error


def parse_audit(data: bytes) -> AuditFound:
    """What `fednode audit` wrote. Raises `ValueError` for anything else."""
    found = json.loads(data)
    return _checked(AuditFound, {field.name: found[field.name] for field in fields(AuditFound)})


def to_line(value: object) -> bytes:
    """A record, or a part of one, as canonical JSON on one line. Raises `ValueError` as `render_json` does."""
    return canonical({"value": _plain(value, "value")})


def from_line(kind: type[_T], line: bytes) -> _T:
    """What `to_line` made of a value of this kind. Raises `ValueError` for anything else."""
    return _checked(kind, json.loads(line)["value"])


def _checked(kind: type[_T], found: object) -> _T:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_json(json.dumps(found, allow_nan=False), strict=True)


def _plain(value: object, where: str) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}; a report holds finite numbers only")
    if value is None or isinstance(value, str | int | float):
        return value
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name), f"{where}.{field.name}") for field in fields(value)}
    if isinstance(value, Mapping):
        return {_key(key, where): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise ValueError(f"{where} is a {type(value).__name__}; a report holds text, numbers, lists and tables only")


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{where} has the key {key!r}; a report's keys are text")
    return key
