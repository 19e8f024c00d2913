"""The replay of one trace: which policies at which sizes, several seeds where a policy draws, cores side by side."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.harness.processes import Job
from benchmarks.harness.results import cores
from benchmarks.harness.suite import BenchSession, check_known
from benchmarks.trace.reading import read_trace
from fednode.cache.memory.policies import POLICIES
from fednode.errors import ConfigError

SIZES: Final = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
SEEDS: Final = 5
REFERENCE: Final = "lru"
"""The policy that all others are compared with."""

SAMPLED: Final = frozenset({"adaptive"})
"""Policies that draw their candidates, so that runs differ by seed."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What to replay: `sizes` in entries; `seeds` is how often a policy that draws its candidates is run."""

    sizes: tuple[int, ...] = SIZES
    policies: tuple[str, ...] = POLICIES
    seeds: int = SEEDS

    def __post_init__(self) -> None:
        check_known("policy", self.policies, POLICIES)
        if not self.sizes or any(size < 1 for size in self.sizes) or self.seeds < 1:
            raise ConfigError("a cache holds at least 1 entry and a policy runs at least once: give larger numbers")

    def runs(self) -> list[tuple[str, int]]:
        """Return the policies with their seeds; the reference is always among them."""
        policies = dict.fromkeys((REFERENCE, *self.policies))
        return [(policy, seed) for policy in policies for seed in range(self.seeds if policy in SAMPLED else 1)]


@dataclass(frozen=True, slots=True)
class Ratios:
    """Hits as a share of all accesses: the median over the seeds, and their range."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a trace gave: hit ratios by policy and size, `belady` by size, `infinite` for a cache without a limit."""

    name: str
    requests: int
    accesses: int
    blocks: int
    infinite: float
    belady: Mapping[int, float] = field(default_factory=dict)
    policies: Mapping[str, Mapping[int, Ratios]] = field(default_factory=dict)

    def over_reference(self, policy: str, size: int) -> Ratios | None:
        """Return how far a policy is over LRU at a size, relative to LRU (0.03: 3 % more hits); None if unknown."""
        found = self.policies.get(policy, {}).get(size)
        reference = self.policies.get(REFERENCE, {}).get(size)
        if found is None or reference is None or not reference.middle:
            return None
        return Ratios(*(ratio / reference.middle - 1 for ratio in (found.middle, found.low, found.high)))


def run_trace(path: Path, options: TraceOptions, session: BenchSession) -> Replayed:
    """Replay the trace in `path` and return the ratios.

    Raises BadTrace before anything runs, RowFailed when a process ends without an answer.
    """
    trace = read_trace(path)
    accesses = trace.accesses()
    total, blocks = len(accesses), len(set(accesses))
    session.say(f"{path.name}: {len(trace.requests):,} requests, {total:,} accesses, {blocks:,} blocks")
    shared = {"trace": str(path.resolve()), "sizes": list(options.sizes)}
    jobs = [Job("the bounds", "benchmarks.trace.bounds", shared)]
    jobs += [
        Job(f"{policy}, seed {seed}", "benchmarks.trace.replay", {**shared, "policy": policy, "seed": seed})
        for policy, seed in options.runs()
    ]
    bounds, *answers = _in_turn(jobs, session)
    return Replayed(
        name=path.name,
        requests=len(trace.requests),
        accesses=total,
        blocks=blocks,
        infinite=bounds["infinite"] / total,
        belady=dict(zip(options.sizes, (hits / total for hits in bounds["belady"]), strict=True)),
        policies=_by_policy(options, [answer["hits"] for answer in answers], total),
    )


def _in_turn(jobs: list[Job], session: BenchSession) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    for first in range(0, len(jobs), cores()):
        batch = jobs[first : first + cores()]
        answers += session.processes.together(batch)
        session.say(f"replayed: {'; '.join(job.name for job in batch)}")
    return answers


def _by_policy(options: TraceOptions, hits: list[list[int]], total: int) -> dict[str, dict[int, Ratios]]:
    found: dict[str, dict[int, list[float]]] = {}
    for (policy, _), counts in zip(options.runs(), hits, strict=True):
        for size, count in zip(options.sizes, counts, strict=True):
            found.setdefault(policy, {}).setdefault(size, []).append(count / total)
    return {
        policy: {size: Ratios(median(ratios), min(ratios), max(ratios)) for size, ratios in sizes.items()}
        for policy, sizes in found.items()
    }
