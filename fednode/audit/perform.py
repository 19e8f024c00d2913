"""An audit from a plan to a verdict: all rounds over canaries, in this process, under a ledger of its own."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist

import numpy as np

from fednode.assemble.inprocess_run import KEYS, run_members
from fednode.assemble.planning import Plan, plan_run, plan_task
from fednode.assemble.run_folder import logging_to
from fednode.assemble.serve import ArraysOnly
from fednode.assemble.session import Environment, Session
from fednode.assemble.study import Workload
from fednode.audit.canaries import Canaries, Floats, one_run_bound
from fednode.disk.locked_folder import remove_abandoned, temporary_folder
from fednode.driver import RoundOutcome
from fednode.errors import ConfigError, DataError, TooFewSurvivors
from fednode.observer import Observer, StopFlag
from fednode.privacy import DiscreteGaussianSum, epsilon, gaussian_epsilon_of_mu, gaussian_mu
from fednode.privacy.ledger import read_history
from fednode.protocol.model import Layout
from fednode.settings import RunSettings

MOST_CANARIES, _FEWEST = 5_000, 100

_SELDOM = NormalDist().cdf(-3.0)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What is wrong, a sentence each, none if the audit passes; and its figures, which docs/audit.md explains."""

    findings: tuple[str, ...]
    figures: dict[str, int | float]


@dataclass(frozen=True, slots=True)
class Audit:
    """What is audited: a run with these settings, or the finished one in the folder `run`; over `most` canaries."""

    settings: RunSettings
    run: Path | None = None
    most: int = MOST_CANARIES
    environment: Environment = field(default_factory=Environment)

    def perform(self, observer: Observer, stop: StopFlag) -> AuditResult:
        """Run all rounds over canaries and judge what was opened; with none it is a rehearsal of zeros.

        No record of anybody is used, and no ledger but the audit's own. Raises what a run raises and what ends it
        early, `DataError` for a folder without a charge, `ConfigError` for a model too small for canaries, and
        `TooFewSurvivors` for a sum without all clients.
        """
        sums: list[tuple[DiscreteGaussianSum, Floats]] = []

        def opened(outcome: RoundOutcome) -> None:
            if outcome.release is not None and len(outcome.survivors) < plan.settings.clients:
                raise TooFewSurvivors(f"round {outcome.round} lacks a client, and an audit needs all of them")
            if outcome.release is not None:
                sums.append((session.spending().charges[-1].event, outcome.release.mean * plan.terms.divisor))

        remove_abandoned(KEYS)
        with temporary_folder(KEYS) as place, logging_to(place / "run.log"):
            # the folder of the run is not `place`, which is locked: the ledger locks the folder that it lies in
            plan, folder = self._plan(place), place / "run"
            folder.mkdir(mode=0o700)
            most = min(self.most, plan.settings.clients * plan.terms.max_records)
            size = plan.layout.dimension, plan.settings.clients
            canaries = Canaries.draw(plan.terms.unit, size, most, self.environment.rng())
            if most and len(canaries.inside) < _FEWEST:
                raise ConfigError(f"fewer than {_FEWEST} canaries fit in; measure the noise alone: --rehearse")
            session = Session(plan, folder, observer, stop, ArraysOnly, self.environment, opened=opened)
            observer.started(plan.settings.rounds)
            error = run_members(session, place / "keys", lambda at, _, clip: canaries.sum_of(at.partition(), clip))
        if error is not None or session.noticed:
            raise error or TooFewSurvivors(session.noticed[0])
        return judge(plan, canaries, sums)

    def _plan(self, place: Path) -> Plan:
        """The plan in this process, without faults, all clients in all rounds, a fixed clip, all files in `place`."""
        inside = {"engine": "inproc", "faults": (), "cache": "file", "metrics": None, "out": place, "population": None}
        settings = self.settings.model_copy(update=inside | {"rounds_per_client": None, "clip_quantile": None})
        if self.run is None:
            return plan_run(settings)
        charges = read_history(self.run / "ledger.jsonl", absent=True).entries
        if not charges:
            raise DataError(f"{self.run} has no ledger with a charge: name the folder of a run that opened a round")
        most = 1 if settings.unit == "client" else 1_000
        layout = Layout(("canaries",), ((charges[0].charge.event.dimension,),))
        return plan_task(settings, Workload(layout=layout, records=1_000, max_records=most, unit=settings.unit))


def judge(plan: Plan, canaries: Canaries, sums: list[tuple[DiscreteGaussianSum, Floats]]) -> AuditResult:
    """Return what the opened sums of all rounds say together, each beside its event."""
    clients, delta, events, found = plan.settings.clients, plan.settings.delta, [event for event, _ in sums], []
    put = sum(canaries.sum_of(client, plan.terms.clip).vector for client in range(clients))
    planned = [event.local_variance * clients * event.grid**2 for event in events]
    noise = math.fsum(float(((total - put) ** 2).mean()) / v for (_, total), v in zip(sums, planned, strict=True))
    figures: dict[str, int | float] = {
        "rounds": len(sums),
        "clients": clients,
        "dimension": plan.layout.dimension,
        "delta": delta,
        "ledger_mu": gaussian_mu(events),
        "ledger_epsilon": epsilon(events, delta),
        "noise": noise / len(sums),
        "noise_error": math.sqrt(2.0 / (len(sums) * plan.layout.dimension)),
    }
    if figures["noise"] < 1.0 - 3.0 * figures["noise_error"]:
        found.append(f"the opened sums hold {figures['noise']:.4f} of the planned noise")
    if not len(canaries.inside):
        return AuditResult(tuple(found), figures)
    # a sum weighs the more, the less noise it has: planned, a score then has the variance `weight`
    whole, weight = sum(total / v for (_, total), v in zip(sums, planned, strict=True)), sum(1.0 / v for v in planned)
    scores, inside = canaries.scores(np.asarray(whole)), canaries.inside
    # where there is no noise at all, half a grid step stands for what rounding hides
    spread = max(float(scores[~inside].std(ddof=1)), 0.5 * events[0].grid * weight)
    mu = float(scores[inside].mean() - scores[~inside].mean()) / spread
    error = math.sqrt(1.0 / inside.sum() + 1.0 / (~inside).sum() + mu * mu / (2.0 * (~inside).sum() - 2.0))
    loudest, far = int(np.where(inside, scores, -np.inf).argmax()), NormalDist().inv_cdf(_SELDOM / inside.sum())
    figures |= {
        "canaries": len(inside),
        "mu": mu,
        "mu_error": error,
        "loudest": float(scores[loudest]) / math.sqrt(weight),
        "loudest_client": int(canaries.owners[loudest]) + 1,
        "epsilon_estimate": gaussian_epsilon_of_mu(max(mu, 0.0), delta),
        "epsilon_bound": one_run_bound(scores, inside, delta),
    }
    if mu - 3.0 * error > figures["ledger_mu"]:
        found.append(f"canaries are seen as at mu {mu:.3f}, and the ledger counts {figures['ledger_mu']:.3f}")
    if figures["loudest"] + far > figures["ledger_mu"]:
        found.append(
            f"client {figures['loudest_client']} does not clip: a record is {figures['loudest']:.1f} deviations"
        )
    return AuditResult(tuple(found), figures)
