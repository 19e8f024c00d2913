"""The report's facts, collected from what was planned and what happened."""

import math

from fednode import __version__
from fednode.assemble.enrolment import HOW_ENROLLED
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
    Claim,
    Claims,
    Guarantee,
    Mechanism,
    NamedReason,
    RoundRecord,
    RunRecord,
    Task,
    Trust,
)
from fednode.reports.figures import plural
from fednode.settings import RunSettings

_ADVERSARY = {
    "ring": "a node that lies, together with up to {corrupt} corrupt holders and any clients, as long as two of the "
    "survivors are honest",
    "bfv": "a node and fewer holders than it takes to open that follow the protocol and look at all they get; a node "
    "that lies to the holders about what they open is out of its scope",
}

_ASSUMED = {
    "ring": {"Ring-LWE is hard, also with the sum of the masks known": "parameters and argument in docs/crypto.md"},
    "bfv": {"The node follows the protocol": "a node that lies about what the holders open learns more"},
}

_ONLY_IF = {"ring": "", "bfv": "; holds only for a node that follows the protocol"}

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
        claims=_claims(plan),
        rounds=tuple(_round(plan, seen) for seen in session.rounds),
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
        enrolment=HOW_ENROLLED,
        scheme=params.scheme,
        adversary=_ADVERSARY[params.scheme].format(corrupt=2 * params.threshold - params.holders - 1),
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


def _claims(plan: Plan) -> Claims:
    terms, params = plan.terms, plan.sum_params
    only_if = _ONLY_IF[params.scheme]
    verified = {
        "Every update in a sum came from an enrolled client": "signature, checked by the node and by every holder",
        "Every update was made for this round, model and task": "spec digest under the client's signature",
        f"No sum of fewer than {plural(terms.min_survivors, 'update')} was opened": "roster, checked by every holder"
        + only_if,
        "No round was opened twice": "each holder's own record, on disk before it answers",
        "The charge was on disk before the holders were asked": "ledger, a chain of hashes",
        "What was opened is the exact sum": "residual of the opening; agreement of the answers beyond the threshold"
        + only_if,
    }
    attested = {
        f"Each record's gradient was clipped to {terms.clip:g}": "the client's own code: nobody can look inside",
        "Each client added its share of the noise": "the client's own code",
        "Each client refused what is below its own floor": "the client's own configuration",
    }
    assumed = {
        _colluders(terms.assumed_colluders): "more of them know more of the noise",
        f"Fewer than {params.threshold} of {params.holders} holders work together": "that many could open one update",
        **_ASSUMED[params.scheme],
        "One person's messages are one record": "somebody with several records is protected less",
    }
    return Claims(_listed(verified), _listed(attested), _listed(assumed))


def _colluders(count: int) -> str:
    if count == 0:
        return "No survivor gives its noise away"
    return f"At most {plural(count, 'survivor')} {'gives its' if count == 1 else 'give their'} noise away"


def _listed(claims: dict[str, str]) -> tuple[Claim, ...]:
    return tuple(Claim(what, how) for what, how in claims.items())


def _deviations(session: Session) -> tuple[str, ...]:
    found = list(session.plan.warnings)
    if session.plan.settings.faults:
        injected = ", ".join(str(fault) for fault in session.plan.settings.faults)
        found.append(f"Faults were injected on purpose: {injected}.")
    failed = [seen.outcome for seen in session.rounds if seen.outcome.cause]
    found += [f"Round {outcome.round} ended without a release: {outcome.reason}." for outcome in failed]
    found += [f"Round {outcome.round} was charged all the same." for outcome in failed if outcome.opened]
    return tuple(found)
