"""Named parts in one byte string: one form, and no length is believed."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.faults import reason_of
from kit.members import flipped

from fednode.errors import PeerFault
from fednode.wire import join_parts, split_parts

NAMES = st.text("abcxyz-019", max_size=8)
THREE = join_parts({"b": b"two", "a": b"one", "c": b""})


def part(name: bytes, data: bytes = b"", size: int | None = None, name_size: int | None = None) -> bytes:
    head = struct.pack("<HQ", len(name) if name_size is None else name_size, len(data) if size is None else size)
    return head + name + data


def reason(data, most=10):
    return reason_of(split_parts, data, most)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, st.binary(max_size=20), max_size=6))
def test_parts_come_back_sorted_and_in_one_form(parts):
    data = join_parts(parts)
    assert split_parts(data, len(parts)) == parts
    assert list(split_parts(data, 10)) == sorted(parts)
    assert join_parts(dict(reversed(parts.items()))) == data


HOSTILE = {
    "none counted, one there": struct.pack("<I", 0) + part(b"a"),
    "as many as allowed, none there": struct.pack("<I", 10),
    "a part beyond the end": struct.pack("<I", 1) + part(b"a", b"1", size=2),
    "a part of 2^63": struct.pack("<I", 1) + part(b"a", b"1", size=2**63),
    "a name beyond the end": struct.pack("<I", 1) + part(b"a", name_size=65_535),
    "too short for a count": b"\0\0\0",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_parts_are_malformed(data):
    assert reason(data) == "malformed"


def test_the_reader_says_how_many_parts_there_may_be():
    assert len(split_parts(THREE, 3)) == 3
    assert reason(THREE, most=2) == "malformed"
    assert split_parts(join_parts({}), 0) == {}


def test_every_cut_and_every_longer_string_is_malformed():
    assert {reason(THREE[:size]) for size in range(len(THREE))} == {"malformed"}
    assert {reason(THREE + bytes(more)) for more in (1, 10, 11)} == {"malformed"}


def test_a_changed_byte_is_refused_or_read_as_what_it_now_says():
    refused = 0
    for at in range(len(THREE)):
        for mask in range(1, 256):
            try:
                assert join_parts(split_parts(flipped(THREE, at, mask), 10)) == flipped(THREE, at, mask)
            except PeerFault as fault:
                refused += fault.reason == "malformed"
    assert refused > 200 * (4 + 3 * 10)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 4),
    st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=4),
    st.binary(max_size=2),
)
def test_whatever_is_read_has_that_one_form(count, pairs, behind):
    data = struct.pack("<I", count) + b"".join(part(name, body) for name, body in pairs) + behind
    try:
        assert join_parts(split_parts(data, 4)) == data
    except PeerFault as fault:
        assert fault.reason == "malformed"
