"""The run: which rows, one after another, each in its own process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.harness.processes import Job, run_job, run_side_by_side
from benchmarks.harness.timing import Repeats
from benchmarks.sums.cases import FOLDED, Case, Confirmed, Figures
from benchmarks.sums.limits import COHORTS, DIMENSION, ROUNDS
from benchmarks.sums.report import Exactness, Measured, Memory
from fednode.clock import Clock
from fednode.errors import ConfigError

ROWS: Final = ("plain", "secagg", "ckks", "bfv", "ring", "confirm", "memory", "exact")
LARGEST_BFV: Final = 1_000_000
LARGEST_CONFIRMED: Final = 100
"""Clients of the largest cohort that a real round is run with: each member checks all others' signed keys."""

CONFIRMED_VALUES: Final = 100

_SAME_FOR_ALL_COHORTS: Final = frozenset({"ckks"})
_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True)
class SumOptions:
    """What to measure. `memory_clients` are the two cohorts that a node's memory is compared at."""

    rows: tuple[str, ...] = ROWS
    sizes: tuple[int, ...] = (DIMENSION, 10 * DIMENSION)
    clients: tuple[int, ...] = COHORTS
    repeats: Repeats = field(default_factory=Repeats)
    memory_clients: tuple[int, int] = (COHORTS[0], COHORTS[-1])
    exact_rounds: int = ROUNDS

    def __post_init__(self) -> None:
        unknown = [row for row in self.rows if row not in ROWS]
        if unknown:
            raise ConfigError(f"there is no row '{unknown[0]}': choose from {', '.join(ROWS)}")
        if any(size < 1 for size in self.sizes) or any(clients < 2 for clients in self.clients):
            raise ConfigError("sizes are at least 1 value and cohorts at least 2 clients: give larger numbers")


QUICK: Final = SumOptions(
    sizes=(20_000,), clients=(10, 100), repeats=Repeats(5, 0.0, 5), memory_clients=(10, 100), exact_rounds=20
)
"""Everything once, small: shows that the benchmark works, judges nothing."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Runner:
    """How jobs become answers: one alone, whose times count, or several side by side, whose times do not."""

    alone: Callable[[Job], dict[str, Any]] = run_job
    together: Callable[[list[Job]], list[dict[str, Any]]] = run_side_by_side


def run_sums(options: SumOptions, say: Say, clock: Clock, runner: Runner | None = None) -> Measured:
    """Measure all rows and return the figures; `say` hears of each before it starts and after.

    Raises RowFailed when a row's process fails: a benchmark with holes is none.
    """
    run = _Run(options, say, clock, runner or Runner())
    rows = run.rows()
    memory = run.memory() if "memory" in options.rows else None
    exact = run.exact() if "exact" in options.rows else None
    confirmed = run.confirmed() if "confirm" in options.rows else {}
    return Measured(rows, memory, exact, confirmed)


@dataclass(frozen=True, slots=True)
class _Run:
    options: SumOptions
    say: Say
    clock: Clock
    runner: Runner

    def rows(self) -> dict[tuple[str, int, int], Figures]:
        found: dict[tuple[str, int, int], Figures] = {}
        for row, case in self._cases():
            twin = next((f for (r, d, _), f in found.items() if (r, d) == (row, case.dimension)), None)
            if row not in _SAME_FOR_ALL_COHORTS or twin is None:
                twin = self._row(row, case)
            found[row, case.dimension, case.clients] = twin
        return found

    def _cases(self) -> Iterator[tuple[str, Case]]:
        for dimension in self.options.sizes:
            for row in self.options.rows:
                if row in {"confirm", "memory", "exact"} or (row == "bfv" and dimension > LARGEST_BFV):
                    continue
                for clients in self.options.clients:
                    yield row, Case(dimension, clients, self.options.repeats)

    def _row(self, row: str, case: Case) -> Figures:
        name = f"{row}, d = {case.dimension:,}, n = {case.clients:,}"
        start = self.clock.now()
        figures = Figures.from_dict(self.runner.alone(Job(name, f"benchmarks.sums.{row}", case.to_dict())))
        self.say(
            f"{name}: {figures.bytes_up / case.float_bytes:.2f} x up, client {figures.client.median:.4f} s, "
            f"warm-up {figures.client.warm_up:.4f} s, {self.clock.now() - start:.0f} s in all"
        )
        return figures

    def confirmed(self) -> dict[int, Confirmed]:
        found = {}
        for clients in self.options.clients:
            name = f"confirm, n = {clients:,}"
            if clients > LARGEST_CONFIRMED:
                self.say(f"{name}: left out, {LARGEST_CONFIRMED} clients are the most that a real round is run with")
                continue
            case, start = Case(CONFIRMED_VALUES, clients, self.options.repeats), self.clock.now()
            answer = self.runner.alone(Job(name, "benchmarks.sums.confirm", case.to_dict()))
            found[clients] = Confirmed.from_dict(answer)
            seconds = found[clients].holder.median
            self.say(f"{name}: holder {seconds:.4f} s, {self.clock.now() - start:.0f} s in all")
        return found

    def memory(self) -> Memory:
        (few, many), dimension = self.options.memory_clients, min(self.options.sizes)
        peaks = []
        with TemporaryDirectory(prefix="fednode-bench-") as folder:
            shared = {"folder": folder, "dimension": dimension, "planned": many, "count": FOLDED}
            self.runner.alone(Job("the uploads for the node", "benchmarks.sums.uploads", shared))
            for clients in (few, many):
                name = f"memory, d = {dimension:,}, n = {clients:,}"
                job = Job(name, "benchmarks.sums.memory", {**shared, "clients": clients})
                peaks.append(int(self.runner.alone(job)["peak_bytes"]))
                self.say(f"{name}: {peaks[-1] / 1e6:.0f} MB")
        return Memory(dimension, few, many, *peaks)

    def exact(self) -> Exactness:
        start, left, differences, batches = self.clock.now(), self.options.exact_rounds, 0, []
        while left:
            batches.append(min(left, _BATCH))
            left -= batches[-1]
        jobs = [
            Job(f"exact, part {i + 1}", "benchmarks.sums.exact", {"seed": i, "rounds": rounds})
            for i, rounds in enumerate(batches)
        ]
        for first in range(0, len(jobs), 2):
            differences += sum(int(a["differences"]) for a in self.runner.together(jobs[first : first + 2]))
            done = sum(batches[: first + 2])
            self.say(f"exact: {done:,} of {sum(batches):,} rounds, {differences} differences")
        return Exactness(sum(batches), differences, self.clock.now() - start)
