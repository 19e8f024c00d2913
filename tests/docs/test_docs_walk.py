"""The walk has its steps, and a link goes with the name of every file the first time it is named."""

import re
from pathlib import Path

WALK = (Path(__file__).resolve().parents[2] / "docs/walk.md").read_text(encoding="utf-8")
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
