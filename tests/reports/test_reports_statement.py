"""The paragraph to sign: every number, unit, neighbour and assumption is in it."""

from dataclasses import replace

import pytest
from kit.sample_record import sample_record

from fednode.assemble.enrolment import HOW_ENROLLED
from fednode.reports.page import statement
from fednode.reports.run_record import ONE_MACHINE, RunRecord
from fednode.units import UNITS


def of_rounds(*numbers: int, **changes: object) -> RunRecord:
    record = sample_record()
    return replace(record, rounds=tuple(record.rounds[number] for number in numbers), **changes)


def test_it_names_what_was_spent_for_whom_and_on_which_assumptions() -> None:
    record = sample_record()
    text = statement(record)
    for words in (
        "epsilon = 7.874 at delta = 1e-5",
        "budget of epsilon = 8",
        "unit of protection is one record",
        f"differ by {record.guarantee.adjacency}",
        f"setting is {record.guarantee.setting}",
        "all survivors but at most 1 added their noise as specified",
        "at least 15 in every round",
        "fewer than 15 survivors",
        "of whom 14 add their noise",
        "for this run alone",
        "clipped what each record adds to an L2 norm of 1.",
        "no 4 of the 5 key holders",
        f"secure sum (bfv) withstands {record.trust.adversary}.",
        record.trust.strength,
        "3,600 records held by 20 clients, who handed over",
        "18 model versions",
        "2023-11-14 22:13:20 UTC",
        "verified, attested or assumed",
    ):
        assert words in text
    assert "\n" not in text and "  " not in text and " ," not in text and " ." not in text


def test_rounds_that_cost_and_gave_nothing_are_counted() -> None:
    record = sample_record()
    assert [entry.round for entry in record.charged_in_vain] == [16]
    assert "includes 1 round that cost budget" in statement(record)
    assert "cost budget" not in statement(of_rounds(*range(8)))


def test_the_epsilon_spent_names_the_noise_it_was_priced_with() -> None:
    full = of_rounds(0, 1, 2, 3)
    assert "at least 19 in every round" in statement(full)
    without = statement(replace(full, mechanism=replace(full.mechanism, assumed_colluders=0)))
    assert "all survivors added their noise" in without and "at least 20 in every round" in without


def test_a_round_that_was_not_charged_does_not_lower_the_noise() -> None:
    record = sample_record()
    assert len(record.rounds[8].survivors) == 13 and record.rounds[8] not in record.charged
    assert "at least 15 in every round" in statement(record)


def test_a_study_on_one_machine_says_so_before_anything_else() -> None:
    record = sample_record()
    study, real = (
        statement(record),
        statement(replace(record, trust=replace(record.trust, enrolment="each made its own key"), settings={})),
    )
    assert study.startswith("This was a study on one machine: ") and real.startswith("Between ")
    assert "no single party was trusted" in real and "in a deployment no single party is trusted" in study
    assert "by the node's plan" in real and "by the node's plan" not in study
    assert HOW_ENROLLED.startswith(ONE_MACHINE)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (["garbage@5:client-1", "dead@5:client-2"], "2 faults were injected on purpose (garbage@5:client-1, dead@5:"),
        (["garbage@2:client-04"], "1 fault was injected on purpose (garbage@2:client-04)."),
        (["garbage@2:client-04"] * 7, "7 faults were injected on purpose (listed with the settings)."),
    ],
)
def test_injected_faults_are_named(faults: list[str], words: str) -> None:
    assert words in statement(replace(sample_record(), settings={"faults": faults}))
    assert "injected" not in statement(replace(sample_record(), settings={"faults": []}))


def test_a_round_counts_as_charged_also_where_it_raised_nobodys_cost() -> None:
    record = of_rounds(0, 15)
    level = replace(record, rounds=tuple(replace(entry, epsilon_after=0.5) for entry in record.rounds))
    assert [entry.round for entry in level.charged] == [1, 16] and len(level.charged_in_vain) == 1


def test_one_version_is_not_together() -> None:
    assert "1 model version, one" in (text := statement(of_rounds(0))) and "It is differentially private with" in text


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (
            "customer",
            ("about 3,600 customers held by 20 clients", "clipped what each customer adds to", "one customer;"),
        ),
        ("client", (": 20 clients, who handed over", "clipped its update to an L2 norm", "one client; two data sets")),
    ],
)
def test_the_statement_speaks_of_the_unit_that_was_protected(unit: str, words: tuple[str, ...]) -> None:
    record = sample_record()
    claim = replace(record.guarantee, unit=unit, adjacency=UNITS[unit].differ)
    text = statement(replace(record, guarantee=claim))
    assert all(part in text for part in (*words, UNITS[unit].differ)), text


@pytest.mark.parametrize("numbers", [(8,), ()])
def test_a_run_that_released_and_charged_nothing_promises_nothing(numbers: tuple[int, ...]) -> None:
    record = of_rounds(*numbers)
    text = statement(record)
    assert "no model version was published" in text
    assert "Nothing was charged to the budget of epsilon = 8 at delta = 1e-5." in text
    assert "differentially private" not in text and "epsilon spent" not in text
    assert "That the updates stay sealed assumes that no 4 of the 5 key holders" in text


def test_a_run_that_released_nothing_says_what_was_charged() -> None:
    record = of_rounds(15)
    text = statement(replace(record, guarantee=replace(record.guarantee, epsilon=2.1)))
    assert "Nothing was released" in text and "at least 19 in every round" in text
    assert "1 round cost budget all the same: epsilon = 2.1 at delta = 1e-5, out of a budget of epsilon = 8" in text


def test_a_release_whose_model_was_not_kept_is_not_called_published_without_a_word() -> None:
    record = sample_record()
    assert "One was not saved or not tested" in statement(replace(record, unfinished=(20,)))
    assert "Some were not saved or not tested" in statement(replace(record, unfinished=(19, 20)))
    # a node without test records measures no accuracy, and its models are saved
    unmeasured = tuple(replace(entry, accuracy=None) for entry in record.rounds)
    assert "not saved or not tested" not in statement(replace(record, rounds=unmeasured))
