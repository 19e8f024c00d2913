"""The ledger: what it writes, what it refuses, what it gives back after it was closed."""

import copy
import json
import os
import pickle
import stat
from dataclasses import replace

import pytest
from kit.clocks import FakeClock

from fednode.errors import BudgetExhausted, ConfigError, StoreError
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger, Receipt, epsilon, renyi_epsilon

BUDGET = Budget(8.0, 1e-5)
EVENT = DiscreteGaussianSum(1.0, 16, 20_500, 2_063_600_292, 15, 2.0**-110)
NAMES = tuple(f"client-{n:02d}" for n in range(15))


def opened(path, budget: Budget = BUDGET, task: str = "intents") -> Ledger:
    return Ledger.open(path, budget, FakeClock(), task)


def charged(path, rounds: int) -> bytes:
    """A ledger with this many rounds in it; its bytes."""
    with opened(path) as ledger:
        for number in range(1, rounds + 1):
            ledger.charge(EVENT, number, NAMES)
    return path.read_bytes()


def test_a_charge_is_on_the_disk_and_in_the_receipt(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with opened(path) as ledger:
        receipt = ledger.charge(EVENT, 1, NAMES)
        header, line = path.read_bytes().splitlines()
        spent = epsilon([EVENT], 1e-5)
        assert (receipt.task, receipt.round_number, receipt.delta) == ("intents", 1, 1e-5)
        assert receipt.entry_hash == ledger.head == json.loads(line)["hash"]
        assert receipt.epsilon_after == ledger.spent == spent == json.loads(line)["epsilon_after"]
        assert ledger.renyi_spent == renyi_epsilon([EVENT], 1e-5) > spent
        assert json.loads(line)["survivors"] == list(NAMES)
        assert json.loads(line)["event"] == EVENT.to_dict()
        assert json.loads(header)["budget"] == BUDGET.to_dict()
        assert json.loads(line)["previous"] == json.loads(header)["hash"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_reopening_gives_everything_back(tmp_path):
    path = tmp_path / "ledger.jsonl"
    events = [EVENT, replace(EVENT, contributors=17, clip=0.1 + 0.2), replace(EVENT, contributors=20)]
    with opened(path) as ledger:
        for number, event in enumerate(events, start=3):
            ledger.charge(event, number, tuple(f"c{n}" for n in range(20)))
        before = (ledger.entries, ledger.head, ledger.spent, ledger.renyi_spent)
        assert [entry.charge.event for entry in ledger.entries] == events
    content = path.read_bytes()
    with opened(path) as ledger:
        assert (ledger.entries, ledger.head, ledger.spent, ledger.renyi_spent) == before
        assert ledger.repair is None
        assert [entry.charge.round_number for entry in ledger.entries] == [3, 4, 5]
    assert path.read_bytes() == content


def test_a_calibrated_run_fits_to_the_last_round_and_no_further(tmp_path):
    path = tmp_path / "ledger.jsonl"
    content = charged(path, 20)
    with opened(path) as ledger:
        assert 7.999 < ledger.spent <= 8.0
        with pytest.raises(BudgetExhausted, match=r"8\.0000 .* 20 .* 8\.2\d+ .* 8 "):
            ledger.charge(EVENT, 21, NAMES)
        assert len(ledger.entries) == 20
        assert path.read_bytes() == content
        ledger.charge(replace(EVENT, local_variance=2**100), 21, NAMES)


def test_a_plan_can_be_checked_before_any_task_is_sent(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with opened(path) as ledger:
        content = path.read_bytes()
        ledger.check([EVENT] * 20)
        ledger.check([])
        with pytest.raises(BudgetExhausted, match="intents"):
            ledger.check([EVENT] * 21)
        with pytest.raises(BudgetExhausted, match="inf "):
            ledger.check([replace(EVENT, failure=1e-5)])
        assert ledger.spent == 0.0
        assert path.read_bytes() == content


@pytest.mark.parametrize("number", [3, 2, 0, -1, 2.0, True, None])
def test_a_round_that_is_not_a_later_one_is_refused(tmp_path, number):
    path = tmp_path / "ledger.jsonl"
    content = charged(path, 3)
    with opened(path) as ledger:
        with pytest.raises(ValueError, match="round"):
            ledger.charge(EVENT, number, NAMES)
        assert len(ledger.entries) == 3
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "survivors",
    [(), NAMES[:14], (*NAMES[:14], NAMES[0]), (*NAMES[:14], ""), (*NAMES[:14], "a\nb"), (*NAMES[:14], 7), list(NAMES)],
    ids=["none", "fewer than counted", "twice", "blank", "two lines", "number", "list"],
)
def test_survivors_must_be_names_and_enough(tmp_path, survivors):
    path = tmp_path / "ledger.jsonl"
    with opened(path) as ledger:
        content = path.read_bytes()
        with pytest.raises(ValueError, match="surviv"):
            ledger.charge(EVENT, 1, survivors)
        assert path.read_bytes() == content
        assert ledger.spent == 0.0


def test_another_task_or_budget_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    content = charged(path, 1)
    for budget, task in ((BUDGET, "other"), (Budget(9.0, 1e-5), "intents"), (Budget(8.0, 1e-6), "intents")):
        with pytest.raises(ConfigError, match="intents"):
            opened(path, budget, task)
    assert path.read_bytes() == content
    opened(path).close()


def test_a_receipt_comes_from_a_ledger_only(tmp_path):
    with opened(tmp_path / "ledger.jsonl") as ledger:
        receipt = ledger.charge(EVENT, 1, NAMES)
    with pytest.raises(TypeError):
        Receipt("intents", 1, "0" * 64, 0.0, 1e-5)
    with pytest.raises(TypeError):
        Receipt("intents", 1, "0" * 64, 0.0, 1e-5, mint=object())
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(receipt)
    with pytest.raises((TypeError, ValueError)):
        replace(receipt, round_number=2)


def test_a_closed_ledger_takes_nothing_more(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with opened(path) as ledger:
        ledger.charge(EVENT, 1, NAMES)
    content = path.read_bytes()
    with pytest.raises(StoreError, match="closed"):
        ledger.charge(EVENT, 2, NAMES)
    ledger.close()
    assert ledger.spent > 0.0
    assert path.read_bytes() == content


def test_two_that_charge_one_file_see_each_other(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with opened(path) as one, opened(path) as other:
        one.charge(EVENT, 1, NAMES)
        with pytest.raises(ValueError, match="round 1"):
            other.charge(EVENT, 1, NAMES)
        other.charge(EVENT, 2, NAMES)
        one.check(())
        assert one.head == other.head and len(one.entries) == 2


def test_a_file_that_changes_while_in_use_is_noticed(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with opened(path) as ledger:
        with path.open("ab") as other:
            other.write(b"{}\n")
        with pytest.raises(StoreError):
            ledger.charge(EVENT, 1, NAMES)
        os.truncate(path, path.stat().st_size - 3)
        ledger.charge(EVENT, 1, NAMES)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        with pytest.raises(StoreError, match="was cut while in use"):
            ledger.charge(EVENT, 2, NAMES)
        path.write_bytes(whole)
        moved = path.rename(tmp_path / "elsewhere.jsonl")
        with pytest.raises(StoreError):
            ledger.charge(EVENT, 2, NAMES)
        moved.rename(path)
        ledger.charge(EVENT, 2, NAMES)
    with opened(path) as ledger:
        assert len(ledger.entries) == 2


def test_places_where_no_ledger_can_be(tmp_path):
    for place in (tmp_path / "no" / "folder" / "ledger.jsonl", tmp_path):
        with pytest.raises(StoreError):
            opened(place)


def test_a_blank_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match="name"):
        opened(tmp_path / "ledger.jsonl", task=" ")


def test_an_unknown_mechanism_is_refused(tmp_path):
    class FakeEvent:
        contributors, failure, mu, distance = 15, 0.0, 0.1, 0.0

        def renyi_bound(self):
            return EVENT.renyi_bound()

    with opened(tmp_path / "ledger.jsonl") as ledger:
        with pytest.raises(ValueError, match="FakeEvent"):
            ledger.charge(FakeEvent(), 1, NAMES)
        assert ledger.entries == ()


def test_disjoint_clients_compose_by_maximum(tmp_path):
    others = tuple(f"other-{n:02d}" for n in range(15))
    with opened(tmp_path / "ledger.jsonl") as ledger:
        for number, names in enumerate([NAMES, others, NAMES, others, NAMES], start=1):
            ledger.charge(EVENT, number, names)
            assert ledger.spent == epsilon([EVENT] * ((number + 1) // 2), 1e-5)
        assert ledger.renyi_spent == renyi_epsilon([EVENT] * 3, 1e-5)
        # a client that took part twice has room for one round more than one that took part three times
        fits = sum(epsilon([EVENT] * count, 1e-5) <= BUDGET.epsilon for count in range(1, 40))
        ledger.check([EVENT] * (fits - 2), others)
        with pytest.raises(BudgetExhausted):
            ledger.check([EVENT] * (fits - 2), NAMES)
        with pytest.raises(BudgetExhausted):
            ledger.check([EVENT] * (fits - 2))


def test_clients_of_one_name_add_up_over_the_runs_of_a_population(tmp_path):
    path, two = tmp_path / "records.ledger.jsonl", replace(EVENT, local_variance=2 * EVENT.local_variance)
    with Ledger.of_population(path, BUDGET, FakeClock(), "one") as first:
        first.charge(EVENT, 1, NAMES)
        first.charge(two, 2, tuple(f"other-{n:02d}" for n in range(15)))
    with Ledger.of_population(path, BUDGET, FakeClock(), "two") as second:
        second.charge(EVENT, 1, tuple(f"other-{n:02d}" for n in range(15)))
        assert second.spent == epsilon([EVENT, EVENT], 1e-5)


def test_rounds_far_from_a_gaussian_all_count(tmp_path):
    far = replace(EVENT, failure=1e-9)
    with opened(tmp_path / "ledger.jsonl") as ledger:
        ledger.charge(far, 1, NAMES)
        ledger.charge(far, 2, tuple(f"other-{n:02d}" for n in range(15)))
        assert ledger.spent == epsilon([far, far], 1e-5)
