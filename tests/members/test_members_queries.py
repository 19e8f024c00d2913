"""`Members.query` answers whatever it is asked: frames bent in every way that a digest written anew allows, and a full
disk. No exception leaves."""

import errno
import hashlib
import json
import os
import struct
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.cohort import TASK, FakeCohort, Size, place

from fednode.errors import PeerFault, StoreError
from fednode.protocol.envelope import Envelope
from fednode.protocol.requests import key_request
from fednode.wire import join_parts, split_parts
from fednode_clients.keyfolder.audit_log import RECORD_HEAD
from fednode_clients.membership import storage_fault

PREFIX = struct.Struct("<2sBBIQ")
MOST = 1 << 26
SIZES = {"bfv": Size(clients=3, holders=3), "ring": Size(clients=3, holders=3, dimension=4, scheme="ring")}
ODD = [None, True, -1, 0, 1 << 70, 1.5, 1e300, "", "x", "\ud800", "\x00", "ä" * 200, [], {}, [{}], [[1]], {"": None}]
KINDS = [b"task", b"open", b"boxes", b"box-key", b"key-join", b"round", b"hello", b"\xff\x80", b""]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """By scheme: a cohort that ran a round, and every query of it, to whom and the frame."""
    return {name: after_a_round(tmp_path_factory.mktemp(name), name) for name in SIZES}


def after_a_round(root: Path, name: str) -> tuple[FakeCohort, tuple[tuple[str, bytes], ...]]:
    cohort = FakeCohort(root, SIZES[name])
    cohort.begun().run_round(1)
    found = [(name, request.frame) for name, request in cohort.sent if request.call == "query"]
    found += [("client-1", frame) for _, frame in found] + [("holder-1", key_request(TASK, 2))]
    return cohort, tuple(found)


def cut(frame: bytes) -> tuple[bytes, bytes, bytes]:
    """Kind, header, body."""
    _, _, kind, header, _ = PREFIX.unpack_from(frame)
    start = PREFIX.size + kind
    return frame[PREFIX.size : start], frame[start : start + header], frame[start + header : -32]


def made(kind: bytes, header: bytes, body: bytes) -> bytes:
    data = PREFIX.pack(b"FN", 1, len(kind), len(header), len(body)) + kind + header + body
    return data + hashlib.sha256(data).digest()


def redigested(data: bytes) -> bytes:
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def bent_value(random: Random, value: object) -> object:
    """One place of a JSON value changed to anything."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(sorted(value))
        return {**value, key: bent_value(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        return [*value[:at], bent_value(random, value[at]), *value[at + 1 :]]
    return random.choice(ODD)


def bent_bytes(random: Random, whole: bytes) -> bytes:
    """A run of bytes overwritten, taken out, or put in."""
    at = random.randint(0, len(whole))
    return whole[:at] + random.randbytes(random.randrange(9)) + whole[at + random.randrange(9) :]


def bent_part(random: Random, part: bytes) -> bytes:
    """As JSON, as a frame, as parts, as a signed head, or as bytes: whatever it is."""
    if random.random() < 0.2:
        return random.choice([b"", part[:64], bent_bytes(random, part)])
    for skipped in (0, 64):
        with suppress(ValueError):
            return part[:skipped] + canonical(bent_value(random, json.loads(part[skipped:])))
    return bent_frame(random, part) if part[:2] == b"FN" else bent_parts(random, part)


def bent_parts(random: Random, body: bytes) -> bytes:
    """One named part bent, dropped, renamed, or taken for another."""
    try:
        parts = split_parts(body, 1 << 17)
    except PeerFault:
        parts = {}
    if not parts:
        return bent_bytes(random, body)
    name, other = random.choice(sorted(parts)), random.choice(sorted(parts))
    how = random.randrange(10)
    if how == 0:
        del parts[name]
    elif how == 1:
        parts[random.choice(["a", "share-1", "share-", "reveal-0", "commitment-99", "box-key-x"])] = parts.pop(name)
    else:
        parts[name] = parts[other] if how == 2 else bent_part(random, parts[name])
    return join_parts(parts)


def bent_frame(random: Random, frame: bytes) -> bytes:
    kind, header, body = cut(frame)
    how = random.randrange(12)
    if how == 0:
        kind = random.choice([*KINDS, random.randbytes(random.randrange(255))])
    elif how == 1:
        header = canonical(bent_value(random, json.loads(header)))
    elif how == 2:
        header = bent_bytes(random, header)
    elif how == 3:
        return redigested(bent_bytes(random, frame))
    else:
        body = bent_parts(random, body)
    return made(kind, header, body)


def answered(cohort: FakeCohort, name: str, frame: bytes) -> Envelope:
    """What comes back: always a signed envelope of the member itself."""
    said = Envelope.from_bytes(cohort.members(name).query(place(name), cohort.signed(name, frame)), MOST, MOST)
    assert said.signed.verified(cohort.cohort).name == name
    return said


@pytest.mark.parametrize("scheme", ["bfv", "ring"])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_bent_frame_gets_a_signed_answer(asked, scheme, seed):
    cohort, frames = asked[scheme]
    random = Random(seed)
    name, frame = random.choice(frames)
    assert answered(cohort, name, bent_frame(random, frame)).head.sender == name


@settings(max_examples=60, deadline=None)
@given(kind=st.binary(min_size=1, max_size=255), header=st.binary(max_size=60), body=st.binary(max_size=60))
def test_a_frame_of_any_kind_gets_a_signed_answer(asked, kind, header, body):
    cohort, _ = asked["ring"]
    for text in (header, b'{"task":"x"}'):
        frame = made(kind, text, body)
        for name in ("client-1", "holder-1"):
            said = answered(cohort, name, frame)
            assert kind == b"hello" or said.head.kind == "refusal"


# --- the member's own disk


def full(*_arguments, **_named):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere/secret/turn.lock")


@pytest.fixture
def fresh(tmp_path):
    cohort = FakeCohort(tmp_path, SIZES["ring"])
    cohort.begun().run_round(1)
    return cohort


def refused(cohort, name, frame):
    said = answered(cohort, name, frame)
    assert said.head.kind == "refusal" and said.about.text("reason") == "member-storage"
    detail = said.about.text("detail", 512)
    assert str(cohort.root) not in detail and "/" not in detail
    return detail


@pytest.mark.parametrize(
    "broken", ["os.fsync", "fednode_clients.keyfolder.exclusive.os.open", "fednode.disk.atomic.os.open"]
)
def test_a_full_disk_is_a_refusal_that_says_so_and_not_where_the_keys_are(fresh, monkeypatch, caplog, broken):
    frame = key_request(TASK, 2)
    with monkeypatch.context() as patched:
        patched.setattr(broken, full)
        assert "No space left on device" in refused(fresh, "holder-1", frame)
    assert str(fresh.root) in caplog.text or "turn.lock" in caplog.text
    assert answered(fresh, "holder-1", frame).head.kind == "box-key"


def test_what_cannot_be_removed_is_storage_too(fresh, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", full)
        assert "No space left on device" in refused(fresh, "holder-1", key_request(TASK, 2))


def test_a_damaged_record_is_a_refusal_that_says_so(fresh):
    (fresh.folder("holder-1").path / "record.jsonl").write_bytes(b"not JSON\n")
    assert "damaged" in refused(fresh, "holder-1", key_request(TASK, 2))


def test_a_damaged_share_of_a_joint_key_is_a_refusal_that_says_so(tmp_path):
    cohort = FakeCohort(tmp_path, SIZES["bfv"])
    cohort.begun().run_round(1)
    frame = next(request.frame for name, request in cohort.asked("open") if name == "holder-1")
    folder = cohort.folder("holder-1")
    folder.state.put(f"share/{TASK}", (folder.state.get(f"share/{TASK}") or b"")[:-1])
    folder.state.drop(f"answer/{TASK}")
    (folder.path / "record.jsonl").unlink()
    folder.state.drop(RECORD_HEAD)
    cohort.restart("holder-1")
    assert "damaged" in refused(cohort, "holder-1", frame)


def test_the_detail_names_no_path_whatever_the_error_says():
    for cause in (None, OSError("only a part of /x"), OSError(errno.EACCES, "Permission denied", "/keys/state/ab")):
        error = StoreError("could not write /keys/state/ab")
        error.__cause__ = cause
        fault = storage_fault(error)
        assert fault.reason == "member-storage" and "/" not in fault.detail
