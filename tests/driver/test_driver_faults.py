"""Clients and holders that are silent, slow, broken or lying: the round goes on, and each is named with its reason."""

import numpy as np
import pytest
from kit import cohort as kit
from kit.cohort import FakeCohort, Size, check_released, failing

from fednode.errors import BudgetExhausted, Interrupted, OpeningRejected, StoreError, TooFewHolders
from fednode.privacy.journal import Journal
from fednode.protocol.envelope import Envelope
from fednode_crypto import scheme

pytestmark = pytest.mark.thorough


@pytest.fixture
def cohort(tmp_path):
    return FakeCohort(tmp_path, Size(clients=5, holders=3, threshold=2))


@pytest.mark.parametrize(
    ("conduct", "reason"),
    [
        (kit.breaking, "no-answer"),
        (kit.garbage, "malformed"),
        (kit.flipping(0.0), "malformed"),
        (kit.flipping(0.5), "damaged"),
        (kit.flipping(1.0), "damaged"),
        (kit.borrowing("client-2"), "stranger"),
        (kit.next_round, "another-round"),
        (kit.short_body, "bad-payload"),
    ],
)
def test_what_a_client_sends_is_counted_against_it(cohort, conduct, reason):
    cohort.tell("client-1", conduct)
    outcome = check_released(cohort, cohort.begun().run_round(1), {"client-1"})
    assert outcome.rejected == (("client-1", reason),) and outcome.lost == ()


def test_last_rounds_update_is_not_counted_again(cohort):
    cohort.tell("client-1", kit.stale, rounds={2})
    driver = cohort.begun()
    check_released(cohort, driver.run_round(1))
    outcome = check_released(cohort, driver.run_round(2), {"client-1"})
    assert outcome.rejected == (("client-1", "another-round"),)


def test_an_update_that_comes_twice_counts_once(cohort):
    cohort.tell("client-3", kit.repeating)
    outcome = check_released(cohort, cohort.begun().run_round(1))
    assert outcome.discarded == (("client-3", "repeat"),)


def test_a_slow_update_is_too_late_in_its_own_round(cohort):
    cohort.tell("client-4", kit.slow, rounds={1})
    driver = cohort.begun()
    first = driver.run_round(1)
    assert first.discarded == (("client-4", "late"),) and "client-4" not in first.survivors
    assert first.seconds >= cohort.size.terms().deadline
    check_released(cohort, driver.run_round(2))


def test_a_client_that_lost_the_task_says_so_and_gets_it_again(cohort):
    driver = cohort.begun()
    check_released(cohort, driver.run_round(1))
    cohort.folder("client-5").state.drop(f"task/{kit.TASK}")
    cohort.restart("client-5")
    assert driver.run_round(2).rejected == (("client-5", "refused: unknown-task"),)
    check_released(cohort, driver.run_round(3))


def test_down_to_the_minimum_and_not_below(cohort):
    for name in ("client-1", "client-2"):
        cohort.tell(name, kit.silent, rounds={1, 2})
    cohort.tell("client-3", kit.silent, rounds={2})
    driver = cohort.begun()
    check_released(cohort, driver.run_round(1), {"client-1", "client-2"})
    before = driver.parameters()
    outcome = driver.run_round(2)
    assert (outcome.cause, outcome.opened, outcome.release) == ("too-few-survivors", False, None)
    assert "2 of 5 updates arrived and 3 are the least" in outcome.reason
    assert outcome.lost == ("client-1", "client-2", "client-3")
    assert np.array_equal(driver.parameters(), before)
    assert {read[1].tag for read in cohort.asked("open")} == {f"{kit.TASK}/open/0", f"{kit.TASK}/open/1"}


@pytest.mark.parametrize(
    ("conduct", "reason"),
    [
        (kit.silent, "no-answer"),
        (kit.breaking, "no-answer"),
        (kit.garbage, "malformed"),
        (kit.flipping(0.5), "damaged"),
        (kit.borrowing("holder-1"), "stranger"),
        (kit.next_round, "another-request"),
        (kit.wrong_opening, "wrong-answer"),
        (kit.short_body, "bad-answer"),
        (kit.slow, "no-answer"),
    ],
)
def test_one_bad_holder_is_named_and_the_others_open(tmp_path, conduct, reason):
    cohort = FakeCohort(tmp_path, Size(holders=4, threshold=3))
    driver = cohort.begun()
    cohort.tell("holder-2", conduct, "open")
    outcome = check_released(cohort, driver.run_round(1))
    assert outcome.silent == (("holder-2", reason),)
    assert outcome.answered == ("holder-1", "holder-3", "holder-4")
    check_released(cohort, driver.run_round(2))


def test_too_few_holders_keep_the_charge_and_publish_nothing(cohort):
    node = cohort.node()
    driver = cohort.begun(node)
    for name in ("holder-1", "holder-2"):
        cohort.tell(name, kit.silent, "open", {1})
    outcome = driver.run_round(1)
    assert outcome.cause == "too-few-holders" and "1 of 3 holders answered and 2 are needed" in outcome.reason
    assert outcome.opened and outcome.release is None and len(node.ledger.entries) == 1
    check_released(cohort, driver.run_round(2))
    assert len(node.ledger.entries) == 2


@pytest.mark.parametrize("secure", [False, True])
def test_a_liar_among_just_enough_answers_is_caught_but_not_told_apart(tmp_path, secure):
    cohort = FakeCohort(tmp_path, Size(holders=3, threshold=2), scheme("bfv") if secure else None)
    node = cohort.node()
    driver = cohort.begun(node)
    cohort.tell("holder-1", kit.wrong_opening, "open")
    cohort.tell("holder-3", kit.silent, "open")
    outcome = driver.run_round(1)
    assert outcome.cause == "opening-rejected" and "not published" in outcome.reason
    assert outcome.release is None and len(node.ledger.entries) == 1
    cohort.tell("holder-3", kit.honest, "open")
    second = check_released(cohort, driver.run_round(2))
    assert second.silent == (("holder-1", "wrong-answer"),)


def test_a_well_formed_payload_of_junk_is_found_at_the_opening_and_published_by_nobody(tmp_path):
    cohort = FakeCohort(tmp_path, scheme=scheme("bfv"))
    driver = cohort.begun()
    cohort.tell("client-1", kit.saying(lambda spec, told: (spec, bytes(len(told.body) - 8) + told.body[-8:])))
    outcome = driver.run_round(1)
    assert outcome.cause == "opening-rejected" and outcome.release is None


def test_the_budget_stops_a_round_before_anyone_is_asked(cohort):
    one = cohort.task().event(cohort.size.terms(), cohort.size.min_survivors)
    probe = cohort.node()
    probe.ledger.charge(one, 1, cohort.size.client_names)
    spent = probe.ledger.spent
    probe.ledger.close()
    (cohort.root / "ledger.jsonl").unlink()
    (cohort.root / "ledger.head").unlink()
    node = cohort.node(epsilon=spent * 1.01)
    driver = cohort.begun(node)
    check_released(cohort, driver.run_round(1))
    asked = len(cohort.sent)
    with pytest.raises(BudgetExhausted, match="is the limit"):
        driver.run_round(2)
    assert len(cohort.sent) == asked and len(node.ledger.entries) == 1


def test_a_ledger_that_cannot_write_opens_nothing(cohort, monkeypatch):
    driver = cohort.begun()
    cohort.sent.clear()

    monkeypatch.setattr(Journal, "append", failing(StoreError("no space left on device")))
    with pytest.raises(StoreError, match="no space"):
        driver.run_round(1)
    assert not cohort.asked("open") and len(cohort.asked("round")) == 5


def test_a_member_whose_record_cannot_be_written_does_not_answer(cohort):
    driver = cohort.begun()
    (cohort.root / "keys" / "client-1" / "record.jsonl").mkdir()
    record = cohort.root / "keys" / "holder-1" / "record.jsonl"
    record.unlink()
    record.mkdir()
    outcome = check_released(cohort, driver.run_round(1), {"client-1"})
    # it does not take the task, and the round says why
    assert outcome.rejected == (("client-1", "refused: unknown-task"),)
    assert outcome.silent == (("holder-1", "refused: member-storage"),)


def test_a_stop_while_collecting_opens_and_charges_nothing(cohort):
    asked = []
    node = cohort.node(stop=lambda: bool(asked))
    driver = cohort.begun(node)
    cohort.tell("client-2", lambda *told: asked.append(1) or kit.honest(*told))
    outcome = driver.run_round(1)
    assert (outcome.cause, outcome.opened, outcome.lost) == ("stopped", False, ())
    assert node.ledger.entries == () and not node.updates.ids()


@pytest.mark.parametrize("kind", ["key-commit", "key-reveal", "key-join", "key-check"])
@pytest.mark.parametrize("conduct", [kit.silent, kit.garbage, kit.flipping(0.5), kit.borrowing("holder-1")])
def test_the_ceremony_needs_every_holder_and_names_the_missing(cohort, kind, conduct):
    cohort.tell("holder-2", conduct, kind)
    node = cohort.node()
    with pytest.raises(TooFewHolders, match=r"holder-2.*start again"):
        cohort.begun(node)
    assert not cohort.asked("task") and node.ledger.entries == ()


def test_a_stop_during_the_ceremony_is_not_the_holders_fault(cohort):
    cohort.tell("holder-2", kit.silent, "key-reveal")
    with pytest.raises(Interrupted, match="joint key"):
        cohort.begun(cohort.node(stop=lambda: True))
    assert not cohort.asked("task")


def test_a_key_that_does_not_open_the_known_vector_is_not_used(cohort):
    for name in cohort.size.holder_names:
        cohort.tell(name, kit.wrong_opening, "open", {0})
    with pytest.raises(OpeningRejected):
        cohort.begun()
    assert not cohort.asked("task")


def test_a_key_under_which_something_else_comes_out_is_not_used(cohort):
    cohort.tell("holder-2", kit.saying(lambda spec, told: (spec, bytes(len(told.body)))), "key-check")
    with pytest.raises(OpeningRejected, match="known vector"):
        cohort.begun()
    assert not cohort.asked("task")


def test_the_ceremony_survives_a_holder_that_restarts_between_its_steps(cohort):
    for kind in ("key-commit", "key-reveal", "key-join"):
        cohort.tell("holder-1", kit.reborn, kind)
    driver = cohort.begun()
    check_released(cohort, driver.run_round(1))
    first, second = cohort.said["holder-1", "key-commit"]
    assert Envelope.from_bytes(first, 64).body == Envelope.from_bytes(second, 64).body
