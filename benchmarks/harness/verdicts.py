"""Figures against limits: PASS, FAIL, or not judged."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from benchmarks.harness.tables import readable

Relation = Literal["<=", ">="]


class Outcome(StrEnum):
    """How a row ends."""

    PASS = "PASS"  # noqa: S105 # nosec B105 # (not a password)
    FAIL = "FAIL"
    OPEN = "----"


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """One figure against one limit; `figure` is None where this run did not measure it in full."""

    what: str
    figure: float | None
    relation: Relation
    limit: float
    unit: str = ""

    @property
    def outcome(self) -> Outcome:
        """Whether the figure keeps the limit."""
        if self.figure is None:
            return Outcome.OPEN
        kept = self.figure <= self.limit if self.relation == "<=" else self.figure >= self.limit
        return Outcome.PASS if kept else Outcome.FAIL

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        figure = "not judged" if self.figure is None else f"{readable(self.figure)}{unit}"
        return f"{self.what}: {figure} ({self.relation} {readable(self.limit)}{unit})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `row` must hold: it passes when every check does, and is open when one could not be judged."""

    row: str
    name: str
    checks: tuple[LimitCheck, ...] = ()
    broken: str = ""
    """Why the row could not be measured; it fails then."""

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of the checks."""
        if self.broken:
            return Outcome.FAIL
        found = {check.outcome for check in self.checks}
        return next((o for o in (Outcome.FAIL, Outcome.OPEN) if o in found), Outcome.PASS)

    def line(self) -> str:
        """Return the verdict on one line."""
        return f"{self.outcome}  {self.name}  {self.broken or '; '.join(map(str, self.checks))}"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON holds it."""
        found = {"name": self.name, "outcome": self.outcome.value, "checks": [asdict(check) for check in self.checks]}
        return {**found, "broken": self.broken} if self.broken else found


def figure(of: Callable[[], float]) -> float | None:
    """Return the figure that `of` computes, or None where what it needs was not measured (LookupError)."""
    try:
        return of()
    except LookupError:
        return None


def either(first: LimitCheck, second: LimitCheck) -> LimitCheck:
    """Return the check that decides where one of two is enough: one that is kept, else one that was measured."""
    return min((first, second), key=lambda check: (Outcome.PASS, Outcome.FAIL, Outcome.OPEN).index(check.outcome))


def with_broken(verdicts: Iterable[Verdict], broken: Mapping[str, str]) -> tuple[Verdict, ...]:
    """Return the verdicts, with those of broken rows failed, and one more for a broken row that has no limit."""
    found = [replace(verdict, broken=broken.get(verdict.row, "")) for verdict in verdicts]
    judged = {verdict.row for verdict in found}
    return (*found, *(Verdict(row, row, broken=why) for row, why in broken.items() if row not in judged))


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return 1 when any verdict is FAIL, else 0."""
    return int(any(verdict.outcome is Outcome.FAIL for verdict in verdicts))
