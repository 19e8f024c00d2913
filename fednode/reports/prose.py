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

_FAULTS_NAMED = 3
_LARGE_DELTA = 0.1


def statement(record: RunRecord) -> str:
    """The paragraph to sign: what ran, what it spent, for which unit and neighbours, and on which assumptions."""
    parts = [_where_it_ran(record), _what_ran(record), _what_it_spent(record), _what_adds_up(record)]
    if record.charged:
        parts += [_whom_it_protects(record), _noise_of_what_was_spent(record), _noise_of_the_budget(record)]
    return " ".join(part for part in (*parts, _what_the_sum_rests_on(record)) if part)


def _where_it_ran(record: RunRecord) -> str:
    said = []
    if record.trust.one_machine:
        said.append(
            "This was a study on one machine: the run made all keys itself and was every client and every key holder, "
            "so that no independent party stands behind what follows."
        )
    faults = record.injected
    if faults:
        verb = "was" if len(faults) == 1 else "were"
        which = ", ".join(faults) if len(faults) <= _FAULTS_NAMED else "listed with the settings"
        said.append(f"{plural(len(faults), 'fault')} {verb} injected on purpose ({which}).")
    return " ".join(said)


def _what_ran(record: RunRecord) -> str:
    task, released = record.task, len(record.released)
    trained = "trained" if released else "was to train"
    sent = "who handed over sealed updates only" if released else "who hand over sealed updates only"
    kept = "" if len(record.accuracies) == released else " One was not saved or not tested: the deviations say why."
    published = (
        f"It published {plural(released, 'model version')}, one for each released round.{kept}"
        if released
        else "Nothing was released: no model version was published."
    )
    planned = "" if record.trust.one_machine else ", by the node's plan (which records a client used is its own word)"
    return (
        f"Between {moment(record.started)} and {moment(record.ended)}, run {record.run_id} {trained} {task.model} on "
        f"the data set {task.dataset}: {plural(task.records, 'record')} held by {plural(task.clients, 'client')}"
        f"{planned}, {sent}. {published}"
    )


def _what_it_spent(record: RunRecord) -> str:
    claim = record.guarantee
    limit = f"budget of epsilon = {number(claim.epsilon_limit)}"
    wasted = len(record.charged_in_vain)
    if not record.charged:
        return f"Nothing was charged to the {limit} at delta = {number(claim.delta)}."
    price = f"epsilon = {bound(claim.epsilon)} at delta = {number(claim.delta)}, out of a {limit}"
    if not record.released:
        return f"{plural(wasted, 'round')} cost budget all the same: {price}, was charged and stays spent."
    spent = f"{_together(record)} differentially private with {price}."
    if wasted:
        spent += f" This includes {plural(wasted, 'round')} that cost budget and published nothing."
    return spent


def _together(record: RunRecord) -> str:
    return "It is" if len(record.released) == 1 else "Together they are"


def _what_adds_up(record: RunRecord) -> str:
    if not record.charged:
        return ""
    return "This epsilon is for this run alone: every other run on the same records, earlier or later, adds to it."


def _whom_it_protects(record: RunRecord) -> str:
    claim = record.guarantee
    trusted = (
        "in a deployment no single party is then trusted with the noise"
        if record.trust.one_machine
        else "no single party was trusted with the noise"
    )
    return (
        f"The unit of protection is one {claim.unit}; two data sets are neighbours if they differ by "
        f"{claim.adjacency}. The setting is {claim.setting}: every client added its share of the noise before it "
        f"sealed its update, so what was opened had it, and {trusted}."
    )


def _noise_of_what_was_spent(record: RunRecord) -> str:
    colluders = record.mechanism.assumed_colluders
    fewest = min(len(entry.survivors) for entry in record.charged) - colluders
    who = f"all survivors but at most {colluders}" if colluders else "all survivors"
    return (
        f"The epsilon spent holds assuming that in each round that was charged {who} added their noise as specified "
        f"and kept it to themselves (at least {fewest} in every round), and that every client clipped each "
        f"{record.guarantee.unit} to an L2 norm of {number(record.mechanism.clip)}."
    )


def _noise_of_the_budget(record: RunRecord) -> str:
    mechanism = record.mechanism
    honest = mechanism.min_survivors - mechanism.assumed_colluders
    return (
        f"No round of fewer than {plural(mechanism.min_survivors, 'survivor')} was opened; the noise was planned so "
        f"that the whole budget of epsilon = {number(record.guarantee.epsilon_limit)} holds even if every "
        f"round has only that many, of whom {honest} add their noise."
    )


def _what_the_sum_rests_on(record: RunRecord) -> str:
    trust = record.trust
    start = "All of this assumes" if record.charged else "That the updates stay sealed assumes"
    return (
        f"{start} that no {trust.threshold} of the {plural(trust.holders, 'key holder')} join to open "
        f"anything but the one sum of each round. The secure sum ({trust.scheme}) withstands {trust.adversary}. It is "
        f"{trust.strength}. The tables of the report say which of this was verified, attested or assumed."
    )


def meaning(record: RunRecord) -> tuple[str, ...]:
    """What the number means to somebody who asks whether one unit's presence can be told: short paragraphs."""
    if not record.released:
        return (_nothing_to_see(record),)
    return _attack_view(record), _where_the_view_is_from(record), _definition(record)


def _nothing_to_see(record: RunRecord) -> str:
    nothing = "Nothing was released: there is no model for an attacker to look at, and no guarantee of one to grade."
    if not record.charged:
        return f"{nothing} Nothing was charged either."
    return (
        f"{nothing} An epsilon of {bound(record.guarantee.epsilon)} was charged before the key holders were asked to "
        "open; it counts as spent, whatever came of it."
    )


def _attack_view(record: RunRecord) -> str:
    claim = record.guarantee
    return (
        f"Take an attacker who knows everything about the data but whether one particular {claim.unit} is in it, and "
        "who sees every published model. By the Gaussian reference, if it may raise a false alarm in 1 of 100 cases, "
        f"it recognises {percent_bound(claim.attack_tpr)} of those that are in (1\N{NO-BREAK SPACE}% would be "
        f"guessing), and its advantage over guessing is {bound(claim.attack_advantage, 3)} on a scale from 0 (none) "
        "to 1 (certainty)."
    )


def _where_the_view_is_from(record: RunRecord) -> str:
    return (
        "These two figures are those of a Gaussian mechanism with the same noise (epsilon = "
        f"{bound(record.guarantee.gaussian)}): the reference beside the proven bound, and not a proof for the noise "
        "of this run. They are for the best attacker on the worst of all data sets; on an ordinary one, known attacks "
        "do worse."
    )


def _definition(record: RunRecord) -> str:
    claim = record.guarantee
    factor = f" (about {number(math.exp(claim.epsilon), 3)})" if claim.epsilon < 100 else ""
    return (
        f"In the definition's own words: one {claim.unit} more or less changes the chance of any outcome by a factor "
        f"of at most e^{bound(claim.epsilon)}{factor}, but for a chance of {number(claim.delta)}. "
        f"{_tier(record)}"
    )


def _tier(record: RunRecord) -> str:
    epsilon, delta, records = record.guarantee.epsilon, record.guarantee.delta, record.task.records
    source = 'in the tiers of "How to DP-fy ML" (Ponomareva and others, 2023)'
    if epsilon > 10:
        return f"An epsilon above 10 is a weak guarantee, or none, {source}."
    if delta * records > _LARGE_DELTA:
        return (
            f"Epsilon alone would stand higher, but delta is too large to call this a strong or a reasonable "
            f"guarantee: delta times {plural(records, 'record')} is {bound(delta * records, 3)}, and should be at most "
            f"{number(_LARGE_DELTA)}."
        )
    if epsilon <= 1:
        return f"An epsilon of at most 1 is a strong formal guarantee {source}."
    return f"An epsilon above 1 and at most 10 is a reasonable guarantee {source}, not a strong one."


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
