"""docs/attacks.md names every attack there is, and no other."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = [line for line in (ROOT / "docs/attacks.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")][
    2:
]
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/attacks").rglob("test_*.py"))


def named(row: str) -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py)`", row)


def test_every_module_has_one_row_and_every_row_one_module():
    assert sorted(name for row in ROWS for name in named(row)) == MODULES
    assert all(len(named(row)) == 1 for row in ROWS) and len(MODULES) >= 14


def test_every_row_says_what_failed_and_what_the_control_is():
    for row in ROWS:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == 4 and all(len(cell) > 15 for cell in cells), row


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_who_attacks_and_has_a_control(module):
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    words = ast.get_docstring(tree) or ""
    assert "Attacker" in words and "Success" in words and "ontrol:" in words
    tests = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    assert any(name.startswith("test_control_") for name in tests) and len(tests) >= 3
