"""The sentences: every number, unit, neighbour and assumption is in them."""

from dataclasses import replace

import pytest
from kit.sample_record import sample_record

from fednode.reports.prose import meaning, statement


def test_the_statement_names_what_was_spent_for_whom_and_on_which_assumptions() -> None:
    text = statement(sample_record())
    for words in (
        "epsilon = 7.874 at delta = 1e-5",
        "budget of epsilon = 8",
        "unit of protection is one record",
        "neighbours if they differ by adding or removing one record",
        "distributed noise",
        "assuming that in each round, of at least 15 survivors",
        "at least 14 added their noise",
        "clipped each record to an L2 norm of 1",
        "no 4 of the 5 key holders",
        "bfv",
        "a node that lies is out of scope",
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


def test_a_run_without_a_release_does_not_speak_of_models() -> None:
    record = sample_record()
    guarantee = replace(record.guarantee, epsilon=0.0)
    text = statement(replace(record, rounds=(), guarantee=guarantee))
    assert "published 0 model versions" in text
    assert "What was charged is differentially private with epsilon = 0 at" in text
    assert "Together they" not in text


def test_what_is_spent_never_reads_as_less() -> None:
    record = sample_record()
    guarantee = replace(record.guarantee, epsilon=7.87401, attack_tpr=0.23671, attack_advantage=0.57101)
    text = statement(replace(record, guarantee=guarantee)) + " ".join(meaning(replace(record, guarantee=guarantee)))
    assert "epsilon = 7.875 at" in text
    assert "at most 23.7\N{NO-BREAK SPACE}% of those" in text
    assert "at most 0.572 on a scale" in text


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


def test_an_absurd_epsilon_is_still_written() -> None:
    record = sample_record()
    text = meaning(replace(record, guarantee=replace(record.guarantee, epsilon=1e6)))[-1]
    assert "e^1,000,000, but for" in text
