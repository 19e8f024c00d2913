"""`report.html`: one file that asks nothing of the network, and starts with the paragraph to sign."""

from fednode.reports import plots, prose, tables
from fednode.reports.figures import bound, moment, number, percent, plural, size
from fednode.reports.markup import Markup, bullets, facts, grid, join, tag, whole
from fednode.reports.record import RunRecord
from fednode.reports.style import STYLE

_META = Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">')


def render_html(record: RunRecord) -> bytes:
    """The whole page as UTF-8. Equal records give equal bytes; every string of the record is escaped."""
    title = f"Privacy report of run {record.run_id}"
    head = tag("head", _META, tag("title", title), tag("style", Markup(STYLE)))
    body = tag("body", tag("main", _top(record, title), *_sections(record)), _footer(record))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n".encode()


def _top(record: RunRecord, title: str) -> Markup:
    span = f"FedNode {record.version}. {moment(record.started)} to {moment(record.ended)}."
    mood = "outcome finished" if record.outcome == "finished" else "outcome"
    sign = tag("div", *(tag("span", what) for what in ("Name", "Date", "Signature")), class_="sign")
    return join(
        (
            tag("h1", title),
            tag("p", span, class_="sub"),
            tag("p", record.outcome_sentence, class_=mood),
            tag("div", tag("p", whole(prose.statement(record))), sign, class_="statement"),
            _cards(record),
        )
    )


def _cards(record: RunRecord) -> Markup:
    claim, measured = record.guarantee, record.accuracies
    counts = [len(entry.survivors) for entry in record.released]
    cards = (
        ("Epsilon spent", bound(claim.epsilon), f"of {number(claim.epsilon_limit)} at delta {number(claim.delta)}"),
        ("Unit", claim.unit, f"neighbours differ by {claim.adjacency}"),
        ("Rounds released", str(len(record.released)), f"of {plural(len(record.rounds), 'round')} that ended"),
        ("Fewest survivors", str(min(counts)) if counts else "none", f"floor {record.mechanism.min_survivors}"),
        ("Accuracy", percent(measured[-1]) if measured else "not measured", "after the last round, own test set"),
        ("Upload", size(record.trust.payload_bytes), "a client and round, sealed"),
    )
    return tag(
        "dl",
        *(tag("div", tag("dt", what), tag("dd", value, tag("small", whole(note)))) for what, value, note in cards),
        class_="cards",
    )


def _sections(record: RunRecord) -> tuple[Markup, ...]:
    troubles = tables.trouble_rows(record)
    return (
        _section("What the number means", *(tag("p", whole(text)) for text in prose.meaning(record))),
        _section("The run in four plots", _plots(record)),
        _section("Guarantee", facts(tables.guarantee_rows(record))),
        _section("Mechanism", facts(tables.mechanism_rows(record))),
        _section("Keys, data and sizes", facts(tables.trust_rows(record))),
        _section("What the guarantee rests on", _claims(record)),
        _section("Not protected", bullets(prose.UNPROTECTED)),
        _section("Warnings, and deviations from the plan", _deviations(record)),
        _section("Who was lost, rejected or discarded", _troubles(troubles)),
        _section("Rounds", _rounds(record)),
        _section("How to check the ledger", bullets(prose.ledger_steps(record), "ol")),
        _section("All settings", facts(tables.setting_rows(record))),
    )


def _section(title: str, *children: str) -> Markup:
    return tag("section", tag("h2", title), *children)


def _plots(record: RunRecord) -> Markup:
    drawn = (
        ("Accuracy per round", plots.accuracy_plot(record), "No accuracy was measured."),
        ("Epsilon spent, and the limit", plots.epsilon_plot(record), "No round ended."),
        ("Noise planned and noise really added", plots.noise_plot(record), "No round was released."),
        ("Survivors per round, and the floor", plots.survivors_plot(record), "No round ended."),
    )
    figures = (tag("figure", tag("figcaption", title), Markup(svg) or tag("p", empty)) for title, svg, empty in drawn)
    return tag("div", *figures, class_="plots")


def _claims(record: RunRecord) -> Markup:
    words = (
        "Verified: checked by the node or a key holder before anything was opened. Attested: signed by a client or a "
        "holder, which alone can know it. Assumed: checked by nobody; if it is wrong, the guarantee is weaker or gone."
    )
    table = grid(("Status", "What", "How, or what breaks it"), tables.claim_rows(record), "grid claims")
    return join((tag("p", words), table))


def _deviations(record: RunRecord) -> Markup:
    found = (*record.warnings, *record.deviations)
    return bullets(found) if found else tag("p", "None: the run went as planned.")


def _troubles(rows: tuple[tuple[str, str, str], ...]) -> Markup:
    if not rows:
        return tag("p", "Nobody: every client and every key holder answered in every round.")
    return grid(tables.TROUBLE_HEAD, rows)


def _rounds(record: RunRecord) -> Markup:
    if not record.rounds:
        return tag("p", "No round ended.")
    words = (
        "Noise is the standard deviation of each coordinate of the sum, in model units. Planned: by the fewest "
        "survivors less the assumed colluders. Added: by all whose updates were kept. Bytes are means over clients. "
        "The names of the survivors stand in report.json."
    )
    return join((tag("p", words), grid(tables.ROUND_HEAD, tables.round_rows(record), "grid numbers")))


def _footer(record: RunRecord) -> Markup:
    return tag(
        "footer", f"Made by FedNode {record.version} from the run's own record; report.json holds the same facts."
    )
