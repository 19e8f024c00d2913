"""A ledger against a plain list, with closings, torn lines and refusals between the charges."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kit.clocks import FakeClock

from fednode.errors import BudgetExhausted
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger, epsilon

BUDGET = Budget(3.0, 1e-5)
NAMES = tuple(f"client-{n}" for n in range(20))


def event(contributors: int) -> DiscreteGaussianSum:
    return DiscreteGaussianSum(1.0, 12, 1_000, 12_000_000, contributors, 1e-20)


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.jsonl"
        self.clock = FakeClock()
        self.model: list[tuple[int, DiscreteGaussianSum, tuple[str, ...]]] = []
        self.ledger = self.opened()

    def opened(self) -> Ledger:
        return Ledger.open(self.path, BUDGET, self.clock, "intents")

    def teardown(self):
        self.ledger.close()
        self.folder.cleanup()

    def last_round(self) -> int:
        return self.model[-1][0] if self.model else 0

    @rule(contributors=st.integers(1, 20), skipped=st.integers(1, 3), wait=st.floats(0, 100))
    def charge(self, contributors, skipped, wait):
        self.clock.sleep(wait)
        number, names = self.last_round() + skipped, NAMES[-contributors:]
        after = epsilon([*(e for _, e, _ in self.model), event(contributors)], BUDGET.delta)
        if after <= BUDGET.epsilon:
            receipt = self.ledger.charge(event(contributors), number, names)
            assert receipt.epsilon_after == after
            self.model.append((number, event(contributors), names))
        else:
            with pytest.raises(BudgetExhausted):
                self.ledger.charge(event(contributors), number, names)

    @precondition(lambda self: self.model)
    @rule(back=st.integers(0, 2))
    def charge_an_old_round(self, back):
        with pytest.raises((ValueError, BudgetExhausted)):
            self.ledger.charge(event(20), self.last_round() - back, NAMES)

    @rule()
    def reopen(self):
        self.ledger.close()
        self.ledger = self.opened()
        assert self.ledger.repair is None

    @rule(length=st.integers(1, 300))
    def crash_in_the_middle_of_a_line(self, length):
        self.ledger.close()
        start = b'{"epsilon_after":' + b"1" * 300
        with self.path.open("ab") as file:
            file.write(start[:length])
        self.ledger = self.opened()
        assert self.ledger.repair is not None

    @invariant()
    def the_ledger_is_the_list(self):
        found = [(e.charge.round_number, e.charge.event, e.charge.survivors) for e in self.ledger.entries]
        assert found == self.model
        assert self.ledger.spent == epsilon([e for _, e, _ in self.model], BUDGET.delta) <= BUDGET.epsilon
        assert self.path.read_bytes().count(b"\n") == len(self.model) + 1


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
