"""The ledger of a population: one file that all runs over the same records charge, and what stands in it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fednode.clock import Clock
from fednode.disk.atomic import write_whole
from fednode.errors import BudgetExhausted, ConfigError, DataError, StoreError
from fednode.privacy.accountant import epsilon, gaussian_epsilon_of_mu, gaussian_mu_of_epsilon
from fednode.privacy.budget import LARGEST_EPSILON, Budget
from fednode.privacy.chain import (
    ChargeRecord,
    History,
    LedgerHeader,
    append_charge,
    append_header,
    append_limit,
    replay,
)
from fednode.privacy.composition import dearest
from fednode.privacy.journal import ConfirmedHead, Journal, head_file
from fednode.privacy.ledger import Ledger, population_name, read_history
from fednode.privacy.mechanism import DiscreteGaussianSum


@dataclass(frozen=True, slots=True)
class PopulationStanding:
    """What runs over the same records have spent before this one, and what all may spend together."""

    path: Path
    budget: Budget
    """The population's own: its limit, and the delta at which its charges are priced."""
    events: tuple[DiscreteGaussianSum, ...]
    runs: int
    limited: bool
    """Whether somebody has set the limit."""

    @property
    def spent(self) -> float:
        """What they cost together."""
        return epsilon(self.events, self.budget.delta)

    def require_room(self, planned: Sequence[DiscreteGaussianSum]) -> None:
        """Raise `BudgetExhausted` unless the whole run fits, priced with the fewest survivors."""
        after = epsilon((*self.events, *planned), self.budget.delta)
        if not after <= self.budget.epsilon:
            limit, delta = self.budget.epsilon, self.budget.delta
            left = gaussian_mu_of_epsilon(limit, delta) ** 2 - math.fsum(event.mu**2 for event in self.events)
            fits = math.floor(100.0 * gaussian_epsilon_of_mu(max(left, 0.0) ** 0.5, delta)) / 100.0
            raise BudgetExhausted(
                f"this run would bring population {population_name(self.path)} from epsilon {self.spent:.4f} to "
                f"{after:.4f}, and {limit:g} is its limit at delta {delta:g}: lower epsilon to {fits:g}, name another "
                "population if these are other records (--population), or raise the limit, which the ledger keeps "
                f"with your name and reason: fednode ledger limit {self.path} --epsilon X --by NAME --reason TEXT"
            )

    def line(self, written: Callable[[float], str]) -> str:
        """What a plan says of it, a cost as it is `written` there."""
        runs = f"{self.runs} run{'s' * (self.runs > 1)}"
        spent = f"epsilon {written(self.spent)} spent by {runs}" if self.runs else "nothing spent yet"
        return f"{population_name(self.path)}: {spent}, of {self.budget.epsilon:g} for all runs together; {self.path}"

    def warnings(self) -> list[str]:
        """That nobody has said how much all runs together may spend, once there is more than one."""
        if self.limited or not self.runs:
            return []
        sentence = (
            f"earlier runs over these records ({self.runs}) spent epsilon {self.spent:.4f}, this run adds to that, and "
            f"nobody has set a limit for all together: fednode ledger limit {self.path} --epsilon X --by NAME "
            "--reason TEXT"
        )
        return [sentence]


def standing(path: Path, budget: Budget) -> PopulationStanding:
    """What stands in the ledger at `path`; nothing if there is none. Writes nothing. Raises `StoreError`."""
    history = read_history(path, absent=True)
    own = replace(budget, epsilon=LARGEST_EPSILON) if history.header is None else history.budget
    charges = [entry.charge for entry in history.entries]
    runs = len({charge.task for charge in charges})
    return PopulationStanding(path, own, dearest(charges), runs, bool(history.limits))


def open_population(path: Path, budget: Budget, clock: Clock, task: str) -> Ledger:
    """The ledger at `path`, to be charged by the run `task`; it is made if there is none. Raises `StoreError`."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"could not make {path.parent}: {error.strerror}; choose another --population") from error
    return Ledger.of_population(path, replace(budget, epsilon=LARGEST_EPSILON), clock, task)


def merge(paths: Sequence[Path], into: Path, clock: Clock) -> Ledger:
    """Make the ledger of a population at `into` from all charges of these ledgers, each round of a task counted once.

    Every line of them is verified, but not that they hold what their head files confirmed: a ledger that lost its end
    is merged with those of the runs. Limits that were set for populations hold in the order of their times. Raises
    `DataError`, `StoreError` for a changed line and where two ledgers differ about a round, `ConfigError` for two units
    and for an existing file.
    """
    found = [_left_of(path) for path in paths]
    units = {history.budget.unit for history in found}
    if len(units) != 1 or into.exists() or head_file(into).exists():
        raise ConfigError(
            f"ledgers of one unit are merged into a new file, not those of {' and '.join(sorted(units))} into {into}"
        )
    budget = Budget(LARGEST_EPSILON, min(history.budget.delta for history in found), units.pop())
    charges: dict[tuple[str, int], ChargeRecord] = {}
    for charge in (entry.charge for history in found for entry in history.entries):
        known = charges.setdefault((charge.task, charge.round_number), charge)
        # a run writes both of its lines at once: two runs that share a name do not
        same = (known.event, known.survivors) == (charge.event, charge.survivors)
        if not same or abs(known.time - charge.time) > 60.0:
            raise StoreError(
                f"two ledgers differ about round {charge.round_number} of {charge.task}: find the right one; "
                "two runs of one name cannot be merged"
            )
    merged, header = append_header(History(), LedgerHeader(population_name(into), budget, clock.time()))
    lines = [header]
    for key in sorted(charges):
        after = epsilon(dearest([*(entry.charge for entry in merged.entries), charges[key]]), budget.delta)
        merged, line = append_charge(merged, replace(charges[key], epsilon_after=after))
        lines.append(line)
    # the limit of a run says nothing of what all runs together may spend
    shared = [one for one in found if not any(entry.charge.task == one.name for entry in one.entries)]
    for limit in sorted({one for history in shared for one in history.limits}, key=lambda one: one.time):
        merged, line = append_limit(merged, limit)
        lines.append(line)
    write_whole(into, b"".join(lines))
    Journal(into).confirm(ConfirmedHead(merged.size, merged.head))
    return Ledger.at(into, clock)


def _left_of(path: Path) -> History:
    """The whole lines at `path`, whatever its head file says."""
    content = Journal(path).read()
    history = replay(content or b"", str(path)).history
    if history.header is None:
        raise DataError(f"{path} holds no line of a ledger; leave it out")
    return history
