"""The privacy ledger: charge, fsync, then open. A crash may waste budget; it never hides any."""

import os
from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from fednode.clock import Clock
from fednode.errors import BudgetExhausted, ConfigError
from fednode.privacy.accountant import epsilon, gaussian_epsilon
from fednode.privacy.budget import Budget
from fednode.privacy.chain import Charge, Entry, Header, History, Replay, append_charge, append_header, replay
from fednode.privacy.journal import Journal
from fednode.privacy.mechanism import DiscreteGaussianSum

_MINT = object()


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof, inside this process, that a round's charge is on the disk; only `Ledger.charge` makes one.

    It can be neither pickled nor copied, so it cannot outlive the process that holds the ledger.
    """

    task: str
    round_number: int
    entry_hash: str
    epsilon_after: float
    delta: float
    mint: InitVar[object]

    def __post_init__(self, mint: object) -> None:
        if mint is not _MINT:
            raise TypeError("a Receipt comes from Ledger.charge and from nowhere else")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Receipt cannot be pickled or copied: charge the ledger instead")


class Ledger:
    """What one task has spent, in a file that only grows.

    One JSON line a charge, each holding the hash of the one before. Guarantees: `charge` returns only when the charge
    is on the disk; a refused or failed charge leaves file and memory as they were; opening verifies every line.
    Limits: whoever can write the file can cut whole lines off its end (compare `head` with the one in a report) or
    write another chain from the start; the file is a record, not a defence against the node's own operator.

    For one thread. One process at a time, by lock. The order of rounds is that of the charges.
    """

    def __init__(self, path: Path, journal: Journal, clock: Clock, history: History, repair: str | None) -> None:
        if history.header is None:
            raise ValueError("a ledger needs its header: use Ledger.open")
        self._path, self._journal, self._clock = path, journal, clock
        self._header, self._history, self._repair = history.header, history, repair

    @classmethod
    def open(cls, path: str | os.PathLike[str], budget: Budget, clock: Clock, task: str) -> Self:
        """Create the ledger of `task` at `path`, or replay and verify the one there.

        A new file has mode 0600 and is on the disk, as is its name, when this returns. Raises StoreError when another
        process holds it, the disk refuses, or any line was changed, dropped, repeated or moved (with its number);
        ConfigError when the file belongs to another task or another budget.

        A crash can leave a last line cut short. `charge` had not returned, so nothing was opened on the strength of
        it: it is cut off, and `repair` says so. A last line that is whole but for its newline is kept as a charge:
        that can only waste budget.
        """
        place = Path(path)
        journal = Journal.open(place)
        try:
            found = replay(journal.read(), str(place))
            repair = _mend(journal, found)
            history = found.history
            if history.header is None:
                history, line = append_header(history, Header(task, budget, clock.time()))
                journal.append(line, at=0)
            # Also for a file that was there: the process that made it may have died before it came to this.
            journal.sync_folder()
            ledger = cls(place, journal, clock, history, repair)
            ledger._require_same_purpose(budget, task)
        except BaseException:
            journal.close()
            raise
        return ledger

    @property
    def task(self) -> str:
        """The task whose spending this is."""
        return self._header.task

    @property
    def budget(self) -> Budget:
        """The limit."""
        return self._header.budget

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every charge, oldest first."""
        return self._history.entries

    @property
    def events(self) -> tuple[DiscreteGaussianSum, ...]:
        """What was charged, oldest first."""
        return tuple(entry.charge.event for entry in self.entries)

    @property
    def head(self) -> str:
        """Hash of the last line: it stands for everything before it."""
        return self._history.head

    @property
    def repair(self) -> str | None:
        """One sentence when opening found and mended the end that a crash had left, else None."""
        return self._repair

    @property
    def spent(self) -> float:
        """THE number so far, at the budget's delta."""
        return epsilon(self.events, self.budget.delta)

    @property
    def gaussian_spent(self) -> float:
        """The exact Gaussian reference so far, at the budget's delta."""
        return gaussian_epsilon(self.events, self.budget.delta)

    def would_fit(self, events: Sequence[DiscreteGaussianSum]) -> bool:
        """Whether all of `events` could be charged on top of what is spent."""
        return self._after(events) <= self.budget.epsilon

    def check(self, events: Sequence[DiscreteGaussianSum]) -> None:
        """Raise BudgetExhausted, with the numbers, unless all of `events` could be charged. Asking spends nothing."""
        after = self._after(events)
        if not after <= self.budget.epsilon:
            raise BudgetExhausted(
                f"the privacy budget of task {self.task} does not hold this: epsilon {self.spent:.4f} is spent in "
                f"{len(self.entries)} rounds, {after:.4f} would be, {self.budget.epsilon:g} is the limit at delta "
                f"{self.budget.delta:g}; plan fewer rounds or more noise, or give a new task a larger budget"
            )

    def charge(self, event: DiscreteGaussianSum, round_number: int, survivors: tuple[str, ...]) -> Receipt:
        """Spend `event` for this round: it is on the disk when this returns, so the round may be opened.

        Raises BudgetExhausted when it does not fit; StoreError when the disk does not take it; ValueError for a round
        that does not come after the last one charged (the same round twice is the driver's error), for repeated or
        missing names, and for an event that counts more clients than survived. In each case nothing is spent or
        written.
        """
        self.check((event,))
        after = self._after((event,))
        charge = Charge(round_number, event, survivors, self._clock.time(), after)
        history, line = append_charge(self._history, charge)
        self._journal.append(line, at=self._history.size)
        self._history = history
        return Receipt(self.task, round_number, history.head, after, self.budget.delta, mint=_MINT)

    def close(self) -> None:
        """Give the file back; closing twice is allowed. What was spent can still be read."""
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
    """Bring the file's end to a whole line; the sentence that says what was done, if anything was."""
    if found.newline_missing:
        journal.append(b"\n", at=found.history.size - 1)
        return "the ledger's last line lacked its newline: it was completed and counts as charged"
    if found.torn:
        journal.cut(found.history.size)
        return (
            f"the ledger ended in a line cut short ({found.torn} bytes): it was cut off, nothing had been opened by it"
        )
    return None
