"""The report's facts: from what was planned and what happened, or from what a killed run left in its folder."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from fednode import __version__
from fednode.assemble.claims import STRENGTH, Reached, adversary, claims
from fednode.assemble.planning import Plan
from fednode.assemble.rounds import NOTES_NAME, Notes, Spending, charged_alone
from fednode.assemble.session import Session
from fednode.driver import describe_error
from fednode.errors import (
    BudgetExhausted,
    DataError,
    FednodeError,
    Interrupted,
    OpeningRejected,
    StoreError,
    TooFewHolders,
    TooFewSurvivors,
)
from fednode.privacy import Budget, attack_advantage, attack_tpr, epsilon, gaussian_mu, rounds_left
from fednode.privacy.population import standing
from fednode.protocol.headroom import OVERFLOW_CHANCE, SAMPLER_DISTANCE
from fednode.protocol.spec import Terms, rounded_norm
from fednode.reports import (
    JSON_NAME,
    About,
    AuditFound,
    Claims,
    DeltaPrice,
    Guarantee,
    LabelScore,
    Mechanism,
    RoundRecord,
    RunRecord,
    TaskFacts,
    Trust,
    parse_audit,
    parse_report,
)
from fednode.reports.figures import bound, moment, plural
from fednode.reports.ledger_check import group_prices
from fednode.settings import RunSettings
from fednode.units import UNITS
from fednode_crypto import params_from_dict

OUTCOMES: dict[type[FednodeError], str] = {
    Interrupted: "stopped",
    TooFewSurvivors: "too-few-survivors",
    TooFewHolders: "too-few-holders",
    OpeningRejected: "opening-rejected",
    BudgetExhausted: "budget-spent",
    StoreError: "disk-refused",
}

UNFINISHED = "unfinished"
"""The outcome of a run whose end nobody noted."""

NO_MODEL = "no model was saved"
_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8)
_UNKNOWN = "it was charged, and nothing is known of how it ended"


def planned_notes(session: Session) -> Notes:
    """What the report of this run says if the run is killed before it ends, and what it takes to say more."""
    plan, settings = session.plan, session.plan.settings
    nothing = Spending((), "", plan.budget.delta)
    planned = RunRecord(
        run_id=session.run_id,
        version=__version__,
        started=session.started,
        ended=session.started,
        outcome=UNFINISHED,
        outcome_sentence="",
        settings=_settings(settings),
        task=_task(plan),
        mechanism=_mechanism(plan),
        guarantee=_guarantee(plan.budget, settings.rounds),
        trust=_trust(session),
        claims=Claims((), (), ()),
        rounds=(),
        warnings=plan.warnings,
        deviations=_injected(settings),
        population=plan.population.line(bound).rpartition("; ")[0],
        about=About(*(getattr(settings, field.name) or "" for field in fields(About))),
    )
    return Notes(_accounted(planned, plan.terms, nothing), plan.terms)


def run_record(session: Session, error: BaseException | None) -> RunRecord:
    """Everything that the report says of this run; every round that was charged is in it, whatever ended the run."""
    spending = session.spending()
    rounds = _rounds(session, spending)
    unfinished = _unfinished(session, rounds)
    planned = planned_notes(session).planned
    record = replace(
        planned,
        ended=session.environment.clock.time(),
        outcome=_outcome(error),
        outcome_sentence=_sentence(sum(one.released for one in rounds), session.plan.settings.rounds, error),
        trust=replace(planned.trust, model_digest=session.model_digest or planned.trust.model_digest),
        rounds=tuple(rounds),
        deviations=(*session.noticed, *_tuned(session), *planned.deviations, *guesses(session.labels)),
        unfinished=tuple(unfinished),
        labels=session.labels,
        population=standing(session.plan.population.path, session.plan.budget).line(bound).rpartition("; ")[0],
    )
    record = _accounted(record, session.plan.terms, spending)
    return replace(record, deviations=(*record.deviations, *unfinished.values()))


def guesses(labels: Sequence[LabelScore]) -> tuple[str, ...]:
    """A sentence if the last model is right no more often than to name always the most frequent label."""
    total, right = sum(one.total for one in labels), sum(one.right for one in labels)
    most = max((one.total for one in labels), default=0)
    if len(labels) < 2 or right > most:
        return ()
    share = f"{right:,} of {total:,} test records are right, and naming always the most frequent label gets {most:,}"
    return (f"The last model guesses: {share}.",)


def record_left(folder: Path) -> tuple[RunRecord, Spending]:
    """The report of a run and its charges, from its folder: from the report it wrote, or from its notes and its ledger.

    Raises `DataError` if neither is there, `StoreError` if the ledger was changed or is not the report's.
    """
    written = folder / JSON_NAME
    record = parse_report(written.read_bytes()) if written.exists() else None
    if record is None or record.outcome == UNFINISHED:
        record, spending = _unfinished_record(folder)
        return replace(record, audit=_audit(folder)), spending
    spending = Spending.left(folder / record.trust.ledger_path, record.guarantee.delta)
    if spending.head != record.trust.ledger_head:
        raise StoreError(
            f"the ledger in {folder} ends with the head {spending.head or 'of none'}, and {JSON_NAME} names "
            f"{record.trust.ledger_head or 'none'}: keep both and find out which was changed"
        )
    return replace(record, audit=_audit(folder)), spending


def _audit(folder: Path) -> AuditFound | None:
    """What `fednode audit` left in the folder. Raises `DataError` if it cannot be read."""
    path = folder / "audit.json"
    try:
        return parse_audit(path.read_bytes()) if path.exists() else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read ({type(error).__name__}); remove it, or audit the run again") from error


def _unfinished_record(folder: Path) -> tuple[RunRecord, Spending]:
    notes = Notes.read(folder)
    planned, terms = replace(notes.planned, population=""), notes.terms  # it says what was spent before the run
    spending = Spending.left(folder / planned.trust.ledger_path, planned.guarantee.delta)
    noted = {one.round: one for one in notes.rounds}
    least = terms.min_survivors - terms.assumed_colluders
    for charge in spending.charges:
        if charge.round_number not in noted:
            noted[charge.round_number] = charged_alone(charge, planned.task.clients, least, _UNKNOWN)
    rounds = tuple(noted[number] for number in sorted(noted))
    released = sum(one.released for one in rounds)
    ending = "no end was noted: the run still goes on, or it was killed"
    record = replace(
        planned,
        ended=max([planned.started, (folder / NOTES_NAME).stat().st_mtime]),
        outcome_sentence=f"{plural(released, 'round')} {'was' if released == 1 else 'were'} released; {ending}",
        trust=replace(
            planned.trust, model_digest=([NO_MODEL] + [one.model_digest for one in rounds if one.released])[-1]
        ),
        rounds=rounds,
    )
    return _accounted(record, terms, spending), spending


def _accounted(record: RunRecord, terms: Terms, spending: Spending) -> RunRecord:
    """The record with its rounds priced as the ledger has them, and what follows from that."""
    rounds = tuple(_priced(spending, one) for one in record.rounds)
    params = params_from_dict(record.trust.sum_params)
    released = [one for one in rounds if one.released]
    reached = Reached(
        arrived=any(one.survivors for one in rounds),
        charged=bool(spending.charges),
        released=len(released),
        spared=sum(1 for one in released if len(one.holders_answered) > params.threshold),
    )
    return replace(
        record,
        guarantee=_priced_guarantee(record.guarantee, spending),
        trust=replace(record.trust, ledger_head=spending.head),
        claims=claims(terms, params, reached, record.task.public_inputs),
        rounds=rounds,
        deviations=(*record.deviations, *_failures(rounds)),
    )


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    if isinstance(error, KeyboardInterrupt):
        return OUTCOMES[Interrupted]
    return next((word for kind, word in OUTCOMES.items() if isinstance(error, kind)), "failed")


def _rounds(session: Session, spending: Spending) -> list[RoundRecord]:
    """The rounds that the session noted, and those that the ledger alone knows of, in order."""
    noted, plan = {record.round: record for record in session.rounds}, session.plan
    least = plan.terms.min_survivors - plan.terms.assumed_colluders
    for charge in spending.charges:
        if charge.round_number not in noted:
            session.broken[charge.round_number] = _UNKNOWN
            broken = "" if charge.round_number <= session.released else _UNKNOWN
            noted[charge.round_number] = charged_alone(charge, plan.settings.clients, least, broken)
    return [noted[number] for number in sorted(noted)]


def _priced(spending: Spending, record: RoundRecord) -> RoundRecord:
    """The record with what the ledger's own lines say was spent by the end of this round."""
    then = spending.until(record.round)
    record = replace(record, charged=any(charge.round_number == record.round for charge in spending.charges))
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
        public_inputs=workload.public_inputs,
    )


def _mechanism(plan: Plan) -> Mechanism:
    terms, step = plan.terms, 2.0**-plan.terms.grid_bits
    draws = plan.noise.dimension * plan.settings.clients * plan.settings.rounds
    return Mechanism(
        name=f"distributed discrete Gaussian in the secure sum{' of rotated updates' if terms.rotated else ''}",
        sampling=_sampling(plan),
        clip=terms.clip,
        grid_bits=terms.grid_bits,
        sensitivity=step * rounded_norm(terms.clip / step, plan.noise.dimension),
        local_stddev=math.sqrt(terms.local_variance) * step,
        target_z=terms.noise_multiplier(),
        min_survivors=terms.min_survivors,
        assumed_colluders=terms.assumed_colluders,
        sampler_error=draws * SAMPLER_DISTANCE,
        overflow_chance=OVERFLOW_CHANCE,
    )


def _guarantee(budget: Budget, rounds: int) -> Guarantee:
    """The guarantee before anything is charged."""
    return Guarantee(
        unit=budget.unit,
        adjacency=UNITS[budget.unit].differ,
        setting="distributed noise",
        epsilon_limit=budget.epsilon,
        delta=budget.delta,
        epsilon=0.0,
        renyi=0.0,
        attack_advantage=0.0,
        attack_tpr=0.01,
        replace_one=0.0,
        deltas=(),
        groups=(),
        rounds_left=rounds,
    )


def _priced_guarantee(claim: Guarantee, spending: Spending) -> Guarantee:
    events, limit = spending.events, claim.epsilon_limit
    mu, groups = gaussian_mu(events), group_prices(events, claim.delta)
    return replace(
        claim,
        epsilon=spending.epsilon,
        renyi=spending.renyi,
        attack_advantage=attack_advantage(mu),
        attack_tpr=attack_tpr(mu, 0.01),
        replace_one=groups[0].epsilon,
        deltas=tuple(DeltaPrice(delta, _finite(epsilon(events, delta))) for delta in _DELTAS),
        groups=groups,
        rounds_left=rounds_left(events, events[-1], limit, claim.delta) if events else claim.rounds_left,
    )


def _sampling(plan: Plan) -> str:
    outside = plan.outsiders()
    if outside is None:
        return "every client and every record in every round (q = 1), so no amplification is claimed"
    return (
        f"each client in {plan.settings.rounds_per_client} rounds, drawn at random by the node; epsilon counts them in "
        f"full, and is {bound(outside)} as planned against those who do not know who took part in which round: not "
        "against the node, the holders or a reader of this report"
    )


def _finite(price: float) -> float | None:
    return price if math.isfinite(price) else None


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
        ledger_head="",
        ledger_check="fednode ledger verify ledger.jsonl",
        model_digest=NO_MODEL,
        cohort="" if session.members is None else session.members.cohort.digest().hex(),
    )


def _injected(settings: RunSettings) -> tuple[str, ...]:
    faults = ", ".join(map(str, settings.faults))
    return (f"Faults were injected on purpose: {faults}.",) if faults else ()


def _tuned(session: Session) -> list[str]:
    return [
        f"{change.store}.{change.name} of the cache was changed from {change.old:g} to {change.new:g} at "
        f"{moment(change.at)}."
        for change in session.tuned
    ]


def _failures(rounds: tuple[RoundRecord, ...]) -> list[str]:
    failed = [record for record in rounds if not record.released]
    found = [f"Round {record.round} ended without a release: {record.reason}." for record in failed]
    return found + [f"Round {record.round} was charged all the same." for record in failed if record.charged]


def _unfinished(session: Session, rounds: list[RoundRecord]) -> dict[int, str]:
    """The rounds whose sum was opened and whose model was not saved or not tested, each with a sentence."""
    open_ended = {*session.broken, *range(session.tested + 1, session.plan.settings.rounds + 1)}
    found = {}
    for number in (record.round for record in rounds if record.released and record.round in open_ended):
        done = "tested" if session.saved >= number else "saved"
        broken = f": {session.broken[number]}" if number in session.broken else ""
        found[number] = f"Round {number} was released, but its model was not {done}{broken}."
    return found
