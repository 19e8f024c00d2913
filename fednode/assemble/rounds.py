"""What the report says of rounds, what the ledger says was spent on them, and the notes that outlive a kill."""

import json
import logging
import math
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fednode.assemble.planning import Plan
from fednode.disk.atomic import append_line, write_whole
from fednode.driver import RoundOutcome
from fednode.errors import DataError, StoreError
from fednode.privacy import ChargeRecord, DiscreteGaussianSum, Ledger, dearest, epsilon, renyi_epsilon
from fednode.privacy.chain import History
from fednode.privacy.ledger import read_history
from fednode.protocol.spec import Terms
from fednode.reports import NamedReason, RoundRecord, RunRecord
from fednode.reports.as_json import from_line, to_line

NOTES_NAME = "rounds.jsonl"
"""In the run's folder: what was planned, then a line for each round as it ends."""


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
        with suppress(StoreError):
            found = read_history(path, absent=True)
        entries, head = ledger.entries, ledger.head
        if len(found.entries) > len(entries):
            entries, head = found.entries, found.head
        return Spending(tuple(entry.charge for entry in entries), head, delta)

    @staticmethod
    def left(path: Path, delta: float) -> "Spending":
        """The charges in the ledger file that a run left, if any. Raises `StoreError` if the file was changed."""
        found = read_history(path, absent=True)
        if found.header is None:
            return Spending((), "", delta)
        return Spending(tuple(entry.charge for entry in found.entries), found.head, delta)

    @property
    def epsilon(self) -> float:
        """What they cost together."""
        return epsilon(self.events, self.delta)

    @property
    def renyi(self) -> float:
        """The Renyi bound on it, the cross-check."""
        return renyi_epsilon(self.events, self.delta)

    def until(self, number: int) -> "Spending":
        """What was spent by the end of this round."""
        return replace(self, charges=tuple(charge for charge in self.charges if charge.round_number <= number))

    @property
    def events(self) -> tuple[DiscreteGaussianSum, ...]:
        """The events that the price counts: those of the client that paid most."""
        return dearest(self.charges)


def round_record(plan: Plan, outcome: RoundOutcome, accuracy: float | None, spent: tuple[float, float]) -> RoundRecord:
    """A round as the report has it; `spent` is epsilon and its Renyi bound after the round."""
    local = math.sqrt(outcome.local_variance) * 2.0**-plan.terms.grid_bits
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
        clip=outcome.clip,
    )


@dataclass(frozen=True, slots=True)
class Notes:
    """What a run wrote down while it went on: its report before the first round, its terms, and each round's end."""

    planned: RunRecord
    terms: Terms
    rounds: tuple[RoundRecord, ...] = ()

    def begin(self, folder: Path) -> None:
        """Write the first two lines of rounds.jsonl. Raises `StoreError`."""
        write_whole(folder / NOTES_NAME, to_line(self.planned) + b"\n" + to_line(asdict(self.terms)) + b"\n")

    @staticmethod
    def add(folder: Path, record: RoundRecord) -> None:
        """Append a round. A disk that refuses ends no round: the ledger holds what it cost."""
        try:
            append_line(folder / NOTES_NAME, to_line(record))
        except StoreError as error:
            logging.getLogger("fednode.run").warning("round %d was not noted: %s", record.round, error)

    @staticmethod
    def read(folder: Path) -> "Notes":
        """The notes in this folder, but for a last line that a kill cut short. Raises `DataError` if there are none."""
        try:
            planned, terms, *rounds = (folder / NOTES_NAME).read_bytes().splitlines(keepends=True)
            whole = (line for line in rounds if line.endswith(b"\n"))
            return Notes(
                from_line(RunRecord, planned),
                Terms(**json.loads(terms)["value"]),
                tuple(from_line(RoundRecord, line) for line in whole),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{folder} holds no notes to make a report from ({type(error).__name__}): name the folder of a run "
                "that began its first round"
            ) from error


def charged_alone(charge: ChargeRecord, invited: int, least: int, broken: str) -> RoundRecord:
    """A round of which only the charge is known; `least` shares were planned, `broken` is "" if it was released."""
    share = math.sqrt(charge.event.local_variance) * charge.event.grid
    return RoundRecord(
        round=charge.round_number,
        outcome="failed" if broken else "released",
        reason=broken or None,
        invited=invited,
        survivors=tuple(sorted(charge.survivors)),
        noise_planned=share * math.sqrt(least),
        noise_added=share * math.sqrt(len(charge.survivors)),
    )
