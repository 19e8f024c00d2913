"""The rows of every table on the page, as plain text."""

from collections.abc import Iterable, Mapping

from fednode.reports.figures import (
    bound,
    duration,
    left,
    names,
    number,
    percent,
    percent_bound,
    plural,
    reasons,
    size,
)
from fednode.reports.record import Claim, RoundRecord, RunRecord
from fednode.reports.summary import download

Row = tuple[str, str]

ROUND_HEAD = ("Round", "Outcome", "Survivors", "Holders", "Noise planned", "Noise added", "Epsilon after",
              "Gaussian after", "Accuracy", "Up", "Down", "Time")  # fmt: skip
TROUBLE_HEAD = ("Round", "Who", "What happened")


def guarantee_rows(record: RunRecord) -> tuple[Row, ...]:
    """What is claimed, for whom, at what price."""
    claim = record.guarantee
    rest = left(claim.epsilon_limit, claim.epsilon)
    return (
        ("Epsilon spent (proven bound)", f"{bound(claim.epsilon)} at delta {number(claim.delta)}"),
        ("Epsilon of the Gaussian reference", f"{bound(claim.gaussian)} at the same delta, with the same noise"),
        ("Budget", f"epsilon {number(claim.epsilon_limit)} at delta {number(claim.delta)}; {rest} left"),
        ("Unit", f"one {claim.unit}"),
        ("Neighbours", f"data sets that differ by {claim.adjacency}"),
        ("Setting", claim.setting),
        ("Covered", "every model version that was published, together, and whatever is computed from them"),
        *_attack_rows(record),
        ("When the budget is spent", "the run stops before tasks are sent"),
    )


def _attack_rows(record: RunRecord) -> tuple[Row, ...]:
    claim = record.guarantee
    if not record.released:
        return (("View of an attacker", "none: nothing was released"),)
    advantage = f"{bound(claim.attack_advantage, 3)} (0 none, 1 certainty), by the Gaussian reference"
    recognised = f"{percent_bound(claim.attack_tpr)}, by the Gaussian reference"
    return (("Advantage of an attacker", advantage), ("Members recognised at 1 % false alarms", recognised))


def mechanism_rows(record: RunRecord) -> tuple[Row, ...]:
    """How the noise was made and how much of it."""
    mechanism = record.mechanism
    honest = mechanism.min_survivors - mechanism.assumed_colluders
    return (
        ("Mechanism", mechanism.name),
        ("Sampling", mechanism.sampling),
        ("Clip", f"L2 norm {number(mechanism.clip)} for each {record.guarantee.unit}"),
        ("Grid", f"multiples of 2^-{mechanism.grid_bits}"),
        ("Sensitivity after rounding", bound(mechanism.sensitivity, 6)),
        ("Noise of one client", f"standard deviation {number(mechanism.local_stddev)} in each coordinate"),
        (
            "Planned noise of a sum over the clip",
            f"z = {number(mechanism.target_z)}, from {plural(honest, 'honest share')}",
        ),
        ("Fewest survivors", f"{mechanism.min_survivors}; fewer, and nothing is opened"),
        ("Assumed colluders", f"{mechanism.assumed_colluders}; their noise is not counted on"),
        ("Error of the sampler, added to delta", bound(mechanism.sampler_error, 3)),
        ("Chance of an overflow, added to delta", bound(mechanism.overflow_chance, 3)),
    )


def trust_rows(record: RunRecord) -> tuple[Row, ...]:
    """Who holds which key, and what the secure sum costs."""
    trust, task = record.trust, record.task
    rate = number(trust.payload_bytes / trust.float32_bytes, 3)
    return (
        ("Keys were enrolled", trust.enrolment),
        ("Digest of the signed list of members", trust.cohort or "not known"),
        ("Secure sum", f"{trust.scheme}: {trust.strength}"),
        ("Withstands", trust.adversary),
        ("Key holders", f"{trust.holders}, of whom {trust.threshold} together open one sum a round"),
        ("One sealed update", f"{size(trust.payload_bytes)}; {rate} times float32 ({size(trust.float32_bytes)})"),
        ("Download", download(record)),
        ("Data", f"{task.dataset} ({task.source}): {plural(task.records, 'record')}, {plural(task.labels, 'label')}"),
        ("Model", f"{task.model}, {plural(task.dimension, 'parameter')}"),
        ("Divisor of every sum (public)", number(task.divisor)),
        ("Digest of the final model", trust.model_digest),
        ("Parameters of the secure sum", named(trust.sum_params)),
    )


def named(values: Mapping[str, object]) -> str:
    """A table in one line, keys sorted."""
    return ", ".join(f"{key} {_setting(values[key])}" for key in sorted(values)) or "no parameters"


def setting_rows(record: RunRecord) -> tuple[Row, ...]:
    """All settings as resolved."""
    return tuple((key, _setting(record.settings[key])) for key in sorted(record.settings))


def _setting(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, Mapping):
        return named(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value)) or "none"
    return number(value, 8) if isinstance(value, float) else str(value)


def round_rows(record: RunRecord) -> tuple[tuple[str, ...], ...]:
    """One row a round under `ROUND_HEAD`."""
    return tuple(_round_row(entry) for entry in record.rounds)


def _round_row(entry: RoundRecord) -> tuple[str, ...]:
    holders = len(entry.holders_answered)
    asked = holders + len(entry.holders_silent)
    return (
        str(entry.round),
        entry.outcome,
        f"{len(entry.survivors)} of {entry.invited}",
        f"{holders} of {asked}" if asked else "not asked",
        number(entry.noise_planned, zeros=True),
        number(entry.noise_added, zeros=True),
        bound(entry.epsilon_after, zeros=True),
        bound(entry.gaussian_after, zeros=True),
        "none" if entry.accuracy is None else percent(entry.accuracy),
        size(entry.bytes_up),
        size(entry.bytes_down),
        duration(entry.seconds),
    )


def trouble_rows(record: RunRecord) -> tuple[tuple[str, str, str], ...]:
    """Everything that did not go as planned in a round, under `TROUBLE_HEAD`: who, and what happened."""
    return tuple(row for entry in record.rounds for row in _troubles(entry))


def _troubles(entry: RoundRecord) -> Iterable[tuple[str, str, str]]:
    told = (
        (names(entry.lost), "lost: never answered"),
        (reasons(entry.rejected), "rejected: what came is not in the sum"),
        (reasons(entry.discarded), "discarded: harmless, not needed, and not added to the sum"),
        (_asked_again(entry), "asked again: an update had found no room"),
        (names(entry.holders_silent), "key holder without an answer"),
        ("" if entry.released else "the round", f"failed: {entry.reason or 'no reason given'}"),
    )
    return ((str(entry.round), who, what) for who, what in told if who)


def _asked_again(entry: RoundRecord) -> str:
    return plural(entry.asked_again, "request") if entry.asked_again else ""


def claim_rows(record: RunRecord) -> tuple[tuple[str, str, str], ...]:
    """What the guarantee rests on, by who vouches for it."""
    groups: tuple[tuple[str, tuple[Claim, ...]], ...] = (
        ("verified", record.claims.verified),
        ("attested", record.claims.attested),
        ("assumed", record.claims.assumed),
    )
    return tuple((status, claim.what, claim.how) for status, claims in groups for claim in claims)
