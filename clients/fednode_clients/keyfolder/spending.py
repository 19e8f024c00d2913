"""What a member's data have cost over all tasks and rounds, as its own record says.

{"joined": task, ..., "cost": event}    a round, priced by `fednode.privacy.accountant`; with "rounds", so many
{"raised": epsilon, "reason": text}     its owner allows so much
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from fednode.errors import ConfigError
from fednode.privacy.accountant import epsilon
from fednode.privacy.mechanism import DiscreteGaussianSum
from fednode_clients.keyfolder.exclusive import exclusive
from fednode_clients.keyfolder.folder import KeyFolder

Rounds = Counter[DiscreteGaussianSum]
"""How many rounds there were of each cost."""


@dataclass(frozen=True, slots=True)
class MemberSpending:
    """The rounds of each task; `raised` is the epsilon of the owner's last raise, 0 without one.

    `whole` is False if a line has no cost, as after a damaged record or in one of an earlier version. A raise settles
    that for the lines before it.
    """

    tasks: Mapping[str, Rounds]
    whole: bool = True
    raised: float = 0.0

    @staticmethod
    def of(entries: Iterable[Mapping[str, object]]) -> "MemberSpending":
        """What the lines of a record say, oldest first."""
        tasks: defaultdict[str, Rounds] = defaultdict(Counter)
        whole, raised = True, 0.0
        for entry in entries:
            if "raised" in entry:
                value = entry["raised"]
                whole, raised = True, float(value) if isinstance(value, int | float) else 0.0
            if "joined" in entry:
                event, rounds = _event(json.dumps(entry.get("cost"))), entry.get("rounds", 1)
                if event is None or type(rounds) is not int:
                    whole = False
                else:
                    tasks[str(entry["joined"])][event] += rounds
        return MemberSpending(dict(tasks), whole, raised)

    @property
    def rounds(self) -> Rounds:
        """Those of all tasks."""
        total: Rounds = Counter()
        for rounds in self.tasks.values():
            total.update(rounds)
        return total

    def epsilon(self, delta: float, *more: DiscreteGaussianSum) -> float:
        """The epsilon of all rounds, and of `more`, at `delta`; inf if the cost of a round is unknown."""
        return _epsilon((*self.rounds.elements(), *more), delta) if self.whole else math.inf

    def lines(self) -> list[dict[str, object]]:
        """The same as few lines, with which the next record begins."""
        lines: list[dict[str, object]] = [
            {"joined": task, "rounds": count, "cost": event.to_dict()}
            for task, rounds in self.tasks.items()
            for event, count in rounds.items()
        ]
        if self.raised:
            lines.append({"raised": self.raised, "reason": "as in the record before"})
        return lines if self.whole else [*lines, {"joined": None, "cost": None}]


def raise_budget(folder: KeyFolder, most: float, reason: str, own: float) -> None:
    """Record the owner's limit; below the last only `own`, its max-epsilon. Raises `ConfigError`, `StoreError`."""
    if not (0.0 < most < math.inf and reason.strip() and reason.isprintable() and len(reason) <= 512):
        raise ConfigError(
            "--raise needs a finite epsilon above 0, and --reason with one line of at most 512 characters"
        )
    with exclusive(folder):
        limit = max(own, MemberSpending.of(folder.audit_log.entries()).raised)
        if most < limit and most != own:
            raise ConfigError(f"the limit is {limit:g}; --raise it, or go back to --max-epsilon ({own:g})")
        folder.audit_log.append({"raised": most, "reason": reason})


# members of one simulation have the same history
_epsilon = lru_cache(maxsize=16)(epsilon)


@lru_cache(maxsize=4096)
def _event(cost: str) -> DiscreteGaussianSum | None:
    try:
        return DiscreteGaussianSum.from_dict(json.loads(cost))
    except ValueError:
        return None
