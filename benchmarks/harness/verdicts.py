"""What must hold, judged: PASS or FAIL with the figure and the limit, or not judged."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Relation = Literal["<=", ">="]


class Outcome(StrEnum):
    """How a row ends."""

    PASS = "PASS"  # noqa: S105 (not a password)
    FAIL = "FAIL"
    OPEN = "----"


@dataclass(frozen=True, slots=True)
class Check:
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

    def words(self) -> str:
        """Return the figure and its limit as people read them."""
        unit = f" {self.unit}" if self.unit else ""
        figure = "not judged" if self.figure is None else f"{readable(self.figure)}{unit}"
        return f"{self.what}: {figure} ({self.relation} {readable(self.limit)}{unit})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row of what must hold: it passes when every check does, and is open when one could not be judged."""

    name: str
    checks: tuple[Check, ...]
    broken: str = ""
    """Why the row could not be measured at all: it fails then."""

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of the checks."""
        if self.broken:
            return Outcome.FAIL
        found = {check.outcome for check in self.checks}
        return next((o for o in (Outcome.FAIL, Outcome.OPEN) if o in found), Outcome.PASS)

    def line(self) -> str:
        """Return the row on one line."""
        words = self.broken or "; ".join(check.words() for check in self.checks)
        return f"{self.outcome}  {self.name}  {words}"

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON holds it."""
        checks = [
            {"what": c.what, "figure": c.figure, "relation": c.relation, "limit": c.limit, "unit": c.unit}
            for c in self.checks
        ]
        found = {"name": self.name, "outcome": self.outcome.value, "checks": checks}
        return {**found, "broken": self.broken} if self.broken else found


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return 1 when any row fails, else 0."""
    return int(any(verdict.outcome is Outcome.FAIL for verdict in verdicts))


def readable(figure: float) -> str:
    """Return at least three digits, whole numbers as they are, no exponent."""
    if float(figure).is_integer() or abs(figure) >= 100:
        return f"{figure:,.0f}"
    places = 1 if abs(figure) >= 10 else 2 if abs(figure) >= 1 else 3
    return f"{figure:.{places}f}"
