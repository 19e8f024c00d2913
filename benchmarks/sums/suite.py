"""The rows of secure sums: which processes each one starts, and what it answers."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.harness.processes import Job
from benchmarks.harness.suite import BenchSession, Measured, check_known, measure
from benchmarks.harness.timing import Repeats
from benchmarks.sums.cases import FOLDED, Case, ConfirmStep, Figures
from benchmarks.sums.limits import COHORTS, DIMENSION, ROUNDS
from fednode.errors import ConfigError

TIMED: Final = ("plain", "secagg", "ckks", "bfv", "ring")
ROWS: Final = (*TIMED, "confirm", "memory", "exact")
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
        check_known("row", self.rows, ROWS)
        if any(size < 1 for size in self.sizes) or any(clients < 2 for clients in self.clients):
            raise ConfigError("sizes are at least 1 value and cohorts at least 2 clients: give larger numbers")


QUICK: Final = SumOptions(
    sizes=(20_000,), clients=(10, 100), repeats=Repeats(5, 0.0, 5), memory_clients=(10, 100), exact_rounds=20
)
"""Everything once, small: shows that the benchmark works, judges nothing."""


def run_sums(options: SumOptions, session: BenchSession) -> Measured:
    """Measure all rows. A timed row answers Figures by (values, clients), `confirm` a ConfirmStep by clients."""
    rows: dict[str, Callable[[BenchSession], Any]] = {row: partial(_timed, options, row) for row in TIMED}
    rows |= {
        "confirm": partial(_confirm, options),
        "memory": partial(_memory, options),
        "exact": partial(_exact, options),
    }
    return measure({row: rows[row] for row in options.rows}, session)


def _timed(options: SumOptions, row: str, session: BenchSession) -> dict[tuple[int, int], Figures]:
    found: dict[tuple[int, int], Figures] = {}
    for dimension in options.sizes:
        if row == "bfv" and dimension > LARGEST_BFV:
            continue
        for clients in options.clients:
            twin = next((figures for (d, _), figures in found.items() if d == dimension), None)
            if row not in _SAME_FOR_ALL_COHORTS or twin is None:
                twin = _figures(session, row, Case(dimension, clients, options.repeats))
            found[dimension, clients] = twin
    return found


def _figures(session: BenchSession, row: str, case: Case) -> Figures:
    name = f"{row}, d = {case.dimension:,}, n = {case.clients:,}"
    start = session.clock.now()
    figures = Figures.from_dict(session.processes.alone(_job(name, row, case)))
    session.say(
        f"{name}: {figures.bytes_up / case.float_bytes:.2f} x up, client {figures.client.median:.4f} s, "
        f"warm-up {figures.client.warm_up:.4f} s, {session.clock.now() - start:.0f} s in all"
    )
    return figures


def _job(name: str, row: str, case: Case) -> Job:
    return Job(name, "benchmarks.sums.cases", {"row": row, **asdict(case)})


def _confirm(options: SumOptions, session: BenchSession) -> dict[int, ConfirmStep]:
    found = {}
    for clients in options.clients:
        name = f"confirm, n = {clients:,}"
        if clients > LARGEST_CONFIRMED:
            session.say(f"{name}: left out; a real round is run with {LARGEST_CONFIRMED} clients at most")
            continue
        case, start = Case(CONFIRMED_VALUES, clients, options.repeats), session.clock.now()
        found[clients] = ConfirmStep.from_dict(session.processes.alone(_job(name, "confirm", case)))
        seconds = found[clients].holder.median
        session.say(f"{name}: holder {seconds:.4f} s, {session.clock.now() - start:.0f} s in all")
    return found


def _memory(options: SumOptions, session: BenchSession) -> dict[str, int]:
    (few, many), dimension = options.memory_clients, min(options.sizes)
    peaks = []
    with TemporaryDirectory(prefix="fednode-bench-") as folder:
        shared = {"folder": folder, "dimension": dimension, "planned_for": many, "count": FOLDED}
        session.processes.alone(Job("the uploads for the node", "benchmarks.sums.uploads", shared))
        for clients in (few, many):
            name = f"memory, d = {dimension:,}, n = {clients:,}"
            job = Job(name, "benchmarks.sums.memory", {**shared, "clients": clients})
            peaks.append(int(session.processes.alone(job)["peak_bytes"]))
            session.say(f"{name}: {peaks[-1] / 1e6:.0f} MB")
    return {"dimension": dimension, "few": few, "many": many, "peak_few": peaks[0], "peak_many": peaks[1]}


def _exact(options: SumOptions, session: BenchSession) -> dict[str, float]:
    start, total, differences = session.clock.now(), options.exact_rounds, 0
    jobs = [
        Job(f"exact, part {seed + 1}", "benchmarks.sums.exact", {"seed": seed, "rounds": min(_BATCH, total - first)})
        for seed, first in enumerate(range(0, total, _BATCH))
    ]
    for first in range(0, len(jobs), 2):
        differences += sum(int(a["differences"]) for a in session.processes.together(jobs[first : first + 2]))
        session.say(f"exact: {min((first + 2) * _BATCH, total):,} of {total:,} rounds, {differences} differences")
    return {"rounds": total, "differences": differences, "seconds": session.clock.now() - start}
