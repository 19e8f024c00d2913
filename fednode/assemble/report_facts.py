"""The report's facts, collected from what was planned and what happened."""

import math
from dataclasses import replace

from fednode import __version__
from fednode.assemble.claims import STRENGTH, Reached, adversary, claims
from fednode.assemble.planning import OVERFLOW_CHANCE, SAMPLER_DISTANCE, Plan
from fednode.assemble.session import Account, Session, Watched
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
from fednode.reports import (
    Guarantee,
    Mechanism,
    NamedReason,
    RoundRecord,
    RunRecord,
    TaskFacts,
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

_UNKNOWN = "it was charged, and nothing is known of how it ended"


def run_record(session: Session, error: BaseException | None) -> RunRecord:
    """Everything that the report says of this run: every round that was charged is in it, whatever ended the run."""
    plan, settings = session.plan, session.plan.settings
    account = session.account()
    rounds = _rounds(session, account)
    released = sum(1 for seen in rounds if not seen.outcome.cause)
    return RunRecord(
        run_id=session.run_id,
        version=__version__,
        started=session.started,
        ended=session.tools.clock.time(),
        outcome=_word(error),
        outcome_sentence=_sentence(released, settings.rounds, error),
        settings=_settings(settings),
        task=_task(plan),
        mechanism=_mechanism(plan),
        guarantee=_guarantee(plan, account),
        trust=_trust(session, account),
        claims=claims(plan.terms, plan.sum_params, _reached(plan, account, rounds)),
        rounds=tuple(_round(plan, seen) for seen in rounds),
        warnings=plan.warnings,
        deviations=_deviations(session, account, rounds),
    )


def _word(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    if isinstance(error, KeyboardInterrupt):
        return OUTCOMES[Interrupted]
    return next((word for kind, word in OUTCOMES.items() if isinstance(error, kind)), "failed")


def _rounds(session: Session, account: Account) -> list[Watched]:
    """What was seen of each round, in order, and how each that was charged without being seen stands in the ledger."""
    seen = {watched.outcome.round: watched for watched in session.rounds}
    for charge in account.charges:
        if charge.round_number not in seen:
            seen[charge.round_number] = Watched(_unseen(session, charge), None, 0.0, 0.0)
    return [_priced(account, seen[number]) for number in sorted(seen)]


def _unseen(session: Session, charge: ChargeRecord) -> RoundOutcome:
    released = charge.round_number <= session.released
    return RoundOutcome(
        round=charge.round_number,
        cause="" if released else BROKEN,
        reason="" if released else _UNKNOWN,
        broken=_UNKNOWN,
        invited=session.plan.settings.clients,
        survivors=charge.survivors,
        rejected=(),
        discarded=(),
        lost=(),
        answered=(),
        silent=(),
        opened=True,
        asked_again=0,
        bytes_up=0.0,
        bytes_down=0.0,
        seconds=0.0,
    )


def _priced(account: Account, watched: Watched) -> Watched:
    """With what the ledger's own lines say was spent by the end of this round."""
    then = account.after(watched.outcome.round)
    if watched.epsilon == (then.charges[-1].epsilon_after if then.charges else 0.0):
        return watched
    return replace(watched, epsilon=then.epsilon, gaussian=then.gaussian)


def _sentence(released: int, rounds: int, error: BaseException | None) -> str:
    if error is None:
        return "the only round was released" if rounds == 1 else f"all {rounds} rounds were released"
    if not released:
        return f"no round was released; {describe_error(error)}"
    return f"{plural(released, 'round')} {'was' if released == 1 else 'were'} released; {describe_error(error)}"


def _settings(settings: RunSettings) -> dict[str, object]:
    """All settings, JSON-safe, each fault in the form in which it is written on the command line."""
    return {**settings.model_dump(mode="json"), "faults": [str(fault) for fault in settings.faults]}


def _task(plan: Plan) -> TaskFacts:
    return TaskFacts(
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


def _guarantee(plan: Plan, account: Account) -> Guarantee:
    budget = plan.budget
    mu = gaussian_mu([charge.event for charge in account.charges])
    return Guarantee(
        unit=budget.unit,
        adjacency="adding or removing one record",
        setting="distributed noise",
        epsilon_limit=budget.epsilon,
        delta=budget.delta,
        epsilon=account.epsilon,
        gaussian=account.gaussian,
        attack_advantage=attack_advantage(mu),
        attack_tpr=attack_tpr(mu, 0.01),
    )


def _trust(session: Session, account: Account) -> Trust:
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
        ledger_head=account.head,
        ledger_check="fednode ledger ledger.jsonl",
        model_digest=session.model_digest or "no model was saved",
        cohort="" if session.cohort is None else session.cohort.digest().hex(),
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
        asked_again=outcome.asked_again,
    )


def _reached(plan: Plan, account: Account, rounds: list[Watched]) -> Reached:
    released = [seen.outcome for seen in rounds if not seen.outcome.cause]
    return Reached(
        arrived=any(seen.outcome.survivors for seen in rounds),
        charged=bool(account.charges),
        released=len(released),
        spared=sum(1 for outcome in released if len(outcome.answered) > plan.sum_params.threshold),
    )


def _deviations(session: Session, account: Account, rounds: list[Watched]) -> tuple[str, ...]:
    found = [*session.noticed]
    found += [
        f"{change.store}.{change.name} of the cache was changed from {change.old:g} to {change.new:g} at "
        f"{moment(change.at)}."
        for change in session.tuned
    ]
    if session.plan.settings.faults:
        injected = ", ".join(str(fault) for fault in session.plan.settings.faults)
        found.append(f"Faults were injected on purpose: {injected}.")
    failed = [seen.outcome for seen in rounds if seen.outcome.cause]
    charged = {charge.round_number for charge in account.charges}
    found += [f"Round {outcome.round} ended without a release: {outcome.reason}." for outcome in failed]
    found += [f"Round {outcome.round} was charged all the same." for outcome in failed if outcome.round in charged]
    return (*found, *(told for seen in rounds if not seen.outcome.cause for told in _unfinished(session, seen)))


def _unfinished(session: Session, seen: Watched) -> list[str]:
    """What was to follow a release and did not: its sum was opened all the same."""
    broken = f": {seen.outcome.broken}" if seen.outcome.broken else ""
    if seen.accuracy is None:
        done = "tested" if session.saved >= seen.outcome.round else "saved"
        return [f"Round {seen.outcome.round} was released, but its model was not {done}{broken}."]
    return []
