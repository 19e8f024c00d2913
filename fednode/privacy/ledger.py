"""The privacy ledger: charge, fsync, then open. A crash may waste budget but never hides any that was spent."""

import os
from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from fednode.clock import Clock
from fednode.errors import BudgetExhausted, ConfigError
from fednode.privacy.accountant import epsilon, renyi_epsilon
from fednode.privacy.budget import Budget
from fednode.privacy.chain import (
    ChargeRecord,
    History,
    LedgerEntry,
    LedgerHeader,
    Replay,
    append_charge,
    append_header,
    replay,
)
from fednode.privacy.journal import Journal
from fednode.privacy.mechanism import DiscreteGaussianSum

_MINT = object()


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a round's charge is on the disk. Only `Ledger.charge` makes one.

    It cannot be pickled or copied, so it cannot outlive the process that holds the ledger.
    """

    task: str
    round_number: int
    entry_hash: str
    epsilon_after: float
    delta: float
    mint: InitVar[object]

    def __post_init__(self, mint: object) -> None:
        if mint is not _MINT:
            raise TypeError("a Receipt comes from Ledger.charge only")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Receipt cannot be pickled or copied: charge the ledger instead")


class Ledger:
    """What one task has spent, in an append-only file: one JSON line for each charge, with the hash of the line before.

    Guarantees: `charge` returns only when the charge is on the disk; a refused or failed charge changes neither file
    nor memory; opening verifies every line. Limits: whoever can write the file can cut whole lines off its end (compare
    `head` with the one in a report) or write another chain, so it is no defence against the node's own operator.

    For one thread; a lock keeps out other processes. Rounds are in the order of their charges.
    """

    def __init__(self, path: Path, journal: Journal, clock: Clock, history: History, repair: str | None) -> None:
        if history.header is None:
            raise ValueError("a ledger needs its header: use Ledger.open")
        self._path, self._journal, self._clock = path, journal, clock
        self._header, self._history, self._repair = history.header, history, repair

    @classmethod
    def open(cls, path: str | os.PathLike[str], budget: Budget, clock: Clock, task: str) -> Self:
        """Create the ledger of `task` at `path`, or replay and verify the existing one.

        A new file has mode 0600; it and its name are on the disk when this returns. Raises StoreError if another
        process holds it, on a disk error, and for any line that was changed, dropped, repeated or moved (with its
        number); ConfigError if the file belongs to another task or budget.

        A crash can leave a last line cut short. `charge` had not returned then, so nothing was opened: the line is cut
        off, and `repair` says so. A whole last line without its newline counts as a charge, which can only waste
        budget.
        """
        place = Path(path)
        journal = Journal.open(place)
        try:
            found = replay(journal.read(), str(place))
            repair = _mend(journal, found)
            history = found.history
            if history.header is None:
                history, line = append_header(history, LedgerHeader(task, budget, clock.time()))
                journal.append(line, at=0)
            # also for an existing file: the process that made it may have died before this step
            journal.sync_folder()
            ledger = cls(place, journal, clock, history, repair)
            ledger._require_same_purpose(budget, task)
        except BaseException:
            journal.close()
            raise
        return ledger

    @property
    def task(self) -> str:
        """The task of this ledger."""
        return self._header.task

    @property
    def budget(self) -> Budget:
        """The limit of the task."""
        return self._header.budget

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Every charge, oldest first."""
        return self._history.entries

    @property
    def events(self) -> tuple[DiscreteGaussianSum, ...]:
        """The event of every charge, oldest first."""
        return tuple(entry.charge.event for entry in self.entries)

    @property
    def head(self) -> str:
        """Hash of the last line: it covers all lines before it."""
        return self._history.head

    @property
    def repair(self) -> str | None:
        """One sentence if opening repaired what a crash had left at the end, else None."""
        return self._repair

    @property
    def spent(self) -> float:
        """The epsilon spent so far, at the budget's delta."""
        return epsilon(self.events, self.budget.delta)

    @property
    def renyi_spent(self) -> float:
        """The Renyi bound on what was spent so far, at the budget's delta: the cross-check."""
        return renyi_epsilon(self.events, self.budget.delta)

    def check(self, events: Sequence[DiscreteGaussianSum]) -> None:
        """Raise BudgetExhausted, with the numbers, unless all of `events` fit the budget. Nothing is spent."""
        after = self._after(events)
        if not after <= self.budget.epsilon:
            raise BudgetExhausted(
                f"the privacy budget of task {self.task} does not hold this: epsilon {self.spent:.4f} is spent in "
                f"{len(self.entries)} rounds, {after:.4f} would be, {self.budget.epsilon:g} is the limit at delta "
                f"{self.budget.delta:g}; plan fewer rounds or more noise, or give a new task a larger budget"
            )

    def charge(self, event: DiscreteGaussianSum, round_number: int, survivors: tuple[str, ...]) -> Receipt:
        """Charge `event` for this round. The charge is on the disk when this returns, so the round may be opened.

        Raises BudgetExhausted if it does not fit; StoreError on a disk error; ValueError for a round that is not later
        than the last one charged, for repeated or missing names, and for an event that counts more clients than
        survived. In each case nothing is spent or written.
        """
        self.check((event,))
        after = self._after((event,))
        charge = ChargeRecord(round_number, event, survivors, self._clock.time(), after)
        history, line = append_charge(self._history, charge)
        self._journal.append(line, at=self._history.size)
        self._history = history
        return Receipt(self.task, round_number, history.head, after, self.budget.delta, mint=_MINT)

    def close(self) -> None:
        """Release the file; closing twice is allowed. What was spent can still be read."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger(task={self.task!r}, rounds={len(self.entries)}, head={self.head[:12]})"

    def _after(self, events: Sequence[DiscreteGaussianSum]) -> float:
        return epsilon((*self.events, *events), self.budget.delta)

    def _require_same_purpose(self, budget: Budget, task: str) -> None:
        if (self.task, self.budget) == (task, budget):
            return
        raise ConfigError(
            f"ledger {self._path} belongs to task {self.task} with epsilon {self.budget.epsilon:g}, delta "
            f"{self.budget.delta:g} per {self.budget.unit} ({self.budget.adjacency}), not to task {task} with epsilon "
            f"{budget.epsilon:g}, delta {budget.delta:g} per {budget.unit} ({budget.adjacency}); choose another run "
            "folder"
        )


def _mend(journal: Journal, found: Replay) -> str | None:
    """Repair the end of the file; return a sentence that says what was done, or None."""
    if found.newline_missing:
        journal.append(b"\n", at=found.history.size - 1)
        return "the ledger's last line lacked its newline: it was completed and counts as charged"
    if found.torn:
        journal.cut(found.history.size)
        return (
            f"the ledger ended in a line cut short ({found.torn} bytes): it was cut off, nothing had been opened by it"
        )
    return None
