"""The paragraphs: what was promised, in sentences that a data-protection officer can sign."""

import math

from fednode.reports.figures import bound, moment, number, percent_bound, plural
from fednode.reports.record import RunRecord

UNPROTECTED = (
    "Who took part: the names of clients and holders, and the rounds they were in, lost in or refused in.",
    "How many took part: the size of the cohort and of every round.",
    "When: the time, the length and the size of every message.",
    "The number of records in total, and the public divisor.",
    "The accuracy of each round. It is measured on the operator's own test set, which this guarantee does not cover.",
    "Whatever was chosen by looking at private data before the run: settings, labels, features.",
)
"""What the guarantee does not speak of."""


def statement(record: RunRecord) -> str:
    """The paragraph to sign: what ran, what it spent, for which unit and neighbours, and on which assumptions."""
    return " ".join((_what_ran(record), _what_it_spent(record), _whom_it_protects(record), _what_it_rests_on(record)))


def _what_ran(record: RunRecord) -> str:
    task = record.task
    return (
        f"Between {moment(record.started)} and {moment(record.ended)}, run {record.run_id} trained {task.model} on "
        f"the data set {task.dataset}: {plural(task.records, 'record')} held by {plural(task.clients, 'client')}, who "
        f"handed over sealed updates only. It published {plural(len(record.released), 'model version')}, one for each "
        "released round."
    )


def _what_it_spent(record: RunRecord) -> str:
    claim = record.guarantee
    subject = "Together they are" if record.released else "What was charged is"
    spent = (
        f"{subject} differentially private with epsilon = {bound(claim.epsilon)} at delta = {number(claim.delta)}, out "
        f"of a budget of epsilon = {number(claim.epsilon_limit)}."
    )
    wasted = len(record.charged_in_vain)
    if wasted:
        spent += f" This includes {plural(wasted, 'round')} that cost budget and published nothing."
    return spent


def _whom_it_protects(record: RunRecord) -> str:
    claim = record.guarantee
    return (
        f"The unit of protection is one {claim.unit}; two data sets are neighbours if they differ by "
        f"{claim.adjacency}. The setting is {claim.setting}: every client added its share of the noise before it "
        "sealed its update, so no single party was trusted with the noise, and what was opened had it."
    )


def _what_it_rests_on(record: RunRecord) -> str:
    mechanism, trust = record.mechanism, record.trust
    honest = mechanism.min_survivors - mechanism.assumed_colluders
    return (
        f"This holds assuming that in each round, of at least {plural(mechanism.min_survivors, 'survivor')} (the "
        f"floor under which nothing is opened), at least {honest} added their noise as specified and kept it to "
        f"themselves; that every client clipped each {record.guarantee.unit} to an L2 norm of "
        f"{number(mechanism.clip)}; and that no {trust.threshold} of the {trust.holders} key holders join to open "
        f"anything but the one sum of each round. The secure sum ({trust.scheme}) withstands {trust.adversary}. The "
        "tables of the report say which of this was verified, attested or assumed."
    )


def meaning(record: RunRecord) -> tuple[str, ...]:
    """What the number means to somebody who asks whether one unit's presence can be told: three short paragraphs."""
    return _attack_view(record), _where_the_view_is_from(record), _definition(record)


def _attack_view(record: RunRecord) -> str:
    claim = record.guarantee
    return (
        f"Take an attacker who knows everything about the data but whether one particular {claim.unit} is in it, and "
        "who sees every published model. If it may raise a false alarm in 1 of 100 cases, it recognises at most "
        f"{percent_bound(claim.attack_tpr)} of those that are in (1\N{NO-BREAK SPACE}% would be guessing). Its "
        f"advantage over guessing is at most {bound(claim.attack_advantage, 3)} on a scale from 0 (none) to 1 "
        "(certainty)."
    )


def _where_the_view_is_from(record: RunRecord) -> str:
    return (
        "These two figures are those of a Gaussian mechanism with the same noise (epsilon = "
        f"{bound(record.guarantee.gaussian)}): the reference beside the proven bound. They bound the attacker for the "
        "worst of all data sets; on an ordinary one, known attacks do worse."
    )


def _definition(record: RunRecord) -> str:
    claim = record.guarantee
    factor = f" (about {number(math.exp(claim.epsilon), 3)})" if claim.epsilon < 100 else ""
    return (
        f"In the definition's own words: one {claim.unit} more or less changes the chance of any outcome by a factor "
        f"of at most e^{bound(claim.epsilon)}{factor}, but for a chance of {number(claim.delta)}. "
        f"{_tier(claim.epsilon)}"
    )


def _tier(epsilon: float) -> str:
    source = 'in the tiers of "How to DP-fy ML" (Ponomareva and others, 2023)'
    if epsilon <= 1:
        return f"An epsilon of at most 1 is a strong formal guarantee {source}."
    if epsilon <= 10:
        return f"An epsilon above 1 and at most 10 is a reasonable guarantee {source}, not a strong one."
    return f"An epsilon above 10 is a weak guarantee, or none, {source}."


def ledger_steps(record: RunRecord) -> tuple[str, ...]:
    """How somebody who does not trust this page checks what was charged."""
    trust = record.trust
    file = (
        f"Open {trust.ledger_path}: one line for each charge, written and synced to disk before the sum was opened. A "
        "line holds the event (what mechanism, how much noise, how many survivors) and not only an epsilon, so that "
        "another accountant can price it again."
    )
    chain = (
        "Each line carries the hash of the line before. Follow the chain from the first line to the last: a line "
        "that was changed, taken out or moved breaks it."
    )
    head = (
        f"The hash of the last line must be {trust.ledger_head}. Whoever noted that value elsewhere can tell a ledger "
        "that was written anew."
    )
    model = f"The digest of the final model is {trust.model_digest}. report.json holds all facts of this page."
    steps = (file, chain, head, model)
    return steps if trust.ledger_check is None else (*steps, f"Or let the node check it: {trust.ledger_check}")
