"""Attachments: each is bound to the head by its hash, and can be passed on without the others."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.faults import reason_of
from kit.members import CLIENTS, TOPIC, small_cohort

from fednode.protocol.envelope import Envelope
from fednode.wire import join_parts, pack

ANN = CLIENTS[0].signer
BOXES = {"1": b"box for one", "2": b"box for two"}
WRITTEN = ANN.write("update", TOPIC, b"sealed", attached=BOXES)


def framed(**parts: bytes) -> bytes:
    given = {"body": b"sealed", "signed": WRITTEN.signed.to_bytes()} | parts
    return pack("envelope", {}, join_parts(given))


def reason(data, max_body=6, max_attached=100):
    return reason_of(Envelope.from_bytes, data, max_body, max_attached)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text("abc-123", max_size=6), st.binary(max_size=20), max_size=5), st.binary(max_size=20))
def test_attachments_travel_under_the_signature(attached, body):
    written = ANN.write("update", TOPIC, body, attached=attached)
    size = sum(map(len, attached.values()))
    again = Envelope.from_bytes(written.to_bytes(), len(body), size)
    assert again == written and dict(again.attached) == attached
    assert again.signed.verified(small_cohort()).name == "client-1"
    assert again.head.attached() == {name: hashlib.sha256(data).digest() for name, data in attached.items()}
    if size:
        assert reason(written.to_bytes(), len(body), size - 1) == "oversize"


def test_an_envelope_without_attachments_is_the_same_however_it_was_written():
    assert ANN.write("update", TOPIC, b"x", attached={}).to_bytes() == ANN.write("update", TOPIC, b"x").to_bytes()
    assert ANN.write("update", TOPIC, b"x").head.attached() == {}


CHANGED = {
    "one missing": {"+1": BOXES["1"]},
    "all missing": {},
    "one more": {"+1": BOXES["1"], "+2": BOXES["2"], "+3": b"more"},
    "one more, empty": {"+1": BOXES["1"], "+2": BOXES["2"], "+3": b""},
    "exchanged": {"+1": BOXES["2"], "+2": BOXES["1"]},
    "one changed": {"+1": BOXES["1"], "+2": b"box for twO"},
    "renamed": {"+1": BOXES["1"], "+3": BOXES["2"]},
    "marked twice": {"+1": BOXES["1"], "++2": BOXES["2"]},
}


@pytest.mark.parametrize("parts", CHANGED.values(), ids=CHANGED)
def test_attachments_that_were_not_signed_are_damaged(parts):
    assert Envelope.from_bytes(framed(**{"+1": BOXES["1"], "+2": BOXES["2"]}), 6, 100) == WRITTEN
    assert reason(framed(**parts)) == "damaged"


def test_a_part_that_is_no_attachment_is_malformed():
    assert reason(framed(**{"+1": BOXES["1"], "+2": BOXES["2"], "more": b""})) == "malformed"
    assert reason(framed(**{f"+{number}": b"" for number in range(17)})) == "malformed"


def test_nothing_is_attached_where_nothing_is_expected():
    assert reason_of(Envelope.from_bytes, WRITTEN.to_bytes(), 6) == "oversize"


@pytest.mark.parametrize(
    "listed", [None, [], "1", {"1": "00"}, {"1": 1}, {"1": hashlib.sha256(b"box for one").hexdigest().upper()}], ids=str
)
def test_a_list_of_hashes_that_is_none_is_malformed_even_if_it_was_signed(listed):
    written = ANN.write("update", TOPIC, b"", {"attached": listed})
    assert written.signed.verified(small_cohort()).name == "client-1"
    assert reason(replace(written, attached={"1": b"box for one"}).to_bytes()) == "malformed"


def test_a_signed_hash_whose_attachment_did_not_come_is_damaged():
    written = ANN.write("update", TOPIC, b"", {"attached": {"1": hashlib.sha256(b"box").hexdigest()}})
    assert reason(written.to_bytes()) == "damaged"
    assert Envelope.from_bytes(replace(written, attached={"1": b"box"}).to_bytes(), 0, 3).attached == {"1": b"box"}
