"""Damage: whatever was done to a ledger's lines is noticed, except what a crash can do, which is mended."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.clocks import FakeClock

from fednode.errors import StoreError
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger
from fednode.privacy.chain import ChargeRecord, History, LedgerHeader, append_charge, append_header, replay
from fednode.privacy.journal import ConfirmedHead, Journal

BUDGET = Budget(80.0, 1e-5)
EVENT = DiscreteGaussianSum(1.0, 16, 20_500, 2_338_621_071, 2, 2.0**-110)
NAMES = ("ann", "bob", "cyd")


def built(rounds: int) -> tuple[bytes, ...]:
    """The lines of a ledger with this many rounds."""
    history, header = append_header(History(), LedgerHeader("intents", BUDGET, 1.5))
    lines = [header]
    for number in range(1, rounds + 1):
        history, line = append_charge(history, ChargeRecord(number, EVENT, NAMES, 2.5, number / 8, "intents"))
        lines.append(line)
    return tuple(lines)


LINES = built(4)
WHOLE = b"".join(LINES)


def confirmed(path, lines: int) -> None:
    """The head file beside `path` says that so many lines were confirmed."""
    history = replay(b"".join(LINES[:lines]), "x").history
    Journal(path).confirm(ConfirmedHead(history.size, history.head))


def forged(line: bytes, **changes: object) -> bytes:
    """A line with other content and a hash that is right for it, NaN allowed."""
    body = {k: v for k, v in (json.loads(line) | changes).items() if k != "hash"}
    form = {"sort_keys": True, "separators": (",", ":")}
    digest = hashlib.sha256(json.dumps(body, **form).encode()).hexdigest()
    return json.dumps(body | {"hash": digest}, **form).encode() + b"\n"


def test_an_untouched_ledger_replays():
    found = replay(WHOLE, "x")
    assert [entry.charge.round_number for entry in found.history.entries] == [1, 2, 3, 4]
    assert found.history.size == len(WHOLE)
    assert (found.torn, found.newline_missing) == (0, False)
    assert replay(b"", "x").history == History()


@pytest.mark.parametrize("flip", [0x01, 0x20, 0x80, 0xFF])
def test_any_byte_that_was_changed_is_noticed(flip):
    for at in range(len(WHOLE)):
        changed = bytearray(WHOLE)
        changed[at] ^= flip
        with pytest.raises(StoreError, match="ledger x, line"):
            replay(bytes(changed), "x")


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_stretch_that_was_overwritten_is_noticed(data):
    """Any bytes but the true ones, anywhere before the last line's end."""
    at = data.draw(st.integers(0, len(WHOLE) - 2))
    fill = data.draw(st.binary(min_size=1, max_size=12))
    changed = WHOLE[:at] + fill + WHOLE[at + len(fill) :]
    if changed == WHOLE or not changed.endswith(b"\n"):
        return
    with pytest.raises(StoreError, match="line"):
        replay(changed, "x")


@pytest.mark.parametrize(
    ("order", "line"),
    [
        ([1, 2, 3, 4], 1),
        ([0, 2, 3, 4], 2),
        ([0, 1, 3, 4], 3),
        ([0, 1, 2, 4], 4),
        ([0, 2, 1, 3, 4], 2),
        ([0, 1, 2, 4, 3], 4),
        ([0, 0, 1, 2, 3, 4], 2),
        ([0, 1, 1, 2, 3, 4], 3),
        ([0, 1, 2, 3, 4, 4], 6),
        ([0, 1, 2, 3, 4, 0], 6),
    ],
    ids=str,
)
def test_dropped_swapped_and_repeated_lines_are_noticed_with_their_number(order, line):
    with pytest.raises(StoreError, match=f"ledger x, line {line}: "):
        replay(b"".join(LINES[n] for n in order), "x")


def test_lines_cut_off_the_end_show_in_the_head_only():
    """The known limit of a chain: what is left is a valid, older ledger with another head."""
    older, whole = replay(b"".join(LINES[:-1]), "x").history, replay(WHOLE, "x").history
    assert older.head != whole.head
    assert len(older.entries) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"event": EVENT.to_dict() | {"kind": "laplace"}},
        {"event": EVENT.to_dict() | {"clip": float("nan")}},
        {"event": EVENT.to_dict() | {"failure": float("inf")}},
        {"event": EVENT.to_dict() | {"contributors": 4}},
        {"event": EVENT.to_dict() | {"local_variance": -1}},
        {"event": None},
        {"epsilon_after": float("nan")},
        {"epsilon_after": "1"},
        {"time": None},
        {"kind": "refund"},
        {"round": 4},
        {"round": 3.0},
        {"survivors": ["ann", "ann", "bob"]},
        {"survivors": "ann"},
        {"survivors": [["ann"], "bob", "cyd"]},
        {"task": ""},
        {"task": None},
        {"note": "one field more"},
    ],
    ids=str,
)
def test_a_well_hashed_line_with_bad_content_is_refused(changes):
    lines = [*LINES, forged(LINES[4], round=5, previous=json.loads(LINES[4])["hash"])]
    assert len(replay(b"".join(lines), "x").history.entries) == 5
    lines[5] = forged(lines[5], **changes)
    with pytest.raises(StoreError, match="ledger x, line 6: "):
        replay(b"".join(lines), "x")


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 3},
        {"version": True},
        {"kind": "charge"},
        {"name": ""},
        {"budget": {"epsilon": 1.0}},
        {"time": "now"},
    ],
    ids=str,
)
def test_a_well_hashed_header_with_bad_content_is_refused(changes):
    with pytest.raises(StoreError, match="ledger x, line 1: "):
        replay(forged(LINES[0], **changes), "x")


@pytest.mark.parametrize(
    "content", [b"\n", b"{}\n", b"[]\n", b"null\n", b"\xff\n", b"[" * 100_000 + b"\n", b"hello", b"\x00"]
)
def test_other_files_are_not_taken_for_ledgers(content, tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="line 1" if b"\n" in content else "was cut|nothing but zeros"):
        Ledger.open(path, BUDGET, FakeClock(), "intents")
    assert path.read_bytes() == content


@pytest.mark.parametrize("lines", [1, 2, 4])
def test_a_last_line_cut_short_is_dropped_and_reported(tmp_path, lines):
    path, kept = tmp_path / "ledger.jsonl", b"".join(LINES[:lines])
    for cut in (1, 2, 20, len(LINES[lines]) // 2, len(LINES[lines]) - 2):
        path.write_bytes(kept + LINES[lines][:cut])
        confirmed(path, lines)
        with Ledger.open(path, BUDGET, FakeClock(), "intents") as ledger:
            assert ledger.repair is not None
            assert f"({cut} bytes)" in ledger.repair
            assert len(ledger.entries) == lines - 1
            assert path.read_bytes() == kept
            ledger.charge(EVENT, 9, NAMES)
        with Ledger.open(path, BUDGET, FakeClock(), "intents") as ledger:
            assert ledger.repair is None
            assert len(ledger.entries) == lines


def test_a_header_cut_short_is_no_crash_of_ours(tmp_path):
    """A ledger is made with its header in one step."""
    path = tmp_path / "ledger.jsonl"
    for cut in (0, 1, 15, len(LINES[0]) - 2):
        path.write_bytes(LINES[0][:cut])
        with pytest.raises(StoreError, match="emptied" if cut == 0 else "was cut"):
            Ledger.open(path, BUDGET, FakeClock(), "intents")
        assert path.read_bytes() == LINES[0][:cut]


@pytest.mark.parametrize("lines", [3, 5])
def test_a_last_line_without_its_newline_counts_as_charged(tmp_path, lines):
    path, whole = tmp_path / "ledger.jsonl", b"".join(LINES[:lines])
    path.write_bytes(whole[:-1])
    confirmed(path, lines - 1)
    with Ledger.open(path, BUDGET, FakeClock(), "intents") as ledger:
        assert "newline" in str(ledger.repair)
        assert len(ledger.entries) == lines - 1
        assert path.read_bytes() == whole
        ledger.charge(EVENT, 9, NAMES)
    with Ledger.open(path, BUDGET, FakeClock(), "intents") as ledger:
        assert len(ledger.entries) == lines


def test_bytes_after_a_whole_last_line_are_damage_not_a_torn_line():
    for rest in (b"x", b" ", b"\x00", b"{"):
        with pytest.raises(StoreError, match="line 5"):
            replay(WHOLE[:-1] + rest, "x")
