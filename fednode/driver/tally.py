"""What happened in a round, for the record: names, reasons and bytes, never a payload."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Filled while a round is driven. `rejected`, `discarded` and `silent` hold (member, reason)."""

    rejected: list[tuple[str, str]] = field(default_factory=list)
    discarded: list[tuple[str, str]] = field(default_factory=list)
    silent: list[tuple[str, str]] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    bytes_up: Counter[str] = field(default_factory=Counter)
    bytes_down: Counter[str] = field(default_factory=Counter)
    cause: str = ""
    reason: str = ""

    def lost(self, invited: Collection[str], survivors: Collection[str]) -> tuple[str, ...]:
        """Who was invited and said nothing. A stopped round did not wait for them: they are not lost."""
        heard = set(survivors) | {name for name, _ in self.rejected + self.discarded}
        return () if self.cause == "stopped" else tuple(sorted(set(invited) - heard))

    def silences(self, more: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Each silent holder with its reason; `more` are those of whom nothing was heard, unless they have one
        already."""
        named = {name for name, _ in self.silent}
        return (*self.silent, *((name, reason) for name, reason in more.items() if name not in named))


def mean_of(sizes: Mapping[str, int]) -> float:
    """Mean bytes of those that sent or got any; 0 if nobody did."""
    return sum(sizes.values()) / len(sizes) if sizes else 0.0
