"""The sentences: every number, unit, neighbour and assumption is in them."""

from dataclasses import replace

import pytest
from kit.sample_record import sample_record

from fednode.assemble.enrolment import HOW_ENROLLED
from fednode.reports.prose import meaning, statement
from fednode.reports.record import ONE_MACHINE
from fednode.reports.tables import guarantee_rows


def test_the_statement_names_what_was_spent_for_whom_and_on_which_assumptions() -> None:
    text = statement(sample_record())
    for words in (
        "epsilon = 7.874 at delta = 1e-5",
        "budget of epsilon = 8",
        "unit of protection is one record",
        "neighbours if they differ by adding or removing one record",
        "distributed noise",
        "assuming that in each round that was charged all survivors but at most 1 added their noise as specified",
        "kept it to themselves (at least 15 in every round)",
        "No round of fewer than 15 survivors was opened",
        "whole budget of epsilon = 8 holds even if every round has only that many, of whom 14 add their noise",
        "This epsilon is for this run alone: every other run on the same records, earlier or later, adds to it.",
        "clipped each record to an L2 norm of 1",
        "no 4 of the 5 key holders",
        "bfv",
        "a node that lies is out of scope",
        "It is a standard scheme, read by many; about 128 bits.",
        "3,600 records held by 20 clients",
        "18 model versions",
        "2023-11-14 22:13:20 UTC",
        "verified, attested or assumed",
    ):
        assert words in text
    assert "\n" not in text


def test_rounds_that_cost_and_gave_nothing_are_counted() -> None:
    record = sample_record()
    assert [entry.round for entry in record.charged_in_vain] == [16]
    assert "includes 1 round that cost budget and published nothing" in statement(record)
    planned = replace(record, rounds=record.rounds[:8])
    assert "published nothing" not in statement(planned)


def test_the_epsilon_spent_names_the_noise_it_was_priced_with() -> None:
    record = sample_record()
    full = replace(record, rounds=record.rounds[:4])
    assert "(at least 19 in every round)" in statement(full)
    without = replace(full, mechanism=replace(full.mechanism, assumed_colluders=0))
    assert "charged all survivors added their noise as specified" in statement(without)
    assert "(at least 20 in every round)" in statement(without)


def test_a_round_that_was_not_charged_does_not_lower_the_noise() -> None:
    record = sample_record()
    assert len(record.rounds[8].survivors) == 13
    assert record.rounds[8] not in record.charged
    assert "(at least 15 in every round)" in statement(record)


def test_a_study_on_one_machine_says_so_before_anything_else() -> None:
    record = sample_record()
    assert statement(record).startswith("This was a study on one machine: ")
    real = replace(record, trust=replace(record.trust, enrolment="each organisation made its own key"), settings={})
    assert statement(real).startswith("Between ")
    assert "no single party was trusted with the noise" in statement(real)
    assert "by the node's plan (which records a client used is its own word)" in statement(real)
    assert "plan" not in statement(record).partition(" who handed over")[0]
    assert "in a deployment no single party is then trusted" in statement(record)
    assert HOW_ENROLLED.startswith(ONE_MACHINE)


def test_injected_faults_are_in_the_paragraph() -> None:
    record = sample_record()
    told = "2 faults were injected on purpose (lost-before-upload@5:client-17, garbage@5:client-18)."
    assert told in statement(record)
    one = replace(record, settings={"faults": ["garbage@2:client-04"]})
    assert "1 fault was injected on purpose (garbage@2:client-04)." in statement(one)
    many = replace(record, settings={"faults": ["garbage@2:client-04"] * 7})
    assert "7 faults were injected on purpose (listed with the settings)." in statement(many)
    assert "injected" not in statement(replace(record, settings={"faults": []}))


def test_one_version_is_not_together() -> None:
    record = sample_record()
    text = statement(replace(record, rounds=record.rounds[:1]))
    assert "published 1 model version, one" in text
    assert "It is differentially private with" in text


def test_a_run_that_released_and_charged_nothing_promises_nothing() -> None:
    record = sample_record()
    empty = replace(record, rounds=(record.rounds[8],), guarantee=replace(record.guarantee, epsilon=0.0))
    empty = replace(empty, rounds=(replace(empty.rounds[0], epsilon_after=0.0),))
    for nothing in (empty, replace(empty, rounds=())):
        text = statement(nothing)
        assert "Nothing was released: no model version was published." in text
        assert "Nothing was charged to the budget of epsilon = 8 at delta = 1e-5." in text
        assert "differentially private" not in text
        assert "epsilon spent" not in text
        assert "That the updates stay sealed assumes that no 4 of the 5 key holders" in text
        (told,) = meaning(nothing)
        assert "Nothing was charged either." in told
        assert "strong" not in told


def test_a_run_that_released_nothing_says_what_was_charged() -> None:
    record = sample_record()
    vain = replace(record, rounds=(record.rounds[15],), guarantee=replace(record.guarantee, epsilon=2.1))
    text = statement(vain)
    assert "Nothing was released" in text
    assert "1 round cost budget all the same: epsilon = 2.1 at delta = 1e-5, out of a budget of epsilon = 8" in text
    assert "(at least 19 in every round)" in text
    (told,) = meaning(vain)
    assert "An epsilon of 2.1 was charged" in told
    assert "recognises" not in told
    rows = dict(guarantee_rows(vain))
    assert rows["View of an attacker"] == "none: nothing was released"
    assert "Members recognised at 1 % false alarms" not in rows


def test_figures_of_the_gaussian_reference_are_not_sold_as_proven() -> None:
    record = sample_record()
    rows = dict(guarantee_rows(record))
    assert rows["Members recognised at 1 % false alarms"] == "23.7\N{NO-BREAK SPACE}%, by the Gaussian reference"
    assert rows["Advantage of an attacker"].endswith("by the Gaussian reference")
    assert meaning(record)[0].count("By the Gaussian reference") == 1
    assert "at most" not in meaning(record)[0]


def test_the_budget_row_says_what_is_left_rounded_down() -> None:
    record = sample_record()
    rows = dict(guarantee_rows(replace(record, guarantee=replace(record.guarantee, epsilon=6.6785))))
    assert rows["Budget"] == "epsilon 8 at delta 1e-5; 1.321 left"


def test_what_is_spent_never_reads_as_less() -> None:
    record = sample_record()
    guarantee = replace(record.guarantee, epsilon=7.87401, attack_tpr=0.23671, attack_advantage=0.57101)
    text = statement(replace(record, guarantee=guarantee)) + " ".join(meaning(replace(record, guarantee=guarantee)))
    assert "epsilon = 7.875 at" in text
    assert "recognises 23.7\N{NO-BREAK SPACE}% of those" in text
    assert "is 0.572 on a scale" in text


@pytest.mark.parametrize(
    ("epsilon", "words"),
    [
        (0.5, "strong formal guarantee"),
        (1.0, "strong formal"),
        (8.0, "reasonable guarantee"),
        (10.01, "weak guarantee"),
    ],
)
def test_the_number_is_put_into_its_tier(epsilon: float, words: str) -> None:
    record = sample_record()
    assert words in meaning(replace(record, guarantee=replace(record.guarantee, epsilon=epsilon)))[-1]


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_a_large_delta_has_no_tier(epsilon: float) -> None:
    record = sample_record()
    large = replace(record, guarantee=replace(record.guarantee, epsilon=epsilon, delta=1e-3))
    told = meaning(large)[-1]
    assert "delta is too large to call this a strong or a reasonable guarantee" in told
    assert "3,600 records is 3.6," in told
    assert "tiers" not in told
    assert "tiers" in meaning(replace(large, task=replace(large.task, records=100)))[-1]


def test_an_absurd_epsilon_is_still_written() -> None:
    record = sample_record()
    text = meaning(replace(record, guarantee=replace(record.guarantee, epsilon=1e6)))[-1]
    assert "e^1,000,000, but for" in text


def test_a_release_whose_model_was_not_kept_is_not_called_published_without_a_word() -> None:
    record = sample_record()
    words = "One was not saved or not tested: the deviations say why."
    assert words not in statement(record)
    last = replace(record.rounds[-1], accuracy=None)
    assert words in statement(replace(record, rounds=(*record.rounds[:-1], last)))
