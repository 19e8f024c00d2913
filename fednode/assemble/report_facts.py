"""The report's facts, collected from what was planned and what happened."""

import math
from dataclasses import replace

from fednode import __version__
from fednode.assemble.claims import STRENGTH, Reached, adversary, claims
from fednode.assemble.planning import Plan
from fednode.assemble.rounds import Spending, round_record
from fednode.assemble.session import Session
from fednode.driver import BROKEN, RoundOutcome, describe_error
from fednode.errors import (
    BudgetExhausted,
    FednodeError,
    Interrupted,
    OpeningRejected,
    StoreError,
    TooFewHolders,
    TooFewSurvivors,
)
from fednode.privacy import ChargeRecord, attack_advantage, attack_tpr, gaussian_mu
from fednode.protocol.headroom import OVERFLOW_CHANCE, SAMPLER_DISTANCE
from fednode.protocol.spec import rounded_norm
from fednode.reports import Guarantee, Mechanism, RoundRecord, RunRecord, TaskFacts, Trust
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

_UNKNOWN = "it was charged, and nothing is known of how it ended"


def run_record(session: Session, error: BaseException | None) -> RunRecord:
    """Everything that the report says of this run; every round that was charged is in it, whatever ended the run."""
    plan, settings = session.plan, session.plan.settings
    spending = session.spending()
    rounds = _rounds(session, spending)
    unfinished = _unfinished(session, rounds)
    return RunRecord(
        run_id=session.run_id,
        version=__version__,
        started=session.started,
        ended=session.environment.clock.time(),
        outcome=_outcome(error),
        outcome_sentence=_sentence(sum(record.released for record in rounds), settings.rounds, error),
        settings=_settings(settings),
        task=_task(plan),
        mechanism=_mechanism(plan),
        guarantee=_guarantee(plan, spending),
        trust=_trust(session, spending),
        claims=claims(plan.terms, plan.sum_params, _reached(plan, spending, rounds)),
        rounds=tuple(rounds),
        warnings=plan.warnings,
        deviations=(*_deviations(session, spending, rounds), *unfinished.values()),
        unfinished=tuple(unfinished),
    )


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    if isinstance(error, KeyboardInterrupt):
        return OUTCOMES[Interrupted]
    return next((word for kind, word in OUTCOMES.items() if isinstance(error, kind)), "failed")


def _rounds(session: Session, spending: Spending) -> list[RoundRecord]:
    """The rounds that the session noted, and those that the ledger alone knows of, in order."""
    noted = {record.round: record for record in session.rounds}
    for charge in spending.charges:
        if charge.round_number not in noted:
            noted[charge.round_number] = _from_ledger(session, charge)
    return [_priced(spending, noted[number]) for number in sorted(noted)]


def _from_ledger(session: Session, charge: ChargeRecord) -> RoundRecord:
    """A round that was charged, and whose end was not noted before the run was aborted."""
    released = charge.round_number <= session.released
    outcome = RoundOutcome(
        round=charge.round_number,
        cause="" if released else BROKEN,
        reason="" if released else _UNKNOWN,
        invited=session.plan.settings.clients,
        survivors=charge.survivors,
        opened=True,
    )
    session.broken[charge.round_number] = _UNKNOWN
    return round_record(session.plan, outcome, None, (0.0, 0.0))


def _priced(spending: Spending, record: RoundRecord) -> RoundRecord:
    """The record with what the ledger's own lines say was spent by the end of this round."""
    then = spending.until(record.round)
    if record.epsilon_after == (then.charges[-1].epsilon_after if then.charges else 0.0):
        return record
    return replace(record, epsilon_after=then.epsilon, renyi_after=then.renyi)


def _sentence(released: int, rounds: int, error: BaseException | None) -> str:
    if error is None:
        return {1: "the only round was", 2: "both rounds were"}.get(rounds, f"all {rounds} rounds were") + " released"
    if not released:
        return f"no round was released; {describe_error(error)}"
    return f"{plural(released, 'round')} {'was' if released == 1 else 'were'} released; {describe_error(error)}"


def _settings(settings: RunSettings) -> dict[str, object]:
    """All settings, JSON-safe, each fault in the form in which it is written on the command line."""
    return {**settings.model_dump(mode="json"), "faults": [str(fault) for fault in settings.faults]}


def _task(plan: Plan) -> TaskFacts:
    workload = plan.workload
    return TaskFacts(
        model=workload.model,
        dataset=workload.dataset,
        source=workload.source,
        labels=workload.labels,
        dimension=plan.layout.dimension,
        clients=plan.settings.clients,
        records=workload.records,
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
        sensitivity=step * rounded_norm(terms.clip / step, plan.layout.dimension),
        local_stddev=math.sqrt(terms.local_variance) * step,
        target_z=terms.noise_multiplier(),
        min_survivors=terms.min_survivors,
        assumed_colluders=terms.assumed_colluders,
        sampler_error=draws * SAMPLER_DISTANCE,
        overflow_chance=OVERFLOW_CHANCE,
    )


def _guarantee(plan: Plan, spending: Spending) -> Guarantee:
    budget = plan.budget
    mu = gaussian_mu([charge.event for charge in spending.charges])
    return Guarantee(
        unit=budget.unit,
        adjacency="the contribution of one record, which is replaced by zero in one of them",
        setting="distributed noise",
        epsilon_limit=budget.epsilon,
        delta=budget.delta,
        epsilon=spending.epsilon,
        renyi=spending.renyi,
        attack_advantage=attack_advantage(mu),
        attack_tpr=attack_tpr(mu, 0.01),
    )


def _trust(session: Session, spending: Spending) -> Trust:
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
        ledger_head=spending.head,
        ledger_check="fednode ledger ledger.jsonl",
        model_digest=session.model_digest or "no model was saved",
        cohort="" if session.members is None else session.members.cohort.digest().hex(),
    )


def _reached(plan: Plan, spending: Spending, rounds: list[RoundRecord]) -> Reached:
    released = [record for record in rounds if record.released]
    return Reached(
        arrived=any(record.survivors for record in rounds),
        charged=bool(spending.charges),
        released=len(released),
        spared=sum(1 for record in released if len(record.holders_answered) > plan.sum_params.threshold),
    )


def _deviations(session: Session, spending: Spending, rounds: list[RoundRecord]) -> tuple[str, ...]:
    found = [*session.noticed]
    found += [
        f"{change.store}.{change.name} of the cache was changed from {change.old:g} to {change.new:g} at "
        f"{moment(change.at)}."
        for change in session.tuned
    ]
    if session.plan.settings.faults:
        injected = ", ".join(str(fault) for fault in session.plan.settings.faults)
        found.append(f"Faults were injected on purpose: {injected}.")
    failed = [record for record in rounds if not record.released]
    charged = {charge.round_number for charge in spending.charges}
    found += [f"Round {record.round} ended without a release: {record.reason}." for record in failed]
    found += [f"Round {record.round} was charged all the same." for record in failed if record.round in charged]
    return tuple(found)


def _unfinished(session: Session, rounds: list[RoundRecord]) -> dict[int, str]:
    """The rounds whose sum was opened and whose model was not saved or not tested, each with a sentence."""
    open_ended = {*session.broken, *range(session.tested + 1, session.plan.settings.rounds + 1)}
    found = {}
    for number in (record.round for record in rounds if record.released and record.round in open_ended):
        done = "tested" if session.saved >= number else "saved"
        broken = f": {session.broken[number]}" if number in session.broken else ""
        found[number] = f"Round {number} was released, but its model was not {done}{broken}."
    return found
