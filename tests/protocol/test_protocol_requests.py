"""What the node asks: read within bounds, and the published parts of a key believed only from their own holders."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.faults import reason_of
from kit.members import (
    CLIENTS,
    ENROLMENT,
    HOLDERS,
    NODE,
    STRANGER,
    TASK,
    TOPIC,
    flipped,
    small_cohort,
    small_sum,
    some_spec,
)

from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Signed, Topic
from fednode.protocol.requests import (
    MAX_KEY_PART,
    KeyParts,
    TaskCard,
    ask_frame,
    frame_kind,
    read_ask,
    read_roster,
    read_spec,
    roster_part,
    share_context,
    spec_frame,
)
from fednode.wire import canonical, join_parts, pack

CARD = TaskCard(TASK, small_cohort(), small_sum())
KINDS = {"commitments": "key-commitment", "reveals": "key-part"}


def published(kind="key-commitment", task=TASK):
    about = {} if kind == "key-commitment" else {"commitments": KeyParts(COMMITMENTS, {}).commitments_digest().hex()}
    return {one.point: one.signer.write(kind, Topic(task), one.name.encode(), about) for one in HOLDERS}


COMMITMENTS = published()
REVEALS = published("key-part")


def judged(which, envelopes):
    """Why these commitments, or these reveals beside good commitments, are refused."""
    parts = KeyParts(envelopes, REVEALS) if which == "commitments" else KeyParts(COMMITMENTS, envelopes)
    return reason_of(parts.verified, CARD)


def test_a_card_travels_in_named_parts_among_others():
    parts = CARD.parts() | {"commitment-1": b"not looked at"}
    assert TaskCard.from_parts(TASK, parts, ENROLMENT.public) == CARD


@pytest.mark.parametrize(
    "change",
    [
        {"cohort": b""},
        {"cohort": b"{}"},
        {"params": b""},
        {"params": b"{}"},
        {"params": b"[]"},
        {"params": canonical(small_sum().to_dict() | {"holders": 99})},
        {"params": canonical(small_sum().to_dict() | {"more": 1})},
        {"params": canonical(small_sum().to_dict()) + b" "},
    ],
    ids=str,
)
def test_a_hostile_card_is_malformed(change):
    assert reason_of(TaskCard.from_parts, TASK, CARD.parts() | change, ENROLMENT.public) == "malformed"
    left = {name: part for name, part in CARD.parts().items() if name not in change}
    assert reason_of(TaskCard.from_parts, TASK, left, ENROLMENT.public) == "malformed"


def test_published_parts_travel_and_are_verified():
    for parts in (KeyParts(COMMITMENTS, REVEALS), KeyParts(COMMITMENTS, {})):
        again = KeyParts.from_parts(CARD.parts() | parts.parts())
        assert again == parts and again.verified(CARD) is again
    assert KeyParts(COMMITMENTS, REVEALS).bodies("commitments") == {p: f"holder-{p}".encode() for p in (1, 2, 3)}
    assert KeyParts(COMMITMENTS, {}).bodies("reveals") == {}
    assert "holder-1" not in repr(KeyParts(COMMITMENTS, REVEALS))


@pytest.mark.parametrize("which", KINDS)
def test_only_the_holder_at_a_point_speaks_for_it(which):
    good = published(KINDS[which])
    write = {one.name: one.signer.write(KINDS[which], Topic(TASK), b"x") for one in (*HOLDERS, *CLIENTS, STRANGER)}
    assert judged(which, good | {1: good[2]}) == "bad-key-part"
    assert judged(which, good | {1: good[2], 2: good[1]}) == "bad-key-part"
    assert judged(which, good | {3: write["holder-1"]}) == "bad-key-part"
    assert judged(which, good | {1: write["client-1"]}) == "bad-key-part"
    assert judged(which, good | {1: write["client-9"]}) == "stranger"


def test_a_part_names_the_commitments_that_it_was_shown_under():
    second = HOLDERS[2].signer.write("key-commitment", Topic(TASK), b"after the fact")
    exchanged = KeyParts({**COMMITMENTS, HOLDERS[2].point: second}, REVEALS)
    assert reason_of(exchanged.verified, CARD) == "bad-key-part"
    nameless = HOLDERS[0].signer.write("key-part", Topic(TASK), b"holder-1")
    assert judged("reveals", REVEALS | {HOLDERS[0].point: nameless}) == "bad-key-part"


@pytest.mark.parametrize("which", KINDS)
def test_another_kind_or_another_task_is_a_bad_part(which):
    good, kind = published(KINDS[which]), KINDS[which]
    other = "key-part" if kind == "key-commitment" else "key-commitment"
    assert judged(which, published(other)) == "bad-key-part"
    for wrong in (other, "key-share", "update"):
        assert judged(which, good | {2: HOLDERS[1].signer.write(wrong, Topic(TASK), b"x")}) == "bad-key-part"
    assert judged(which, good | {2: HOLDERS[1].signer.write(kind, Topic("other"), b"x")}) == "bad-key-part"


@pytest.mark.parametrize("which", KINDS)
def test_a_part_that_its_holder_did_not_sign_is_refused(which):
    good = published(KINDS[which])
    signed = good[2].signed
    forged = replace(good[2], signed=Signed(signed.head, flipped(signed.signature, 5)))
    assert judged(which, good | {2: forged}) == "bad-signature"
    renamed = replace(good[2], signed=Signed(replace(signed.head, sender="holder-1"), signed.signature))
    assert judged(which, good | {1: renamed}) == "bad-signature"


@pytest.mark.parametrize("which", KINDS)
def test_every_holder_is_there_and_nobody_else(which):
    good = published(KINDS[which])
    for point in (1, 2, 3):
        assert judged(which, {p: one for p, one in good.items() if p != point}) == "bad-key-part"
    assert judged(which, good | {0: good[1]}) == "bad-key-part"
    assert judged(which, good | {4: good[1]}) == "bad-key-part"


def test_parts_without_commitments_are_never_verified():
    assert reason_of(KeyParts({}, REVEALS).verified, CARD) == "bad-key-part"
    assert reason_of(KeyParts({}, {}).verified, CARD) == "bad-key-part"


def test_parts_of_another_cohorts_holders_are_refused():
    rekeyed = [replace(HOLDERS[0].public, verify_key=STRANGER.signing_key.public), *(h.public for h in HOLDERS[1:])]
    card = replace(CARD, cohort=Cohort.enrol(rekeyed, ENROLMENT, NODE.signing_key.public))
    assert reason_of(KeyParts(COMMITMENTS, REVEALS).verified, card) == "bad-signature"
    fewer = replace(CARD, cohort=Cohort.enrol([one.public for one in HOLDERS[:2]], ENROLMENT, NODE.signing_key.public))
    assert reason_of(KeyParts(COMMITMENTS, REVEALS).verified, fewer) == "bad-key-part"


@pytest.mark.parametrize("number", ["", "0", "01", "001", "-1", "+1", "1 ", "1.0", "1000", "٣", "²", "one", "1-1"])
def test_a_part_has_its_points_one_spelling(number):
    good = KeyParts(COMMITMENTS, REVEALS).parts()
    for prefix in ("commitment-", "reveal-"):
        assert reason_of(KeyParts.from_parts, good | {prefix + number: good["commitment-1"]}) == "malformed"


def test_a_part_that_is_no_envelope_or_too_large_is_refused():
    good = KeyParts(COMMITMENTS, REVEALS).parts()
    assert reason_of(KeyParts.from_parts, good | {"reveal-2": b"junk"}) == "malformed"
    assert reason_of(KeyParts.from_parts, good | {"reveal-2": flipped(good["reveal-2"], 90)}) == "damaged"
    large = HOLDERS[1].signer.write("key-part", Topic(TASK), bytes(MAX_KEY_PART + 1)).to_bytes()
    assert reason_of(KeyParts.from_parts, good | {"reveal-2": large}) == "oversize"


def test_a_share_is_boxed_for_one_task_cohort_and_pair():
    other = Cohort.enrol([one.public for one in HOLDERS], ENROLMENT, NODE.signing_key.public)
    contexts = {
        share_context(task, cohort, sender, receiver)
        for task in (TASK, "other")
        for cohort in (small_cohort(), other)
        for sender, receiver in (("holder-1", "holder-2"), ("holder-2", "holder-1"), ("holder-1", "holder-1"))
    }
    assert len(contexts) == 12


PARTS = st.dictionaries(st.text("abc-1", max_size=6), st.binary(max_size=30), max_size=4)


@settings(max_examples=40, deadline=None)
@given(st.text("abcé -", min_size=1, max_size=20), PARTS)
def test_a_request_travels(task, parts):
    assert read_ask("key-commit", ask_frame("key-commit", task, parts)) == (task, parts)
    spec = some_spec()
    assert read_spec("round", spec_frame("round", spec, parts)) == (spec, parts)


def test_a_request_is_read_as_what_it_is_or_not_at_all():
    ask, round_frame = ask_frame("key-commit", TASK), spec_frame("round", some_spec())
    assert reason_of(read_ask, "key-reveal", ask) == "unexpected"
    assert reason_of(read_spec, "open", round_frame) == "unexpected"
    assert reason_of(read_ask, "round", round_frame) == "malformed"
    assert reason_of(read_spec, "key-commit", ask) == "malformed"
    for header in ({}, {"task": ""}, {"task": 1}, {"task": TASK, "more": 1}, {"task": "a\n"}):
        assert reason_of(read_ask, "key-commit", pack("key-commit", header, join_parts({}))) == "malformed"
    assert reason_of(read_ask, "key-commit", pack("key-commit", {"task": TASK}, b"")) == "malformed"
    assert reason_of(read_spec, "round", pack("round", some_spec().to_dict(), b"\x01")) == "malformed"
    assert read_ask("key-commit", ask) == (TASK, {})


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (ask_frame("key-commit", TASK), "key-commit"),
        (ask_frame("key-commit", TASK)[:20], "key-"),
        (b"FN" + bytes(14), ""),
        (b"FN" + bytes(13), ""),
        (b"", ""),
        (b"XX" + ask_frame("open", TASK)[2:], ""),
        (b"FN\x01\xff" + bytes(12) + b"\xff\xfe", ""),
        (b"FN\x01\x05" + bytes(12) + b"t\xc3\xa4sk", ""),
        (b"FN\x01\x04" + bytes(12) + b"task\xff", "task"),
    ],
)
def test_the_kind_of_anything_can_be_asked(data, kind):
    assert frame_kind(data) == kind


def test_a_roster_keeps_heads_signatures_and_order():
    heads = tuple(one.signer.write("update", TOPIC, one.name.encode()).signed for one in reversed(CLIENTS))
    again = read_roster(roster_part(heads))
    assert again == heads
    assert [head.verified(small_cohort()).name for head in again] == ["client-3", "client-2", "client-1"]
    assert read_roster(roster_part(())) == ()
    assert roster_part(heads) != roster_part(heads[::-1])


def test_a_hostile_roster_is_malformed_or_does_not_verify():
    head = CLIENTS[0].signer.write("update", TOPIC, b"x").signed
    for data in (b"", b"junk", join_parts({"000000": b""}), join_parts({"000000": head.to_bytes()[:-1]})):
        assert reason_of(read_roster, data) == "malformed"
    unsigned = read_roster(roster_part([Signed(head.head, bytes(64))]))
    assert reason_of(unsigned[0].verified, small_cohort()) == "bad-signature"
    # a repeat is not hidden: whoever reads a roster sees the name twice
    assert [one.head.sender for one in read_roster(roster_part([head, head]))] == ["client-1", "client-1"]
