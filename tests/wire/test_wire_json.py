"""One value, one encoding: what is not the canonical form of itself is refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.faults import reason_of

from fednode.errors import PeerFault
from fednode.wire import MAX_DEPTH, canonical, digest, parse

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=8)
OBJECTS = st.dictionaries(st.text(max_size=8), SCALARS | st.lists(SCALARS, max_size=4), max_size=6)

NOT_CANONICAL = {
    "nothing": b"",
    "half an object": b'{"a":1',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "two objects": b"{}{}",
    "a space inside": b'{"a": 1}',
    "a space before": b" {}",
    "a newline after": b"{}\n",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "keys out of order": b'{"b":1,"a":1}',
    "inner keys out of order": b'{"a":{"c":1,"b":1}}',
    "a key twice": b'{"a":1,"a":1}',
    "a key twice, other values": b'{"a":1,"a":2}',
    "an inner key twice": b'{"a":{"b":1,"b":1}}',
    "a float too large": b'{"a":1e400}',
    "a float too small": b'{"a":-1e400}',
    "a float that vanishes": b'{"a":1e-400}',
    "another exponent": b'{"a":1E5}',
    "an exponent for a small number": b'{"a":1e2}',
    "zeros behind the point": b'{"a":1.50}',
    "more digits than a float has": b'{"a":0.1000000000000000055}',
    "a leading zero": b'{"a":01}',
    "minus zero": b'{"a":-0}',
    "plus one": b'{"a":+1}',
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":Infinity}',
    "-Infinity": b'{"a":-Infinity}',
    "an escaped letter": b'{"a":"\\u0041"}',
    "an escape in capitals": b'{"a":"\\u00E9"}',
    "an escaped slash": b'{"a":"\\/"}',
    "a raw control character": b'{"a":"\x01"}',
    "letters that are not ASCII": '{"a":"é"}'.encode(),
    "bytes that are no text": b'{"a":"\xff"}',
    "a trailing comma": b'{"a":1,}',
    "a comment": b"{}//",
    "single quotes": b"{'a':1}",
    "a bare key": b"{a:1}",
    "an integer of 5,000 digits": b'{"a":' + b"9" * 5_000 + b"}",
    "a NUL": b"{}\x00",
    "utf-16": "{}".encode("utf-16"),
}


def nested(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    """An object with lists or objects in it, `levels` levels in all."""
    return b'{"a":' + opening * (levels - 1) + b"1" * (opening != b"[") + closing * (levels - 1) + b"}"


@settings(max_examples=80, deadline=None)
@given(OBJECTS)
def test_the_canonical_form_is_read_back_and_no_other_spelling_is(value):
    text = canonical(value)
    assert parse(text).raw() == value
    assert text.isascii() and canonical(parse(text).raw()) == text
    for other in (
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8"),
        json.dumps(dict(reversed(value.items())), separators=(",", ":")).encode(),
    ):
        if other != text:
            assert reason_of(parse, other) == "malformed"


@pytest.mark.parametrize("text", NOT_CANONICAL.values(), ids=NOT_CANONICAL)
def test_anything_else_is_malformed(text):
    assert reason_of(parse, text) == "malformed"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | st.text('{}[]",:0.e-1 a\\u', max_size=30).map(str.encode))
def test_whatever_the_bytes_are_they_are_read_or_malformed(data):
    try:
        assert canonical(parse(data).raw()) == data
    except PeerFault as fault:
        assert fault.reason == "malformed"


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"b":', b"}")])
def test_depth_is_bounded_so_that_what_was_read_can_be_written_from_anywhere(opening, closing):
    text = nested(MAX_DEPTH, opening, closing)
    assert canonical(parse(text).raw()) == text
    for levels in (MAX_DEPTH + 1, 200, 990, 5_000):
        assert reason_of(parse, nested(levels, opening, closing)) == "malformed"
    assert reason_of(parse, b'{"a":' + b"[" * 60_000) == "malformed"


def test_the_canonical_form_is_sorted_compact_and_ascii():
    assert canonical({"b": [True, None, 1.0, -0.0, 1e22], "a": "é\n\U0001f600"}) == (
        b'{"a":"\\u00e9\\n\\ud83d\\ude00","b":[true,null,1.0,-0.0,1e+22]}'
    )
    for value in ({"a": b"bytes"}, {"a": {1, 2}}, {"a": object()}):
        with pytest.raises(TypeError):
            canonical(value)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=6), max_size=4), st.lists(st.binary(max_size=6), max_size=4))
def test_digests_of_different_lists_differ_however_the_bytes_are_cut(one, other):
    assert (digest("d", *one) == digest("d", *other)) == (one == other)
    assert digest("d", *one) != digest("e", *one)
    assert len(digest("d", *one)) == 32
