"""What the documents name is there: files, functions, tests, links."""

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {".git", ".venv", ".hypothesis", "runs", "build", "dist", "node_modules"}
PLACE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+)(?:: ([\w.]+))?`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```", re.DOTALL)


def documents() -> list[Path]:
    found = [path for path in ROOT.rglob("*.md") if not SKIPPED & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in found if not any(part.endswith("_cache") for part in path.parts))


def walked() -> list[Path]:
    return [ROOT / "docs/walk.md", ROOT / "docs/threats.md", *sorted((ROOT / "docs/adr").glob("0*.md"))]


@lru_cache(maxsize=256)
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def is_defined(body: list[ast.stmt], names: list[str]) -> bool:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == names[0]:
            return len(names) == 1 or is_defined(node.body, names[1:])
    return False


@pytest.mark.parametrize("document", walked(), ids=lambda path: path.name)
def test_every_file_and_function_that_is_named_exists(document):
    wrong = []
    for place, name in PLACE.findall(document.read_text(encoding="utf-8")):
        if place.startswith("runs/"):
            continue
        path = ROOT / place
        if not path.exists():
            wrong.append(place)
        elif name and not is_defined(parsed(path).body, name.split(".")):
            wrong.append(f"{place}: {name}")
    assert not wrong


def test_the_search_for_names_finds_what_is_not_there():
    body = parsed(ROOT / "fednode/driver/round_run.py").body
    assert is_defined(body, ["RoundRun", "_charge"]) and is_defined(body, ["RoundRun"])
    assert not is_defined(body, ["RoundRun", "_discharge"]) and not is_defined(body, ["_charge"])
    assert PLACE.findall("see `fednode/round.py: Round.handle` and `docs/walk.md`, not `Round.handle`") == [
        ("fednode/round.py", "Round.handle"),
        ("docs/walk.md", ""),
    ]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document):
    text = CODE.sub("", document.read_text(encoding="utf-8"))
    targets = [link.partition("#")[0] for link in LINK.findall(text) if "://" not in link]
    assert [target for target in targets if target and not (document.parent / target).exists()] == []
