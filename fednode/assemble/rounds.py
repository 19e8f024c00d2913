"""What the report says of rounds, and what the ledger says was spent on them."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fednode.assemble.planning import Plan
from fednode.driver import RoundOutcome
from fednode.errors import StoreError
from fednode.privacy import ChargeRecord, DiscreteGaussianSum, Ledger, epsilon, renyi_epsilon
from fednode.privacy.chain import History, replay
from fednode.reports import NamedReason, RoundRecord


@dataclass(frozen=True, slots=True)
class Spending:
    """The charges in a ledger, in order, and its head; `epsilon` and `renyi` are what they add up to at `delta`."""

    charges: tuple[ChargeRecord, ...]
    head: str
    delta: float

    @staticmethod
    def of(ledger: Ledger | None, path: Path, delta: float) -> "Spending":
        """The charges that the ledger knows of, or those in its file if there are more.

        A run that is aborted while it charges may have written a line that the open ledger does not know yet.
        """
        if ledger is None:
            return Spending((), "", delta)
        found = History()
        if path.is_file():
            with suppress(OSError, StoreError):
                found = replay(path.read_bytes(), str(path)).history
        entries, head = ledger.entries, ledger.head
        if len(found.entries) > len(entries):
            entries, head = found.entries, found.head
        return Spending(tuple(entry.charge for entry in entries), head, delta)

    @property
    def epsilon(self) -> float:
        """What they cost together."""
        return epsilon(self._events(), self.delta)

    @property
    def renyi(self) -> float:
        """The Renyi bound on it, the cross-check."""
        return renyi_epsilon(self._events(), self.delta)

    def until(self, number: int) -> "Spending":
        """What was spent by the end of this round."""
        return replace(self, charges=tuple(charge for charge in self.charges if charge.round_number <= number))

    def _events(self) -> list[DiscreteGaussianSum]:
        return [charge.event for charge in self.charges]


def round_record(plan: Plan, outcome: RoundOutcome, accuracy: float | None, spent: tuple[float, float]) -> RoundRecord:
    """A round as the report has it; `spent` is epsilon and its Renyi bound after the round."""
    local = math.sqrt(plan.terms.local_variance) * 2.0**-plan.terms.grid_bits
    least = plan.terms.min_survivors - plan.terms.assumed_colluders
    return RoundRecord(
        round=outcome.round,
        outcome="failed" if outcome.cause else "released",
        reason=outcome.reason or None,
        invited=outcome.invited,
        survivors=tuple(sorted(outcome.survivors)),
        rejected=tuple(NamedReason(name, reason) for name, reason in outcome.rejected),
        discarded=tuple(NamedReason(name, reason) for name, reason in outcome.discarded),
        lost=outcome.lost,
        holders_answered=outcome.answered,
        holders_silent=tuple(f"{name} ({reason})" for name, reason in outcome.silent),
        noise_planned=local * math.sqrt(least),
        noise_added=local * math.sqrt(len(outcome.survivors)),
        epsilon_after=spent[0],
        renyi_after=spent[1],
        accuracy=accuracy,
        bytes_up=round(outcome.bytes_up),
        bytes_down=round(outcome.bytes_down),
        seconds=outcome.seconds,
        asked_again=outcome.asked_again,
    )
