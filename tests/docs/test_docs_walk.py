"""The walk has its steps, and a link goes with the name of every file the first time it is named."""

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WALK = (ROOT / "docs/walk.md").read_text(encoding="utf-8")
STEP = re.compile(r"^(\d+)\. \*\*", re.MULTILINE)


def test_the_steps_are_numbered_from_one_without_a_gap():
    numbers = [int(number) for number in STEP.findall(WALK)]
    assert numbers == list(range(1, len(numbers) + 1)) and 20 <= len(numbers) <= 25


def test_every_step_names_code():
    steps = re.split(r"^\d+\. ", WALK, flags=re.MULTILINE)[1:]
    assert [step[:40] for step in steps if not re.search(r"`[\w/]+\.py: \w", step)] == []


def test_a_link_leads_to_the_file_that_its_text_names():
    pairs = re.findall(r"\[`([\w/.-]+\.py)(?:: [\w.]+)?`\]\(([^)]+)\)", WALK)
    assert len(pairs) >= 20
    assert [pair for pair in pairs if pair[1] != f"../{pair[0]}"] == []


def test_every_file_is_linked_where_it_is_named_first():
    first: dict[str, str] = {}
    for before, path in re.findall(r"(\[?)`([\w/.-]+\.py): ", WALK):
        first.setdefault(path, before)
    assert [path for path, before in first.items() if before != "["] == []


def rows_under(title: str) -> list[list[str]]:
    """The cells of the first table after `title`, without its head."""
    lines = WALK[WALK.index(title) :].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|--"))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 1 :])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_an_update_passes_each_room_once():
    rooms = [room for _, room, _ in rows_under("One update passes these rooms")]
    steps = [int(step) for cells in rows_under("One update passes these rooms") for step in cells[0].split(", ")]
    assert len(rooms) == len(set(rooms)) >= 7 and steps == sorted(steps)


@pytest.mark.parametrize(("column", "name"), [(1, "epsilon"), (2, "staleness"), (3, "min_survivors")])
def test_a_setting_passes_at_most_eight_modules_that_all_know_it(column, name):
    cells = {row[0]: row[column] for row in rows_under("## One setting, from flag to use")}
    enforcing = [cells.pop("enforced by the node"), cells.pop("enforced by members")]
    paths = [match[1] for cell in cells.values() if (match := re.match(r"`([\w/]+\.py)`", cell))]
    assert 5 <= len(paths) <= 8
    paths += re.findall(r"`(\w+/[\w/]+\.py)`", " ".join(enforcing))
    # the front of the settings takes all of them alike
    alike = {"fednode/cli/run.py", "fednode/settings/sources.py"}
    assert [path for path in paths if name not in (ROOT / path).read_text() and path not in alike] == []
