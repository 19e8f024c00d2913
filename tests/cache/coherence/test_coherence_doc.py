"""The tables of docs/coherence.md are what the search met, row by row and figure by figure."""

import re
from pathlib import Path

import pytest
from kit.coherence.instances import INSTANCES, ROUNDS, SLOW, SLOW_ROUNDS, found, rounds_found

pytestmark = pytest.mark.thorough

DOC = (Path(__file__).resolve().parents[3] / "docs/coherence.md").read_text(encoding="utf-8")


def rows_of(heading: str) -> list[list[str]]:
    section = DOC.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def transitions_of(heading: str) -> list[tuple[str, str, str, str]]:
    found = []
    for state, event, outcomes in rows_of(heading):
        for outcome in outcomes.split("; "):
            following, _, said = outcome.partition(": ")
            found.append((state, event, following, said or "nothing"))
    return found


def test_the_directorys_table_is_what_the_search_met():
    written = transitions_of("The directory's transitions")
    met = set().union(*(found(name).rows.directory for name in INSTANCES))
    assert sorted(written) == sorted(met) and len(written) >= 30


def test_the_agents_table_is_what_the_search_met():
    written = transitions_of("The agent's transitions")
    met = set().union(*(found(name).rows.agent for name in INSTANCES))
    assert sorted(written) == sorted(met) and len(written) >= 20


def test_the_figures_are_those_of_this_search():
    assert figures("What the search covers") == {name: three(found(name)) for name in INSTANCES}


def figures(heading: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(int(cell.replace(",", "")) for cell in cells) for name, *cells in rows_of(heading)}


def three(covered) -> tuple[int, int, int]:
    return covered.states, covered.transitions, covered.depth


def test_the_figures_of_rounds_are_those_of_this_search():
    assert figures("What the search of rounds covers") == {name: three(rounds_found(name)) for name in ROUNDS}


def test_every_larger_instance_has_its_figures():
    assert figures("Larger instances").keys() == {*SLOW, *SLOW_ROUNDS}


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", [*SLOW, *SLOW_ROUNDS])
def test_the_figures_of_larger_instances_are_those_of_this_search(name):
    covered = found(name) if name in SLOW else rounds_found(name)
    assert figures("Larger instances")[name] == three(covered)


def test_the_steps_to_the_planted_faults_are_named():
    assert re.findall(r"after (\d+)\s+steps", DOC) == ["7", "9"] and re.findall(r"\((\d+) steps\)", DOC) == ["6", "7"]
