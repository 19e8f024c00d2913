"""`report.html`: well-formed, on its own, complete, and deaf to what clients call themselves."""

import re
from base64 import b64encode
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from kit.html_page import Page
from kit.sample_record import CLIENTS, sample_record

from fednode.reports import AuditFound, Claims, RoundRecord, RunRecord, render_html
from fednode.reports.figures import LOOSER
from fednode.reports.page import statement

pytestmark = pytest.mark.thorough

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onclick='x",
    "</style><b>",
    "</title><svg onload=x>",
    "]]><!--",
)


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render_html(sample_record()))


def empty_record() -> RunRecord:
    record = sample_record()
    claim = replace(record.guarantee, epsilon=0.0, renyi=0.0, attack_advantage=0.0, attack_tpr=0.01)
    nothing = Claims((), (), ())
    return replace(
        record, rounds=(), outcome="stopped", guarantee=claim, claims=nothing, warnings=(), deviations=(), settings={}
    )


def test_every_tag_is_closed_and_the_page_is_whole(page: Page) -> None:
    assert page.open == [] and page.tags[0] == "html"
    assert (page.tags.count("svg"), page.tags.count("h1")) == (4, 1)


def test_it_asks_nothing_of_the_network(page: Page) -> None:
    data = render_html(sample_record()).decode()
    assert not any(outside in data for outside in ("http:", "https:", "@import"))
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not any(name in ("src", "href", "xlink:href") for name, _ in page.attributes)


def test_its_policy_allows_its_style_sheet_and_nothing_else(page: Page) -> None:
    data = render_html(sample_record()).decode()
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', data)
    (sheet,) = re.findall(r"<style[^>]*>(.*?)</style>", data, re.DOTALL)
    allowed = {"'sha256-" + b64encode(sha256(sheet.encode()).digest()).decode() + "'"}
    parts = {part.split()[0]: set(part.split()[1:]) for part in policy.split(";")}
    none = {"'none'"}
    assert parts == {"default-src": none, "style-src": allowed, "base-uri": none, "form-action": none}
    assert data.index("Content-Security-Policy") < data.index("<style")
    # what a policy of hashes would not let through
    assert not any(name == "style" or name.startswith("on") for name, _ in page.attributes)


def real(**changes: object) -> RunRecord:
    """The sample as a deployment."""
    record = sample_record()
    return replace(record, trust=replace(record.trust, enrolment="each member made its own keys"), **changes)


def first(record: RunRecord) -> dict[str, str]:
    """The five lines of the first page, by what they answer."""
    page = Page(render_html(record))
    names = ("Guarantee", "For whom", "Budget left", "Kind", "Who signs", "Rounds released")
    text = page.section("The run finished", "The statement")
    return {
        name: text[text.index(f" {name} ") + len(name) + 2 : text.index(f" {end} ")] for name, end in pairwise(names)
    }


def test_it_starts_with_five_lines_and_then_the_statement(page: Page) -> None:
    before, _ = page.text.split(statement(sample_record()))
    assert "The run finished" in before and "What the number means" not in before
    lines = first(sample_record())
    assert "all 18 published models" in lines["Guarantee"] and "23.7 %" in lines["Guarantee"]
    assert "Epsilon is 7.874 at delta 1e-5." in lines["Guarantee"]
    assert "2 records: epsilon 18.31; 5 records: epsilon 64.2; 10 records: no finite epsilon." in lines["For whom"]
    assert "A person may have more than one" in lines["For whom"]
    assert lines["Budget left"].startswith("0.126 of epsilon 8: 1 more round like the last fits.")
    assert "All runs on the same records: support: epsilon 9.1 spent by 2 runs, of 20 for all" in lines["Budget left"]
    assert lines["Kind"].startswith("A study on one machine") and "not signed" in lines["Who signs"]
    assert all(len(line) < 200 for line in lines.values())


def test_who_signs_signs_what_it_alone_can_know_and_only_a_deployment_that_ended_well() -> None:
    signed = Page(render_html(real())).section("Signatures Operator", "All settings")
    assert signed.count("I confirm that") == signed.count("Name Date Signature") == 5
    for role in (
        "Operator of the node",
        "Each client",
        "Each key holder",
        "Enroller",
        "Responsible for data protection",
    ):
        assert role in signed
    assert first(real())["Kind"] == "A deployment: each member made its own keys."
    failed = real(outcome="opening-rejected")
    for record in (sample_record(), failed, replace(real(), rounds=())):
        assert "I confirm" not in Page(render_html(record)).text
    assert "the run failed" in first(failed)["Who signs"]


def test_the_gravest_assumption_stands_on_the_first_page_and_first_in_its_table(page: Page) -> None:
    gravest = sample_record().claims.assumed[0].what
    assert f"Gravest assumption {gravest}" in page.text
    rests = page.section("What the guarantee rests on", "Not protected")
    places = [rests.index(word) for word in ("Assumed: ", gravest, "Attested: ", "Verified: ")]
    assert places == sorted(places)


def test_the_accuracy_stands_beside_the_commonest_label_and_by_label(page: Page) -> None:
    assert "commonest label: 62.5 %" in page.text
    part = page.section("Accuracy by label", "Audit Verdict")
    assert part.index("late parcel 30 of 60 50.0 %") < part.index("card 90 of 100 90.0 %") and "unseen" not in part


def test_an_audit_is_shown_with_its_verdict_and_its_figures(page: Page) -> None:
    assert "Audit pass" in page.text and "ledger mu 1.17" in page.section("Audit Verdict: pass", "Warnings, and")
    bad = replace(sample_record(), audit=AuditFound("fail", ("the noise is halved",), {}))
    assert "Verdict: fail. the noise is halved." in Page(render_html(bad)).text
    without = Page(render_html(replace(sample_record(), audit=None))).text
    assert "Audit not done" in without and "Verdict" not in without


def test_title_organisation_purpose_and_contact_are_those_of_the_settings(page: Page) -> None:
    about = sample_record().about
    assert page.text.count(about.title) == 2 and f"Run {sample_record().run_id}" in page.text
    assert all(word in page.text for word in (about.organisation, about.purpose, about.contact))
    bare = Page(render_html(replace(sample_record(), about=type(about)()))).text
    assert "Privacy report of run" in bare and "Organisation" not in bare


def test_every_printed_page_names_run_and_ledger_head_whatever_the_run_is_called() -> None:
    data = render_html(replace(sample_record(), run_id='"; } body { display: none } /*</style>')).decode()
    sheet = data[data.index("@bottom-left") : data.index("@bottom-right")]
    assert sample_record().trust.ledger_head in sheet and "counter(pages)" in data
    assert sheet.count('"') == 2 and sheet.count("}") == 1 and "<" not in sheet


def test_everybody_who_was_lost_rejected_or_discarded_is_named_with_the_reason(page: Page) -> None:
    part = page.section("Who was lost, rejected or discarded", "How to check the ledger")
    for entry in sample_record().rounds:
        for fault in (*entry.rejected, *entry.discarded):
            assert f"{fault.name} ({fault.reason})" in part
        assert all(name in part for name in (*entry.lost, *entry.holders_silent))
        assert entry.reason is None or entry.reason in part
    assert "not asked" in part


def test_it_says_what_is_verified_attested_assumed_and_not_protected(page: Page) -> None:
    record = sample_record()
    for claim in (*record.claims.verified, *record.claims.attested, *record.claims.assumed):
        assert claim.what in page.text
        assert claim.how in page.text
    unprotected = page.section("Not protected", "Warnings, and deviations")
    for words in ("Who took part", "How many took part", "When:", "how many records there are", "test set"):
        assert words in unprotected
    assert all(item in page.text for item in (*record.warnings, *record.deviations, record.trust.adversary))


def test_it_shows_how_to_check_the_ledger(page: Page) -> None:
    record = sample_record()
    assert record.trust.ledger_head in page.text
    assert record.trust.model_digest in page.text
    checked = replace(record, trust=replace(record.trust, ledger_check="fednode ledger verify here"))
    assert "fednode ledger verify here" in Page(render_html(checked)).text
    assert "let the node check it" not in page.text


def test_all_settings_are_there(page: Page) -> None:
    part = page.text[page.text.index("All settings") :]
    assert all(key in part for key in sample_record().settings)
    assert "learning_rate not set" in part
    assert "lost-before-upload@5:client-17, garbage@5:client-18" in part


def spoilt(value: Any, name: str) -> Any:
    """`value` with `name` for every string, apart from what a round came to."""
    if isinstance(value, dict):
        return {name: spoilt(list(value), name)}
    if isinstance(value, tuple | list):
        return type(value)(spoilt(one, name) for one in value)
    if isinstance(value, AuditFound):
        return AuditFound(name, (name,), {name: 1.0})
    if is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        kept = {"outcome"} if isinstance(value, RoundRecord) else set()
        return type(value)(**{key: part if key in kept else spoilt(part, name) for key, part in parts.items()})
    return name if isinstance(value, str) else value


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_strings_stay_text(page: Page, name: str) -> None:
    hostile = spoilt(sample_record(), name)
    seen = Page(render_html(hostile))
    assert seen.open == []
    assert set(seen.tags) == set(page.tags)
    assert {attribute for attribute, _ in seen.attributes} == {attribute for attribute, _ in page.attributes}
    assert seen.text.count(name) > 20


def test_characters_that_do_not_print_become_a_mark() -> None:
    record = sample_record()
    name = "a\x1b[31m\u202eb\x00\ud800\nc"
    entry = replace(record.rounds[0], lost=(name,))
    page = Page(render_html(replace(record, rounds=(entry,))))
    assert "a\ufffd[31m\ufffdb\ufffd\ufffd\ufffdc" in page.text


def test_a_run_without_a_round_has_a_page_too() -> None:
    page = Page(render_html(empty_record()))
    assert page.open == []
    assert "svg" not in page.tags
    assert "No round ended." in page.text
    assert "No round was released." in page.text
    assert "every key holder answered in every round" not in page.text
    assert "the run went as planned" not in page.text
    # among the deviations, and where others are who did not answer
    assert page.text.count(f"The run ended early: {empty_record().outcome_sentence}") == 2


def test_a_smooth_run_says_that_everybody_answered_and_one_that_ended_early_of_which_rounds() -> None:
    record = sample_record()
    smooth = replace(record, rounds=record.rounds[:4], warnings=(), deviations=())
    text = Page(render_html(smooth)).text
    assert "None: the run went as planned." in text and "ended early" not in text
    assert "every key holder answered in every round." in text
    early = Page(render_html(replace(smooth, outcome="too-few-holders"))).text
    assert "the run went as planned" not in early and "answered in every round." not in early
    assert "answered in every round that is listed below." in early and early.count("The run ended early: ") == 2


def test_a_run_that_measured_and_saved_nothing_says_nothing_of_it() -> None:
    nothing = empty_record()
    bare = replace(nothing, trust=replace(nothing.trust, model_digest="no model was saved", ledger_head=""))
    cards = Page(render_html(bare)).section("Rounds released", "The statement")
    assert "Accuracy not measured One sealed update" in cards and "test set" not in cards
    assert "a client a round" not in cards
    text = Page(render_html(bare)).text
    assert "Digest of the final model: no model was saved." in text and "is no model" not in text
    assert "Hash of the last line, as it must be: no ledger was opened." in text
    measured = Page(render_html(sample_record())).section("Rounds released", "The statement")
    assert "after the last round, on the operator's own test set" in measured


def test_a_run_of_one_failed_round_has_a_page_too() -> None:
    record = sample_record()
    page = Page(render_html(replace(record, rounds=(record.rounds[8],))))
    assert page.open == []
    assert page.tags.count("svg") == 2
    assert "No accuracy was measured." in page.text
    assert CLIENTS[13] in page.text


# --- what the number means


def meaning(record: RunRecord) -> str:
    return Page(render_html(record)).section("What the number means", "The run in four plots")


def guarantee(record: RunRecord) -> str:
    page = Page(render_html(record))
    return page.section("Guarantee Epsilon spent", "Planned noise of the first sum")


def changed(**changes: float) -> RunRecord:
    record = sample_record()
    return replace(record, guarantee=replace(record.guarantee, **changes))


def test_a_run_that_released_nothing_has_no_attacker_to_speak_of() -> None:
    record = changed(epsilon=2.1)
    vain = replace(record, rounds=(record.rounds[15],))
    assert "epsilon of 2.1 was charged" in meaning(vain) and "recognises" not in meaning(vain)
    assert "View of an attacker none" in guarantee(vain) and "false alarms" not in guarantee(vain)
    assert "Nothing was charged" in meaning(empty_record()) and "strong" not in meaning(empty_record())


def test_the_cross_check_stands_beside_the_number() -> None:
    record = sample_record()
    assert "Epsilon spent 7.874 at" in guarantee(record) and "Cross-check epsilon 8.471 by Renyi" in guarantee(record)
    assert f"epsilon 8.471 for the same sums: {LOOSER}." in meaning(record) and LOOSER in guarantee(record)


def test_what_is_spent_or_possible_never_reads_as_less() -> None:
    text = meaning(changed(epsilon=7.87401, attack_tpr=0.23671, attack_advantage=0.57101))
    assert "23.7 % of those" in text and " 0.572 on a scale" in text and "e^7.875 " in text
    assert "epsilon 8 at delta 1e-5; 1.321 left" in guarantee(changed(epsilon=6.6785))


@pytest.mark.parametrize(
    ("epsilon", "words"), [(0.5, "a strong formal"), (1.0, "a strong formal"), (8.0, "a reasonable"), (10.01, "a weak")]
)
def test_the_number_is_put_into_its_tier(epsilon: float, words: str) -> None:
    assert f"{words} guarantee" in meaning(changed(epsilon=epsilon))


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_a_large_delta_has_no_tier(epsilon: float) -> None:
    large = changed(epsilon=epsilon, delta=1e-3)
    assert "delta times 3,600 records is 3.6," in meaning(large) and "tiers" not in meaning(large)
    assert "tiers" in meaning(replace(large, task=replace(large.task, records=100)))


def test_an_absurd_epsilon_is_still_written() -> None:
    assert "e^1,000,000," in meaning(changed(epsilon=1e6))
