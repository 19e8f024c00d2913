"""The ledger of a population: all runs over the same records charge it, each within its own limit too."""

import json
import subprocess
import sys

import pytest
from kit.clocks import FakeClock

from fednode.errors import BudgetExhausted, ConfigError, DataError, StoreError
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger, epsilon

BUDGET = Budget(8.0, 1e-5)
EVENT = DiscreteGaussianSum(1.0, 16, 20_500, 2_063_600_292, 15, 2.0**-110)
NAMES = tuple(f"client-{n:02d}" for n in range(15))


def population(folder, task: str, limit: float = 10.0) -> Ledger:
    return Ledger.of_population(folder / "people.ledger.jsonl", Budget(limit, 1e-5), FakeClock(), task)


def run_of(folder, task: str, within: Ledger | None = None) -> Ledger:
    place = folder / task
    place.mkdir(exist_ok=True)
    return Ledger.open(place / "ledger.jsonl", BUDGET, FakeClock(), task, within or population(folder, task))


def test_two_runs_charge_one_file(tmp_path):
    one, other = run_of(tmp_path, "one"), run_of(tmp_path, "other")
    for number in (1, 2, 3):
        one.charge(EVENT, number, NAMES)
        receipt = other.charge(EVENT, number, NAMES)
    assert receipt.epsilon_after == one.spent == other.spent == epsilon([EVENT] * 3, 1e-5)
    both = population(tmp_path, "third")
    assert both.name == "people" and both.spent == epsilon([EVENT] * 6, 1e-5)
    charged = [(entry.charge.task, entry.charge.round_number) for entry in both.entries]
    assert charged == [(task, number) for number in (1, 2, 3) for task in ("one", "other")]


def test_the_limit_of_the_population_stops_a_run_that_has_budget_left(tmp_path):
    one, other = run_of(tmp_path, "one"), run_of(tmp_path, "other")
    for number in range(1, 21):
        one.charge(EVENT, number, NAMES)
    rounds = 0
    with pytest.raises(BudgetExhausted, match="population people"):
        while True:
            other.charge(EVENT, rounds + 1, NAMES)
            rounds += 1
    assert epsilon([EVENT] * (20 + rounds), 1e-5) <= 10.0 < epsilon([EVENT] * (21 + rounds), 1e-5)
    assert len(other.entries) == rounds and other.spent < 8.0
    with pytest.raises(BudgetExhausted, match="population people"):
        other.check([EVENT])
    with pytest.raises(BudgetExhausted, match="task one"):
        one.charge(EVENT, 21, NAMES)


def test_a_run_that_refuses_costs_the_population_nothing(tmp_path):
    run = run_of(tmp_path, "one")
    run.charge(EVENT, 5, NAMES)
    head = population(tmp_path, "x").head
    for number, names in ((5, NAMES), (6, NAMES[:3])):
        with pytest.raises(ValueError):
            run.charge(EVENT, number, names)
    assert population(tmp_path, "x").head == head != run.head


def test_a_disk_that_fails_the_run_leaves_the_charge_with_the_population(tmp_path, monkeypatch):
    run = run_of(tmp_path, "one")
    (tmp_path / "one" / "ledger.jsonl").unlink()
    with pytest.raises(StoreError, match="deleted"):
        run.charge(EVENT, 1, NAMES)
    assert len(population(tmp_path, "x").entries) == 0
    assert run.entries == ()


def test_changing_the_limit_is_a_line_with_a_name_and_a_reason(tmp_path):
    run = run_of(tmp_path, "one")
    run.charge(EVENT, 1, NAMES)
    file = tmp_path / "people.ledger.jsonl"
    Ledger.at(file, FakeClock()).limit(1.0, "Ada Lovelace", "the board asked for it")
    with pytest.raises(BudgetExhausted, match=" 1 is the limit"):
        run.charge(EVENT, 2, NAMES)
    Ledger.at(file, FakeClock()).limit(20.0, "Ada Lovelace", "a new consent of all customers")
    run.charge(EVENT, 2, NAMES)
    kinds = [json.loads(line)["kind"] for line in file.read_bytes().splitlines()]
    assert kinds == ["header", "charge", "limit", "limit", "charge"]
    limits = population(tmp_path, "x").history.limits
    assert [(one.epsilon, one.by) for one in limits] == [(1.0, "Ada Lovelace"), (20.0, "Ada Lovelace")]
    assert population(tmp_path, "x").budget.epsilon == 20.0
    with pytest.raises(DataError):
        Ledger.at(tmp_path / "none.jsonl", FakeClock())


@pytest.mark.parametrize(
    ("limit", "by", "reason"),
    [
        (0.0, "a", "b"),
        (float("inf"), "a", "b"),
        (float("nan"), "a", "b"),
        (1.0, "", "b"),
        (1.0, "a", " "),
        (1.0, "a\n", "b"),
    ],
)
def test_a_limit_without_a_number_a_name_or_a_reason_is_refused(tmp_path, limit, by, reason):
    ledger = population(tmp_path, "one")
    with pytest.raises(ValueError):
        ledger.limit(limit, by, reason)
    assert ledger.history.limits == ()


def test_the_limit_of_a_run_can_be_changed_too(tmp_path):
    run_of(tmp_path, "one").charge(EVENT, 1, NAMES)
    file = tmp_path / "one" / "ledger.jsonl"
    Ledger.at(file, FakeClock()).limit(9.0, "Ada", "one more round")
    with pytest.raises(ConfigError, match="fednode ledger limit"):
        run_of(tmp_path, "one")
    with Ledger.open(file, Budget(9.0, 1e-5), FakeClock(), "one") as ledger:
        assert len(ledger.entries) == 1


def test_units_are_never_added(tmp_path):
    population(tmp_path, "one")
    with pytest.raises(ConfigError, match="record"):
        Ledger.of_population(tmp_path / "people.ledger.jsonl", Budget(10.0, 1e-5, "client"), FakeClock(), "two")


CHILD = """
import sys
from pathlib import Path
from fednode.clock import SystemClock
from fednode.errors import BudgetExhausted
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger
folder, task = Path(sys.argv[1]), sys.argv[2]
event = DiscreteGaussianSum(1.0, 16, 20_500, 2_063_600_292, 15, 2.0**-110)
within = Ledger.of_population(folder / "people.ledger.jsonl", Budget(6.0, 1e-5), SystemClock(), task)
(folder / task).mkdir()
ledger = Ledger.open(folder / task / "ledger.jsonl", Budget(8.0, 1e-5), SystemClock(), task, within)
names = tuple(f"client-{n:02d}" for n in range(15))
rounds = 0
try:
    while True:
        ledger.charge(event, rounds + 1, names)
        rounds += 1
except BudgetExhausted:
    print(rounds)
"""


def test_processes_at_once_never_pass_the_limit_and_lose_no_charge(tmp_path):
    tasks = ("one", "other", "third")
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path), task], stdout=subprocess.PIPE, text=True)
        for task in tasks
    ]
    rounds = dict(zip(tasks, (int(process.communicate()[0]) for process in children), strict=True))
    kept = [(entry.charge.task, entry.charge.round_number) for entry in population(tmp_path, "x").entries]
    assert sorted(kept) == sorted((task, number) for task in tasks for number in range(1, rounds[task] + 1))
    total = sum(rounds.values())
    assert epsilon([EVENT] * total, 1e-5) <= 6.0 < epsilon([EVENT] * (total + 1), 1e-5)
