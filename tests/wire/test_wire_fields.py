"""Each reader takes its own type within its bounds, and everything else is the peer's fault."""

import pytest
from kit.faults import reason_of

from fednode.errors import PeerFault
from fednode.wire import Fields

NAN, INF = float("nan"), float("inf")
READERS = {
    "text": lambda fields: fields.text("a", 4),
    "integer": lambda fields: fields.integer("a", 0, 10),
    "number": lambda fields: fields.number("a", 0.0, 1.0),
    "octets": lambda fields: fields.octets("a", 2),
    "fields": lambda fields: fields.fields("a").raw(),
    "rows": lambda fields: [row.raw() for row in fields.rows("a", 2)],
}
GOOD = {
    "text": [("x", "x"), ("1234", "1234"), ("é", "é"), ("a b", "a b")],
    "integer": [(0, 0), (10, 10), (7, 7)],
    "number": [(0.0, 0.0), (1.0, 1.0), (0.5, 0.5), (-0.0, 0.0)],
    "octets": [("00ff", b"\x00\xff"), ("1234", b"\x12\x34")],
    "fields": [({}, {}), ({"b": 1}, {"b": 1})],
    "rows": [([], []), ([{}, {"b": 1}], [{}, {"b": 1}])],
}
BAD = {
    "text": ["", "12345", "a\n", "\x00", "\x7f", "\u202e", "\ud800", "\u2028", 1, True, None, b"x", ["x"], {"x": 1}],
    "integer": [-1, 11, True, False, 1.0, 7.0, "7", None, NAN, [7], 1 << 90],
    "number": [-0.1, 1.1, NAN, INF, -INF, 0, 1, True, False, "0.5", None, [0.5]],
    "octets": ["", "00f", "00ff0", "00FF", "00fG", "00 f", " 00f", "ab  ", "0\n0f", "٠٠٠٠", "-0ff", 255, None, b"00ff"],
    "fields": [[], [{}], "x", 1, None, True],
    "rows": [[{}, {}, {}], [1], [{}, None], [[]], {}, {"a": {}}, "ab", None, ({},)],
}


@pytest.mark.parametrize(("reader", "given", "read"), [(r, *case) for r, cases in GOOD.items() for case in cases])
def test_what_is_within_the_bounds_is_read(reader, given, read):
    found = READERS[reader](Fields({"a": given}))
    assert found == read and type(found) is type(read)


@pytest.mark.parametrize(("reader", "given"), [(r, value) for r, values in BAD.items() for value in values])
def test_another_type_or_bound_is_malformed_and_the_sentence_names_the_field(reader, given):
    with pytest.raises(PeerFault, match="a is not") as caught:
        READERS[reader](Fields({"a": given}))
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize("reader", READERS)
def test_a_missing_field_is_malformed(reader):
    assert reason_of(lambda: READERS[reader](Fields({"b": 1}))) == "malformed"


def test_only_takes_exactly_the_names():
    fields = Fields({"a": 1, "b": 2})
    assert fields.only("b", "a") is fields
    for names in ((), ("a",), ("a", "b", "c"), ("a", "c")):
        assert reason_of(fields.only, *names) == "malformed"
    assert Fields({}).only().raw() == {}
