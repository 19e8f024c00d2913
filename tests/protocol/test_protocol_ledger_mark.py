"""The ledger's mark in requests and records."""

import pytest

from fednode.errors import PeerFault
from fednode.protocol.ledger_mark import LEDGER, LedgerMark
from fednode.wire import Fields, canonical

MARK = LedgerMark("support", 7, "ab" * 32)


def _reason(call, *arguments):
    with pytest.raises(PeerFault) as caught:
        call(*arguments)
    return str(caught.value.reason)


def test_there_and_back():
    assert LedgerMark.from_parts(MARK.parts()) == MARK


@pytest.mark.parametrize(
    "given",
    [
        {"name": "support", "lines": 0, "head": "ab" * 32},
        {"name": "", "lines": 7, "head": "ab" * 32},
        {"name": "s" * 257, "lines": 7, "head": "ab" * 32},
        {"name": "support", "lines": 7, "head": "ab"},
        {"name": "support", "lines": 7, "head": "AB" * 32},
        {"name": "support", "lines": 7.0, "head": "ab" * 32},
        {"name": "support", "lines": 7},
        {"name": "support", "lines": 7, "head": "ab" * 32, "more": 1},
    ],
)
def test_what_is_no_mark(given):
    assert _reason(LedgerMark.from_parts, {LEDGER: canonical(given)}) == "malformed"
    assert _reason(LedgerMark.from_parts, {}) == "bad-request"


@pytest.mark.parametrize(
    ("kept", "refused"),
    [
        (["support", 7, "ab" * 32], False),
        (["support", 7, "cd" * 32], True),
        (["support", 6, "cd" * 32], False),
        (["other", 7, "cd" * 32], False),
        (None, False),
    ],
)
def test_a_line_has_one_head(kept, refused):
    entries = [{"opened": "task", "round": 1}, {"opened": "task", "round": 2, LEDGER: kept}]
    if refused:
        assert _reason(MARK.require_among, entries) == "another-ledger"
    else:
        MARK.require_among(entries)


def test_an_answer_names_the_mark_that_was_sent():
    MARK.require_signed(Fields({LEDGER: ["support", 7, "ab" * 32]}))
    for other in (["support", 8, "ab" * 32], None, "support"):
        assert _reason(MARK.require_signed, Fields({LEDGER: other})) == "another-request"
