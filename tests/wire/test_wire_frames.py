"""Frames: whole or refused, and refused before anything is made of them."""

import hashlib
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.faults import reason_of
from kit.members import flipped

from fednode import wire
from fednode.wire import MAX_BODY, MAX_HEADER, pack, unpack

KINDS = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=255)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=8,
)
HEADERS = st.dictionaries(st.text(max_size=8), JSON, max_size=5)
SMALL = pack("kind", {"a": 1, "b": "two"}, b"body")


def raw_frame(head: bytes, kind: bytes = b"kind", text: bytes = b"{}", body: bytes = b"") -> bytes:
    """A frame with any prefix, its digest right."""
    data = head + kind + text + body
    return data + hashlib.sha256(data).digest()


def prefix(kind=4, header=2, body=0, magic=b"FN", version=1):
    return struct.pack("<2sBBIQ", magic, version, kind, header, body)


def reason(data, kind="kind", **limits):
    return reason_of(unpack, kind, data, **limits)


@settings(max_examples=60, deadline=None)
@given(KINDS, HEADERS, st.binary(max_size=200))
def test_what_was_packed_is_what_is_read_and_packs_to_the_same_bytes(kind, header, body):
    data = pack(kind, header, body)
    frame = unpack(kind, data)
    assert (frame.kind, frame.header.raw(), frame.body) == (kind, header, body)
    assert pack(frame.kind, frame.header.raw(), frame.body) == data


def test_every_changed_byte_of_a_frame_is_refused():
    for at in range(len(SMALL)):
        for mask in range(1, 256):
            assert reason(flipped(SMALL, at, mask)) in {"malformed", "oversize", "damaged"}


@pytest.mark.parametrize("kind", ["\ufffd", "ä", "kind\x80", "k" * 300, ""])
def test_no_frame_is_of_a_kind_that_is_not_ascii_or_not_its_own(kind):
    for raw in (b"\xff", b"?", "ä".encode(), b"kind"):
        text = raw_frame(prefix(kind=len(raw)), kind=raw)
        assert reason(text, kind) == "unexpected"


def test_every_shorter_and_every_longer_frame_is_malformed():
    assert {reason(SMALL[:size]) for size in range(len(SMALL))} == {"malformed"}
    assert {reason(SMALL[size:]) for size in range(1, len(SMALL))} == {"malformed"}
    assert {reason(SMALL + bytes(more)) for more in (1, 2, 31, 32, 33, 1000)} == {"malformed"}
    assert {reason(b"\x00" + SMALL), reason(SMALL + SMALL)} == {"malformed"}


@pytest.mark.parametrize(
    "head",
    [
        prefix(body=MAX_BODY + 1),
        prefix(body=1 << 63),
        prefix(body=(1 << 64) - 1),
        prefix(header=MAX_HEADER + 1),
        prefix(header=(1 << 32) - 1),
        prefix(header=(1 << 32) - 1, body=(1 << 64) - 1),
    ],
)
def test_a_huge_declared_length_is_refused_before_room_is_made(head):
    data = raw_frame(head)
    tracemalloc.start()
    try:
        assert reason(data) == "oversize"
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("head", [prefix(body=MAX_BODY), prefix(header=MAX_HEADER), prefix(kind=255), prefix(body=1)])
def test_lengths_within_the_limits_must_still_add_up(head):
    assert reason(raw_frame(head)) == "malformed"


def test_the_reader_says_how_large_a_body_may_be():
    data = pack("kind", {}, b"12345678")
    assert unpack("kind", data, max_body=8).body == b"12345678"
    assert reason(data, max_body=7) == "oversize"
    assert unpack("kind", pack("kind", {}), max_body=0).body == b""


def test_nothing_is_packed_that_nobody_would_read(monkeypatch):
    monkeypatch.setattr(wire, "MAX_BODY", 10)
    assert len(pack("kind", {}, bytes(10))) == 16 + 4 + 2 + 10 + 32
    with pytest.raises(ValueError):
        pack("kind", {}, bytes(11))
    assert unpack("kind", pack("kind", {"a": "x" * (MAX_HEADER - 8)})).header.text("a", MAX_HEADER)
    with pytest.raises(ValueError):
        pack("kind", {"a": "x" * (MAX_HEADER - 7)})
    for kind in ("", "k" * 256, "é"):
        with pytest.raises(ValueError):
            pack(kind, {})
    for value in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ValueError):
            pack("kind", {"a": value})
