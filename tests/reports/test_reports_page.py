"""`report.html`: well-formed, on its own, complete, and deaf to what clients call themselves."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from kit.sample_record import CLIENTS, sample_record

from fednode.reports import Claim, Claims, NamedReason, RunRecord, render_html
from fednode.reports.prose import UNPROTECTED, statement

VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onclick='x",
    "</style><b>",
    "</title><svg onload=x>",
    "]]><!--",
)


class Page(HTMLParser):
    """Reads a page and complains about tags that do not match."""

    def __init__(self, data: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.pieces: list[str] = []
        self.feed(data.decode("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "span" or ("class", "whole") not in attrs:
            self.pieces.append(" ")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render_html(sample_record()))


def empty_record() -> RunRecord:
    record = sample_record()
    claim = replace(record.guarantee, epsilon=0.0, gaussian=0.0, attack_advantage=0.0, attack_tpr=0.01)
    nothing = Claims((), (), ())
    return replace(
        record, rounds=(), outcome="stopped", guarantee=claim, claims=nothing, warnings=(), deviations=(), settings={}
    )


def test_every_tag_is_closed_and_the_page_is_whole(page: Page) -> None:
    assert page.open == []
    assert page.tags[0] == "html"
    assert page.tags.count("svg") == 4
    assert page.tags.count("h1") == 1


def test_it_asks_nothing_of_the_network(page: Page) -> None:
    data = render_html(sample_record()).decode()
    assert "http:" not in data
    assert "https:" not in data
    assert "@import" not in data
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    links = [value or "" for name, value in page.attributes if name in ("src", "href", "xlink:href")]
    assert links
    assert all(link.startswith("#") for link in links)


def test_ids_are_unique_and_every_reference_has_its_target(page: Page) -> None:
    ids = [value for name, value in page.attributes if name == "id"]
    targets = {(value or "").removeprefix("#") for name, value in page.attributes if name == "href"}
    clips = {(value or "")[5:-1] for name, value in page.attributes if name == "clip-path"}
    assert len(ids) == len(set(ids))
    assert targets | clips <= set(ids)


def test_it_starts_with_the_paragraph_to_sign(page: Page) -> None:
    before, after = page.text.split(statement(sample_record()))
    assert "The run finished" in before
    assert "What the number means" not in before
    assert after.lstrip().startswith("Name Date Signature")


def test_everybody_who_was_lost_rejected_or_discarded_is_named_with_the_reason(page: Page) -> None:
    part = page.text[
        page.text.index("Who was lost, rejected or discarded") : page.text.index("How to check the ledger")
    ]
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
    for words in ("Who took part", "How many took part", "When:", "number of records", "test set"):
        assert words in page.text
    assert len(UNPROTECTED) == 6
    assert all(
        item in page.text for item in (*UNPROTECTED, *record.warnings, *record.deviations, record.trust.adversary)
    )


def test_the_secure_sum_is_words_before_it_is_parameters(page: Page) -> None:
    trust = sample_record().trust
    assert f"Secure sum bfv: {trust.strength} Withstands {trust.adversary}" in page.text
    assert page.text.index("Parameters of the secure sum") > page.text.index("Digest of the final model")
    assert trust.strength in page.text[: page.text.index("Name Date Signature")]


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


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_strings_stay_text(page: Page, name: str) -> None:
    record = sample_record()
    entry = replace(
        record.rounds[0],
        lost=(name,),
        rejected=(NamedReason(name, name),),
        discarded=(NamedReason(name, name),),
        holders_silent=(name,),
        outcome="failed",
        reason=name,
    )
    hostile = replace(
        record,
        run_id=name,
        version=name,
        outcome=name,
        outcome_sentence=name,
        rounds=(entry, *record.rounds[1:]),
        settings={name: [name]},
        warnings=(name,),
        deviations=(name,),
        task=replace(record.task, model=name, dataset=name, source=name),
        mechanism=replace(record.mechanism, name=name, sampling=name),
        guarantee=replace(record.guarantee, unit=name, adjacency=name, setting=name),
        trust=replace(
            record.trust,
            enrolment=name,
            scheme=name,
            adversary=name,
            strength=name,
            sum_params={name: name},
            ledger_path=name,
        ),
        claims=Claims((Claim(name, name),), (Claim(name, name),), (Claim(name, name),)),
    )
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
    assert "None: the run went as planned." in page.text
    assert "every key holder answered in every round" in page.text


def test_a_run_of_one_failed_round_has_a_page_too() -> None:
    record = sample_record()
    page = Page(render_html(replace(record, rounds=(record.rounds[8],))))
    assert page.open == []
    assert page.tags.count("svg") == 2
    assert "No accuracy was measured." in page.text
    assert CLIENTS[13] in page.text


def test_equal_records_give_equal_bytes() -> None:
    assert render_html(sample_record()) == render_html(sample_record())
