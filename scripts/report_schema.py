"""Print docs/report.schema.json: run `python -m scripts.report_schema > docs/report.schema.json`."""

import json

from pydantic import TypeAdapter

from fednode.reports import SCHEMA_VERSION, RunRecord


def schema() -> dict[str, object]:
    """The schema of report.json, as it has to stand in docs/report.schema.json."""
    run = TypeAdapter(RunRecord).json_schema()
    kinds = {name: _closed(kind) for name, kind in run.pop("$defs").items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"report.json of FedNode, schema version {SCHEMA_VERSION}",
        "type": "object",
        "additionalProperties": False,
        "required": ["kind", "run", "schema_version", "statement"],
        "properties": {
            "kind": {"const": "fednode-report"},
            "schema_version": {"const": SCHEMA_VERSION},
            "statement": {"type": "string", "description": "The statement of the page, on one line."},
            "run": _closed(run),
        },
        "$defs": kinds,
    }


def _closed(kind: dict[str, object]) -> dict[str, object]:
    """An object of these fields, all of which are written, and of no others."""
    fields = dict(kind["properties"])  # type: ignore[call-overload]
    bare = {name: {key: part for key, part in field.items() if key != "title"} for name, field in fields.items()}
    return kind | {"additionalProperties": False, "required": sorted(bare), "properties": bare}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1, sort_keys=True))
