"""The privacy ledger: charge, fsync, then open. A crash may waste budget but never hides any that was spent."""

import os
from collections.abc import Collection, Sequence
from dataclasses import InitVar, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from fednode.clock import Clock
from fednode.errors import BudgetExhausted, ConfigError, DataError, StoreError
from fednode.privacy.accountant import epsilon, renyi_epsilon
from fednode.privacy.budget import LARGEST_EPSILON, Budget
from fednode.privacy.chain import (
    ChargeRecord,
    History,
    LedgerEntry,
    LedgerHeader,
    LimitRecord,
    Replay,
    append_charge,
    append_header,
    append_limit,
    replay,
)
from fednode.privacy.composition import dearest
from fednode.privacy.journal import ConfirmedHead, Journal, head_file
from fednode.privacy.mechanism import DiscreteGaussianSum
from fednode.protocol.ledger_mark import LedgerMark

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
    """What one run, or all runs over one population, have spent: an append-only file, one JSON line for each charge
    and each change of the limit, with the hash of the line before.

    Guarantees: `charge` returns only when the charge is on the disk, in the population's file first; a refused or
    failed charge changes neither file nor memory; opening verifies every line, and that what was confirmed is there.
    Any number of processes may charge one file: each charge holds a lock and first reads what others have written.
    Limits: whoever can write the file and its head file can write another chain, so it is no defence against the node's
    own operator: compare `head` with one that was noted elsewhere.

    For one thread. The rounds of a task are in the order of their charges.
    """

    def __init__(self, journal: Journal, clock: Clock, task: str, population: "Ledger | None" = None) -> None:
        self._journal, self._clock, self._task, self._population = journal, clock, task, population
        self._history, self._repair = History(), ""

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], budget: Budget, clock: Clock, task: str, population: "Ledger | None" = None
    ) -> Self:
        """Create the ledger of the run `task` at `path`, or replay and verify the existing one.

        A new file has mode 0600; it and its name are on the disk when this returns. Every charge is one of `population`
        too, and must fit the limits of both. Raises StoreError on a disk error, for any line that was changed, dropped,
        repeated or moved (with its number), and for a file that lost what was confirmed; ConfigError if the file
        belongs to another task or budget.

        A crash can leave a last line cut short, or zeros in its place. `charge` had not returned then, so nothing was
        opened: they are cut off, and `repair` says so. A whole last line without its newline counts as a charge, which
        can only waste budget.
        """
        ledger = cls(Journal(Path(path)), clock, task, population)
        ledger._begin(LedgerHeader(task, budget, clock.time()))
        ledger._require_same_purpose(task, budget)
        return ledger

    @classmethod
    def of_population(cls, path: Path, budget: Budget, clock: Clock, task: str) -> Self:
        """As `open`, for the ledger of a population that the run `task` charges; `budget` is for a new file.

        An existing one keeps its limit and its delta. Raises ConfigError if it counts other units or neighbours.
        """
        ledger = cls(Journal(path), clock, task)
        ledger._begin(LedgerHeader(population_name(path), budget, clock.time()))
        ledger._require_same_purpose(
            ledger.name, replace(budget, epsilon=ledger.budget.epsilon, delta=ledger.budget.delta)
        )
        return ledger

    @classmethod
    def at(cls, path: Path, clock: Clock) -> Self:
        """The existing ledger of a run or of a population, for who sets its limit. Raises DataError without one."""
        if not path.is_file():
            raise DataError(f"there is no ledger at {path}; name the ledger of a run or of a population")
        ledger = cls(Journal(path), clock, "")
        ledger._begin(None)
        return ledger

    @property
    def name(self) -> str:
        """The task, or the population."""
        return self._history.name

    @property
    def budget(self) -> Budget:
        """The budget, with the limit that holds now."""
        return self._history.budget

    @property
    def history(self) -> History:
        """All lines, as of the last time that this process read the file."""
        return self._history

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Every charge, oldest first."""
        return self._history.entries

    @property
    def head(self) -> str:
        """Hash of the last line: it covers all lines before it."""
        return self._history.head

    @property
    def mark(self) -> LedgerMark:
        """How far the population's ledger is, this one without a population: what holders sign."""
        if self._population is not None:
            return self._population.mark
        history = self._history
        return LedgerMark(self.name, 1 + len(history.entries) + len(history.limits), history.head)

    @property
    def repair(self) -> str | None:
        """One sentence if opening repaired what a crash had left at the end, else None."""
        return self._repair or None

    @property
    def spent(self) -> float:
        """The epsilon spent so far, at the budget's delta."""
        return epsilon(self.dearest(), self.budget.delta)

    @property
    def renyi_spent(self) -> float:
        """The Renyi bound on what was spent so far, at the budget's delta: the cross-check."""
        return renyi_epsilon(self.dearest(), self.budget.delta)

    def dearest(self, clients: Collection[str] = ()) -> tuple[DiscreteGaussianSum, ...]:
        """The events that the price counts: of each task, those of the client that paid most, of `clients` in ours."""
        return dearest((entry.charge for entry in self.entries), self._task, clients)

    def check(self, events: Sequence[DiscreteGaussianSum], clients: Collection[str] = ()) -> None:
        """Raise BudgetExhausted, with the numbers, unless all of `events` fit the budgets. Nothing is spent.

        `clients` are those who would pay; without them, whoever has paid most.
        """
        with self._journal.alone():
            self._catch_up()
        self._require_fit(events, clients)
        if self._population is not None:
            self._population.check(events, clients)

    def charge(self, event: DiscreteGaussianSum, round_number: int, survivors: tuple[str, ...]) -> Receipt:
        """Charge `event` for this round. The charge is on the disk when this returns, so the round may be opened.

        Raises BudgetExhausted if it does not fit; StoreError on a disk error; ValueError for a round that is not later
        than the last one charged, for repeated or missing names, and for an event that counts more clients than
        survived. In each case nothing is spent or written here; after a disk error the population may hold the charge.
        """
        if self._population is not None:
            # first all that may refuse here: the population would be charged for nothing
            self.check((event,), survivors)
            self._next(event, round_number, survivors)
            self._population.charge(event, round_number, survivors)
        with self._journal.alone():
            self._catch_up()
            self._require_fit((event,), survivors)
            self._write(*self._next(event, round_number, survivors))
        after = self.entries[-1].charge.epsilon_after
        return Receipt(self._task, round_number, self.head, after, self.budget.delta, mint=_MINT)

    def limit(self, limit: float, by: str, reason: str) -> None:
        """Raise or lower the limit from now on; the file keeps who did it and why. StoreError, ValueError."""
        if limit > LARGEST_EPSILON:
            raise ValueError(f"epsilon must be {LARGEST_EPSILON:g} or less, not {limit:g}")
        with self._journal.alone():
            self._catch_up()
            self._write(*append_limit(self._history, LimitRecord(limit, by, reason, self._clock.time())))

    def close(self) -> None:
        """Take no more charges. What was spent can still be read."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.name!r}, task={self._task!r}, rounds={len(self.entries)}, head={self.head[:12]})"

    # --- the file

    def _begin(self, header: LedgerHeader | None) -> None:
        """Read the whole file, or make it; verify it against its head file and mend what a crash left."""
        with self._journal.alone():
            content, confirmed = self._journal.read(), self._journal.confirmed()
            if header is not None and content is None and confirmed is None:
                self._history, line = append_header(History(), header)
                self._journal.create(line)
                self._confirm()
                return
            self._history = confirmed_part(self._journal.path, content, confirmed)
            self._catch_up()
            if confirmed is None and self.entries:
                raise StoreError(
                    f"{head_file(self._journal.path)} is missing, so nobody can tell whether ledger "
                    f"{self._journal.path} is whole; compare it with the reports of its runs, and merge it into a new "
                    "one: fednode ledger merge"
                )

    def _catch_up(self) -> None:
        """Read what other processes have written since, mend the end, and confirm it. The lock is held."""
        known, path = self._history, self._journal.path
        more = self._journal.read(known.size)
        if more is None:
            raise StoreError(f"ledger {path} was moved or deleted while in use; put it back and start again")
        found = replay(more, str(path), known)
        self._repair = _mend(self._journal, found) or self._repair
        self._history = found.history
        if found.history.size > known.size:
            self._confirm()

    def _write(self, history: History, line: bytes) -> None:
        self._journal.append(line, at=self._history.size)
        self._history = history
        self._confirm()

    def _confirm(self) -> None:
        self._journal.confirm(ConfirmedHead(self._history.size, self.head))

    # --- the limit

    def _next(self, event: DiscreteGaussianSum, round_number: int, survivors: tuple[str, ...]) -> tuple[History, bytes]:
        after = self._after((event,), survivors)
        charge = ChargeRecord(round_number, event, survivors, self._clock.time(), after, self._task)
        return append_charge(self._history, charge)

    def _require_fit(self, events: Sequence[DiscreteGaussianSum], clients: Collection[str]) -> None:
        after = self._after(events, clients)
        if not after <= self.budget.epsilon:
            ours = self.name == self._task
            raise BudgetExhausted(
                f"the privacy budget of {'task' if ours else 'population'} {self.name} does not hold this: epsilon "
                f"{self.spent:.4f} is spent in {len(self.entries)} rounds, {after:.4f} would be, "
                f"{self.budget.epsilon:g} is the limit at delta {self.budget.delta:g}; plan fewer rounds or more "
                f"noise, or raise the limit for all to see: fednode ledger limit {self._journal.path}"
            )

    def _after(self, events: Sequence[DiscreteGaussianSum], clients: Collection[str]) -> float:
        """What would be spent: by whoever has paid most, or by those who pay now."""
        return max(self.spent, epsilon((*self.dearest(clients), *events), self.budget.delta))

    def _require_same_purpose(self, name: str, budget: Budget) -> None:
        if (self.name, self.budget) == (name, budget):
            return
        raise ConfigError(
            f"ledger {self._journal.path} belongs to {self.name} with epsilon {self.budget.epsilon:g}, delta "
            f"{self.budget.delta:g} per {self.budget.unit} ({self.budget.adjacency}), not to {name} with epsilon "
            f"{budget.epsilon:g}, delta {budget.delta:g} per {budget.unit} ({budget.adjacency}); a limit is "
            "changed by fednode ledger limit; another task, unit or delta needs another file"
        )


def read_replay(path: Path) -> Replay:
    """Verify the ledger at `path` and that it holds what was confirmed; write nothing. Raises DataError, StoreError."""
    journal = Journal(path)
    content, confirmed = journal.read(), journal.confirmed()
    if content is None and confirmed is None:
        raise DataError(f"there is no ledger at {path}; name the ledger of a run or of a population")
    before = confirmed_part(path, content, confirmed)
    return replay((content or b"")[before.size :], str(path), before)


def read_history(path: Path, *, absent: bool = False) -> History:
    """As `read_replay`, without what a crash left at the end; with `absent`, a missing file holds nothing."""
    if absent and not path.exists() and not head_file(path).exists():
        return History()
    return read_replay(path).history


def population_name(path: Path) -> str:
    """The name of a population whose ledger lies at `path`: support for support.ledger.jsonl."""
    return path.name.removesuffix(".jsonl").removesuffix(".ledger")


def confirmed_part(path: Path, content: bytes | None, confirmed: ConfirmedHead | None) -> History:
    """Return the history up to the head that was confirmed, none without a head file. Pure.

    Raises StoreError, which names the damage, if the file at `path` no longer holds what was confirmed.
    """
    size = 0 if confirmed is None else confirmed.size
    fault = _damage(content, size)
    if not fault and content is not None:
        if confirmed is None:
            return History()
        found = replay(content[:size], str(path))
        if found.history.head == confirmed.head:
            return found.history
        fault = f"ends in {found.zeros} zeros, as after a power cut" if found.zeros else "was replaced or rewritten"
    was = (
        f"{head_file(path)} shows {size} bytes that were there" if confirmed else "a ledger is made with its first line"
    )
    raise StoreError(
        f"ledger {path} {fault}; {was}. Find the whole file, or merge what is left with the ledgers of the runs into a "
        "new one: fednode ledger merge"
    )


def _damage(content: bytes | None, size: int) -> str:
    """What is wrong with a file of which `size` bytes were confirmed, if it shows without reading the lines."""
    if not content:
        return "was deleted" if content is None else "was emptied"
    if not content.strip(b"\0"):
        return "holds nothing but zeros, as a disk leaves that lost what it had confirmed"
    # a ledger is made with its first line, whole or not at all
    return f"was cut: {len(content)} bytes are left" if len(content) < size or b"\n" not in content else ""


def _mend(journal: Journal, found: Replay) -> str:
    """Repair the end of the file; return a sentence that says what was done, if anything."""
    if found.newline_missing:
        journal.append(b"\n", at=found.history.size - 1)
        return "the ledger's last line lacked its newline: it was completed and counts as charged"
    if found.torn:
        journal.cut(found.history.size)
        what = "zeros, as after a power cut" if found.torn == found.zeros else "a line cut short"
        return f"the ledger ended in {what} ({found.torn} bytes): they were cut off, nothing had been opened by them"
    return ""
