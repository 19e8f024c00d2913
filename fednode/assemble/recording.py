"""The report's facts, collected from what was planned and what happened."""

import math

from fednode import __version__
from fednode.assemble.claims import STRENGTH, Reached, adversary, claims
from fednode.assemble.planning import OVERFLOW_CHANCE, SAMPLER_DISTANCE, Plan
from fednode.assemble.session import Session, Watched
from fednode.errors import (
    BudgetExhausted,
    FednodeError,
    Interrupted,
    OpeningRejected,
    StoreError,
    TooFewHolders,
    TooFewSurvivors,
)
from fednode.privacy import attack_advantage, attack_tpr, gaussian_mu
from fednode.reports import (
    Guarantee,
    Mechanism,
    NamedReason,
    RoundRecord,
    RunRecord,
    Task,
    Trust,
)
from fednode.reports.figures import moment, plural
from fednode.settings import RunSettings

OUTCOMES: dict[type[FednodeError], str] = {
    Interrupted: "stopped",
    TooFewSurvivors: "too-few-survivors",
    TooFewHolders: "too-few-holders",
    OpeningRejected: "opening-rejected",
    BudgetExhausted: "budget-spent",
    StoreError: "disk-refused",
}


def run_record(session: Session, error: FednodeError | None) -> RunRecord:
    """Everything that the report says of this run."""
    plan, settings = session.plan, session.plan.settings
    released = sum(1 for seen in session.rounds if not seen.outcome.cause)
    return RunRecord(
        run_id=session.run_id,
        version=__version__,
        started=session.started,
        ended=session.tools.clock.time(),
        outcome="finished" if error is None else OUTCOMES.get(type(error), "failed"),
        outcome_sentence=_sentence(released, settings.rounds, error),
        settings=_settings(settings),
        task=_task(plan),
        mechanism=_mechanism(plan),
        guarantee=_guarantee(session),
        trust=_trust(session),
        claims=claims(plan.terms, plan.sum_params, _reached(session)),
        rounds=tuple(_round(plan, seen) for seen in session.rounds),
        warnings=plan.warnings,
        deviations=_deviations(session),
    )


def _sentence(released: int, rounds: int, error: FednodeError | None) -> str:
    if error is None:
        return "the only round was released" if rounds == 1 else f"all {rounds} rounds were released"
    if not released:
        return f"no round was released; {error}"
    return f"{plural(released, 'round')} {'was' if released == 1 else 'were'} released; {error}"


def _settings(settings: RunSettings) -> dict[str, object]:
    """All settings, JSON-safe, each fault in the form in which it is written on the command line."""
    return {**settings.model_dump(mode="json"), "faults": [str(fault) for fault in settings.faults]}


def _task(plan: Plan) -> Task:
    return Task(
        model=f"an intent classifier, a linear head on {plan.columns} features",
        dataset=plan.dataset.name,
        source=plan.dataset.source,
        labels=len(plan.dataset.labels),
        dimension=plan.layout.dimension,
        clients=plan.settings.clients,
        records=plan.records,
        divisor=plan.terms.divisor,
    )


def _mechanism(plan: Plan) -> Mechanism:
    terms, step = plan.terms, 2.0**-plan.terms.grid_bits
    draws = plan.layout.dimension * plan.settings.clients * plan.settings.rounds
    return Mechanism(
        name="distributed discrete Gaussian in the secure sum",
        sampling="every client and every record in every round (q = 1), so no amplification is claimed",
        clip=terms.clip,
        grid_bits=terms.grid_bits,
        sensitivity=terms.clip + step * math.sqrt(plan.layout.dimension),
        local_stddev=math.sqrt(terms.local_variance) * step,
        target_z=terms.noise_multiplier(),
        min_survivors=terms.min_survivors,
        assumed_colluders=terms.assumed_colluders,
        sampler_error=draws * SAMPLER_DISTANCE,
        overflow_chance=OVERFLOW_CHANCE,
    )


def _guarantee(session: Session) -> Guarantee:
    budget = session.plan.budget
    mu = gaussian_mu([session.plan.events(len(seen.outcome.survivors))[0] for seen in _opened(session)])
    return Guarantee(
        unit=budget.unit,
        adjacency="adding or removing one record",
        setting="distributed noise",
        epsilon_limit=budget.epsilon,
        delta=budget.delta,
        epsilon=session.epsilon,
        gaussian=session.gaussian,
        attack_advantage=attack_advantage(mu),
        attack_tpr=attack_tpr(mu, 0.01),
    )


def _opened(session: Session) -> list[Watched]:
    return [seen for seen in session.rounds if seen.outcome.opened]


def _trust(session: Session) -> Trust:
    params = session.plan.sum_params
    return Trust(
        enrolment=session.enrolled,
        scheme=params.scheme,
        adversary=adversary(params),
        strength=STRENGTH[params.scheme],
        sum_params=params.to_dict(),
        payload_bytes=params.upload_bytes,
        float32_bytes=4 * params.dimension,
        holders=params.holders,
        threshold=params.threshold,
        ledger_path="ledger.jsonl",
        ledger_head=session.ledger_head,
        ledger_check="fednode ledger ledger.jsonl",
        model_digest=session.model_digest or "no model was released",
    )


def _round(plan: Plan, seen: Watched) -> RoundRecord:
    outcome, step = seen.outcome, 2.0**-plan.terms.grid_bits
    local = math.sqrt(plan.terms.local_variance) * step
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
        epsilon_after=seen.epsilon,
        gaussian_after=seen.gaussian,
        accuracy=seen.accuracy,
        bytes_up=round(outcome.bytes_up),
        bytes_down=round(outcome.bytes_down),
        seconds=outcome.seconds,
    )


def _reached(session: Session) -> Reached:
    released = [seen.outcome for seen in session.rounds if not seen.outcome.cause]
    return Reached(
        arrived=any(seen.outcome.survivors for seen in session.rounds),
        charged=bool(_opened(session)),
        released=len(released),
        spared=sum(1 for outcome in released if len(outcome.answered) > session.plan.sum_params.threshold),
    )


def _deviations(session: Session) -> tuple[str, ...]:
    found = [
        f"{change.store}.{change.name} of the cache was changed from {change.old:g} to {change.new:g} at "
        f"{moment(change.at)}."
        for change in session.tuned
    ]
    if session.plan.settings.faults:
        injected = ", ".join(str(fault) for fault in session.plan.settings.faults)
        found.append(f"Faults were injected on purpose: {injected}.")
    failed = [seen.outcome for seen in session.rounds if seen.outcome.cause]
    found += [f"Round {outcome.round} ended without a release: {outcome.reason}." for outcome in failed]
    found += [f"Round {outcome.round} was charged all the same." for outcome in failed if outcome.opened]
    return tuple(found)
