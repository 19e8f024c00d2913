"""Files that lost what they had confirmed: each is named for what it is, and none is taken for a new ledger."""

import hashlib

import pytest
from kit.clocks import FakeClock

from fednode.errors import DataError, StoreError
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger
from fednode.privacy.journal import head_file
from fednode.privacy.ledger import read_replay
from fednode_crypto.canonical import canonical

BUDGET = Budget(80.0, 1e-5)
EVENT = DiscreteGaussianSum(1.0, 16, 20_500, 2_338_621_071, 2, 2.0**-110)
NAMES = ("ann", "bob")


def opened(path) -> Ledger:
    return Ledger.open(path, BUDGET, FakeClock(), "intents")


@pytest.fixture
def path(tmp_path):
    """A ledger of three rounds."""
    place = tmp_path / "ledger.jsonl"
    with opened(place) as ledger:
        for number in (1, 2, 3):
            ledger.charge(EVENT, number, NAMES)
    return place


def lines(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


DAMAGE = {
    "emptied": (lambda content: b"", "was emptied"),
    "zeros only": (lambda content: bytes(len(content)), "nothing but zeros"),
    "a line cut off": (lambda content: b"".join(lines(content)[:-1]), "was cut"),
    "all charges cut off": (lambda content: lines(content)[0], "was cut"),
    "cut in a line": (lambda content: content[:-9], "was cut"),
    "zeros after a power cut": (lambda content: content[:-99] + bytes(99), "zeros, as after a power cut"),
    "a line of zeros": (
        lambda content: b"".join(lines(content)[:-1]) + bytes(len(lines(content)[-1])),
        "zeros, as after a power cut",
    ),
    "zeros inside": (lambda content: content[:400] + bytes(50) + content[450:], "holds 50 zero bytes"),
    "line ends of another system": (lambda content: content.replace(b"\n", b"\r\n"), "CR LF"),
    "a changed number": (lambda content: content.replace(b'"round":2', b'"round":7'), "line 3: was changed"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_for_what_it_is(path, what):
    damage, words = DAMAGE[what]
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    for read in (opened, read_replay):
        with pytest.raises(StoreError, match=words):
            read(path)
    assert path.read_bytes() == broken


def test_a_deleted_file_does_not_begin_anew(path):
    path.unlink()
    with pytest.raises(StoreError, match="was deleted"):
        opened(path)
    head_file(path).unlink()
    with pytest.raises(DataError):
        read_replay(path)
    # nothing on the disk shows that it was there: reports and holders have its heads
    assert opened(path).entries == ()


def test_another_chain_in_its_place_is_noticed(path, tmp_path):
    other = tmp_path / "other.jsonl"
    with Ledger.open(other, Budget(80.0, 1e-6), FakeClock(), "intents") as ledger:
        for number in range(1, 9):
            ledger.charge(EVENT, number, NAMES)
    path.write_bytes(other.read_bytes())
    with pytest.raises(StoreError, match="replaced or rewritten"):
        opened(path)


def test_without_its_head_file_a_ledger_takes_no_charges(path):
    head = head_file(path)
    kept = head.read_bytes()
    head.unlink()
    with pytest.raises(StoreError, match="is missing"):
        opened(path)
    for junk in (b"", b"{}", b"[]", b'{"head":"x","size":-1}', b"\xff"):
        head.write_bytes(junk)
        with pytest.raises(StoreError, match="damaged"):
            opened(path)
    head.write_bytes(kept)
    assert len(opened(path).entries) == 3


def test_a_head_that_a_crash_left_one_line_behind_is_brought_up_to_date(path):
    before = head_file(path).read_bytes()
    with opened(path) as ledger:
        ledger.charge(EVENT, 4, NAMES)
    after = head_file(path).read_bytes()
    head_file(path).write_bytes(before)
    with opened(path) as ledger:
        assert len(ledger.entries) == 4 and ledger.repair is None
    assert head_file(path).read_bytes() == after != before


def test_zeros_that_nothing_was_opened_by_are_cut_off(path):
    whole = path.read_bytes()
    for rest in (bytes(700), b'{"epsilon_after":1.2,"ev' + bytes(40)):
        path.write_bytes(whole + rest)
        with opened(path) as ledger:
            assert f"({len(rest)} bytes)" in str(ledger.repair) and len(ledger.entries) == 3
        assert path.read_bytes() == whole


def test_a_ledger_of_version_1_is_refused_by_its_version(path):
    body = {"budget": BUDGET.to_dict(), "kind": "header", "previous": "0" * 64, "task": "t", "time": 1.0, "version": 1}
    path.write_bytes(canonical(body | {"hash": hashlib.sha256(canonical(body)).hexdigest()}) + b"\n")
    head_file(path).unlink()
    with pytest.raises(StoreError, match="version 1"):
        opened(path)
