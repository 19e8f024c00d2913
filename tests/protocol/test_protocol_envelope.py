"""What a member signed is what is read: each field, the body, the sender and the round are bound together."""

import hashlib
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.faults import reason_of
from kit.members import CLIENTS, ENROLMENT, HOLDERS, STRANGER, TOPIC, flipped, small_cohort

from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import NO_SPEC, Envelope, Head, Signed, Topic
from fednode.wire import join_parts, pack, unpack
from fednode_crypto.identity import SigningKey

ANN, BOB = CLIENTS[0], CLIENTS[1]
WRITTEN = ANN.signer.write("update", TOPIC, b"sealed", {"point": 1})
CHANGED = {
    "kind": "refusal",
    "sender": "client-2",
    "task": "intents2",
    "round": 4,
    "spec": NO_SPEC,
    "about": {"point": 2},
    "size": 7,
    "sha256": bytes(32),
}


def framed(signed: bytes, body: bytes, header=None, **more: bytes) -> bytes:
    return pack("envelope", header or {}, join_parts({"body": body, "signed": signed} | more))


def test_an_envelope_travels_and_names_its_signer():
    again = Envelope.from_bytes(WRITTEN.to_bytes(), 6)
    assert again == WRITTEN and again.to_bytes() == WRITTEN.to_bytes()
    assert again.signed.verified(small_cohort()) == ANN.public
    assert (again.head.task, again.head.round, again.head.spec) == (TOPIC.task, TOPIC.round, TOPIC.spec)
    assert again.about.integer("point", 0, 9) == 1
    assert (again.head.size, again.head.sha256) == (6, hashlib.sha256(b"sealed").digest())


@pytest.mark.parametrize("name", [field.name for field in fields(Head)])
def test_the_signature_covers_every_field(name):
    forged = Signed(replace(WRITTEN.head, **{name: CHANGED[name]}), WRITTEN.signed.signature)
    assert forged.head != WRITTEN.head
    assert reason_of(forged.verified, small_cohort()) == "bad-signature"
    assert reason_of(Signed.from_bytes(forged.to_bytes()).verified, small_cohort()) == "bad-signature"


def test_the_signature_itself_cannot_be_changed_or_moved():
    for at in range(64):
        forged = Signed(WRITTEN.head, flipped(WRITTEN.signed.signature, at))
        assert reason_of(forged.verified, small_cohort()) == "bad-signature"
    other = ANN.signer.write("update", TOPIC, b"other", {"point": 1})
    assert reason_of(Signed(WRITTEN.head, other.signed.signature).verified, small_cohort()) == "bad-signature"
    listing = ANN.signing_key.sign(b"cohort", WRITTEN.head.to_bytes())
    assert reason_of(Signed(WRITTEN.head, listing).verified, small_cohort()) == "bad-signature"


def test_a_body_that_was_swapped_cut_or_lengthened_is_damaged():
    for body in (b"sealeD", b"other!", b"seale", b"sealed\0", b""):
        assert reason_of(Envelope.from_bytes, framed(WRITTEN.signed.to_bytes(), body), 100) == "damaged"
    resized = replace(WRITTEN.head, size=7)
    assert reason_of(Envelope.from_bytes, framed(Signed(resized, bytes(64)).to_bytes(), b"sealed"), 100) == "damaged"


def test_a_body_over_the_limit_is_oversize_even_when_it_is_the_right_one():
    assert Envelope.from_bytes(WRITTEN.to_bytes(), 6) == WRITTEN
    for limit in (5, 1, 0):
        assert reason_of(Envelope.from_bytes, WRITTEN.to_bytes(), limit) == "oversize"
    large = ANN.signer.write("update", TOPIC, bytes(1 << 18))
    assert reason_of(Envelope.from_bytes, large.to_bytes(), 6) == "oversize"


def test_what_ann_sealed_cannot_be_presented_as_bobs():
    renamed = Signed(replace(WRITTEN.head, sender="client-2"), WRITTEN.signed.signature)
    stolen = Envelope.from_bytes(framed(renamed.to_bytes(), WRITTEN.body), 6)
    assert reason_of(stolen.signed.verified, small_cohort()) == "bad-signature"
    # Bob may sign the same bytes himself: then they are Bob's, under Bob's name, with the same hash
    signed_anew = BOB.signer.write("update", TOPIC, WRITTEN.body, {"point": 1})
    assert signed_anew.signed.verified(small_cohort()).name == "client-2"
    assert signed_anew.head.sha256 == WRITTEN.head.sha256
    assert (
        replace(ANN.signer, name="client-2").write("update", TOPIC).signed.signature
        != BOB.signer.write("update", TOPIC).signed.signature
    )
    forged = replace(ANN.signer, name="client-2").write("update", TOPIC)
    assert reason_of(forged.signed.verified, small_cohort()) == "bad-signature"


def test_a_replay_for_another_round_says_so_in_what_was_signed():
    later = ANN.signer.write("update", replace(TOPIC, round=4, spec=bytes(32)), WRITTEN.body, {"point": 1})
    assert (later.head.round, later.head.spec) != (WRITTEN.head.round, WRITTEN.head.spec)
    assert later.signed.signature != WRITTEN.signed.signature
    moved = Signed(replace(WRITTEN.head, round=4, spec=bytes(32)), WRITTEN.signed.signature)
    assert reason_of(moved.verified, small_cohort()) == "bad-signature"


def test_who_is_not_enrolled_or_enrolled_with_another_key_does_not_verify():
    assert reason_of(STRANGER.signer.write("update", TOPIC).signed.verified, small_cohort()) == "stranger"
    rekeyed = replace(ANN.public, verify_key=SigningKey.generate().public)
    cohort = Cohort.enrol([rekeyed, *(one.public for one in HOLDERS)], ENROLMENT, small_cohort().node)
    assert reason_of(WRITTEN.signed.verified, cohort) == "bad-signature"


def test_signing_the_same_again_gives_the_same_bytes():
    assert ANN.signer.write("update", TOPIC, b"sealed", {"point": 1}).to_bytes() == WRITTEN.to_bytes()


def test_what_was_signed_does_not_change_with_what_it_was_made_from():
    about = {"point": 1}
    envelope = ANN.signer.write("update", TOPIC, b"", about)
    about["point"] = 2
    assert envelope.signed.verified(small_cohort()) == ANN.public


def test_a_pen_and_an_envelope_show_neither_key_nor_body():
    assert "key" not in repr(ANN.signer)
    both = ANN.signer.write("update", TOPIC, b"sealed", attached={"box": b"boxed"})
    assert "sealed" not in repr(both) and "boxed" not in repr(both)


HOSTILE = {
    "nothing": b"",
    "another kind of frame": pack("update", {}, b""),
    "a header with something in it": framed(WRITTEN.signed.to_bytes(), b"sealed", {"a": 1}),
    "no parts": pack("envelope", {}, b""),
    "a part more": framed(WRITTEN.signed.to_bytes(), b"sealed", more=b""),
    "no body": pack("envelope", {}, join_parts({"signed": WRITTEN.signed.to_bytes()})),
    "no head": pack("envelope", {}, join_parts({"body": b"sealed"})),
    "other names": pack("envelope", {}, join_parts({"body": b"sealed", "sign": WRITTEN.signed.to_bytes()})),
    "a signature alone": framed(bytes(64), b""),
    "a head that is not JSON": framed(bytes(64) + b"head", b""),
    "a head over 64 KiB": framed(bytes(64) + b" " * (1 << 16), b""),
    "a space in the head": framed(WRITTEN.signed.to_bytes() + b" ", b"sealed"),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_envelopes_are_refused_before_a_signature_is_looked_at(data):
    assert reason_of(Envelope.from_bytes, data, 100) in {"malformed", "unexpected"}


HOSTILE_HEADS = [
    {"round": -1},
    {"round": 1_000_001},
    {"round": True},
    {"size": -1},
    {"size": (1 << 40) + 1},
    {"kind": ""},
    {"kind": "k" * 129},
    {"sender": "a\nb"},
    {"task": ""},
    {"spec": b"\0" * 31},
    {"sha256": b"\0" * 33},
    {"about": {"a": [[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]}},
]


@pytest.mark.parametrize("change", HOSTILE_HEADS, ids=str)
def test_a_head_out_of_bounds_is_malformed_whoever_signed_it(change):
    assert Head.from_bytes(WRITTEN.head.to_bytes()) == WRITTEN.head
    assert reason_of(Head.from_bytes, replace(WRITTEN.head, **change).to_bytes()) == "malformed"


def test_no_nesting_gets_past_the_reader_and_stops_the_verifier():
    for levels in (20, 900, 985, 990, 995, 2_000):
        about = b'{"a":' + b"[" * levels + b"]" * levels + b"}"
        head = WRITTEN.head.to_bytes().replace(b'{"point":1}', about)
        assert reason_of(Signed.from_bytes, bytes(64) + head) == "malformed"


def test_a_changed_byte_anywhere_in_the_frame_is_refused():
    data = WRITTEN.to_bytes()
    for at in range(len(data)):
        assert reason_of(Envelope.from_bytes, flipped(data, at), 6) in {"malformed", "oversize", "damaged"}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_changed_byte_under_a_right_digest_is_still_refused_or_not_signed(data):
    body = unpack("envelope", WRITTEN.to_bytes()).body
    at, mask = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(1, 255))
    assert reason_of(
        lambda: Envelope.from_bytes(pack("envelope", {}, flipped(body, at, mask)), 6).signed.verified(small_cohort())
    ) in {"malformed", "oversize", "damaged", "stranger", "bad-signature"}


TEXTS = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=40)


@settings(max_examples=40, deadline=None)
@given(
    TEXTS,
    TEXTS,
    st.integers(0, 1_000_000),
    st.binary(max_size=50),
    st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=3),
)
def test_any_envelope_comes_back_and_verifies(kind, task, number, body, about):
    written = BOB.signer.write(kind, Topic(task, number, TOPIC.spec), body, about)
    again = Envelope.from_bytes(written.to_bytes(), len(body))
    assert again == written and again.about.raw() == about
    assert again.signed.verified(small_cohort()).name == BOB.name
    assert Signed.from_bytes(written.signed.to_bytes()) == written.signed
