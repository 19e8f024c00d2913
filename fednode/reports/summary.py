"""The table that a run prints at its end."""

from fednode.reports.figures import (
    LOOSER,
    bound,
    duration,
    number,
    percent,
    percent_bound,
    plain,
    plural,
    printable,
    reasons,
    size,
)
from fednode.reports.run_record import RunRecord


def summary_rows(record: RunRecord) -> tuple[tuple[str, str], ...]:
    """Rows of (what, value), without control characters, whatever names clients have."""
    rows = (
        ("Outcome", record.outcome_sentence),
        ("Rounds", _rounds(record)),
        ("Accuracy", _accuracy(record)),
        ("Privacy spent", _privacy(record)),
        ("Cross-check", f"epsilon {bound(record.guarantee.renyi)} by Renyi divergence: {LOOSER}"),
        ("Attack view", _attack(record)),
        ("Survivors", _survivors(record)),
        *_troubles(record),
        ("Secure sum", f"{record.trust.scheme}: withstands {record.trust.adversary}"),
        *(("Warning", warning) for warning in record.warnings),
        ("Upload", _upload(record)),
        ("Download", _download(record)),
        ("Time", duration(record.ended - record.started)),
    )
    return tuple((what, printable(plain(value))) for what, value in rows)


def _rounds(record: RunRecord) -> str:
    failed = len(record.rounds) - len(record.released)
    text = f"{len(record.released)} released"
    return f"{text}, {failed} failed" if failed else text


def _accuracy(record: RunRecord) -> str:
    measured = record.accuracies
    if not measured:
        return "not measured"
    return f"{percent(measured[-1])} (first round {percent(measured[0])}, best {percent(max(measured))})"


def _privacy(record: RunRecord) -> str:
    claim = record.guarantee
    return (
        f"epsilon {bound(claim.epsilon)} of {number(claim.epsilon_limit)} at delta {number(claim.delta)}, "
        f"unit: one {claim.unit}"
    )


def _attack(record: RunRecord) -> str:
    if not record.released:
        return "none: nothing was released"
    recognised = percent_bound(record.guarantee.attack_tpr)
    unit = f"{record.guarantee.unit}s"
    return f"an attacker with 1 % false alarms recognises {recognised} of the {unit} used"


def _survivors(record: RunRecord) -> str:
    if not record.rounds:
        return "no round ended"
    counts = zip(*((len(entry.survivors), entry.invited) for entry in record.rounds), strict=True)
    came, asked = (f"{min(each)} to {max(each)}" if len(set(each)) > 1 else str(each[0]) for each in counts)
    return f"{came} of {asked} a round, {record.mechanism.min_survivors} needed"


def _troubles(record: RunRecord) -> tuple[tuple[str, str], ...]:
    kinds = {
        "Lost": [(entry.round, ", ".join(entry.lost)) for entry in record.rounds],
        "Rejected": [(entry.round, reasons(entry.rejected)) for entry in record.rounds],
        "Discarded": [(entry.round, reasons(entry.discarded)) for entry in record.rounds],
        "Asked again": [(entry.round, _requests(entry.asked_again)) for entry in record.rounds],
        "Wrong, with proof": [(entry.round, ", ".join(entry.proven)) for entry in record.rounds],
        "Holders silent": [(entry.round, ", ".join(entry.holders_silent)) for entry in record.rounds],
        "Failed": [(entry.round, entry.reason or "no reason given") for entry in record.rounds if not entry.released],
    }
    return tuple((kind, _rounds_with(found)) for kind, found in kinds.items() if any(who for _, who in found))


def _requests(count: int) -> str:
    return plural(count, "request") if count else ""


def _rounds_with(found: list[tuple[int, str]]) -> str:
    hits = [f"round {number}: {who}" for number, who in found if who]
    shown = "; ".join(hits[:3])
    return shown if len(hits) <= 3 else f"{shown}; and in {plural(len(hits) - 3, 'more round')}"


def _upload(record: RunRecord) -> str:
    trust = record.trust
    sealed = (
        f"{size(trust.payload_bytes)} a sealed update, {number(trust.payload_bytes / trust.float32_bytes, 3)} x float32"
    )
    sent = [entry.bytes_up for entry in record.released]
    return f"{sealed}; {size(sum(sent) / len(sent))} a client a round with all else, on average" if sent else sealed


def _download(record: RunRecord) -> str:
    if not record.mean_download:
        return "no client was asked"
    over = number(record.mean_download / record.trust.float32_bytes, 3)
    return f"{size(round(record.mean_download))} a client a round, {over} x sending the whole model each time"
