"""The codes of refusals: one list, used everywhere, written down for readers."""

import ast
from pathlib import Path

import pytest

from fednode.reasons import Reason
from scripts.house_source import dotted_name, python_files
from scripts.refusals import page

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [source for source in python_files(ROOT) if source.is_shipped]


def test_the_page_of_refusals_is_made_from_the_codes():
    assert (ROOT / "docs" / "refusals.md").read_text(encoding="utf-8") == page()


def test_no_fault_is_raised_under_a_bare_string():
    calls = [
        (source.path, node.lineno)
        for source in SHIPPED
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and dotted_name(node.func) in {"PeerFault", "Reject", "Discard"}
        if any(isinstance(argument, ast.Constant) for argument in node.args[:-1] or node.args)
    ]
    assert calls == []


@pytest.mark.parametrize("reason", list(Reason))
def test_every_code_is_used_and_has_a_meaning(reason: Reason):
    used = [source.path for source in SHIPPED if f"Reason.{reason.name}" in source.text]
    assert used and reason.meaning.endswith(".") and reason == reason.value
