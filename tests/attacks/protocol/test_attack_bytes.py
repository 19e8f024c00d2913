"""Damaged, inflated and oversized bytes.

Attacker: the carrier of a message, without a member's key: it flips bits and recomputes the frame's digest, claims any
length, sends compressed bombs. Success: changed bytes pass as a member's, or cost more memory than they are long. It
fails: a signature or a signed hash covers every bit, lengths are compared before anything is allocated, and no peer's
data are unpacked. Control: without the signature check a flip in the head passes; the bomb unpacks to 1,000 times its
size.
"""

import hashlib
import json
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import zstandard
from kit.crypto.attacker import BFV, envelope, lying_node, real_cohort, reason_of
from kit.marks import MARKED
from kit.members import CLIENTS, TOPIC, flipped, small_cohort

from fednode.errors import PeerFault
from fednode.protocol import requests
from fednode.protocol.boxkeys import box_context, box_name
from fednode.protocol.cohort import MAX_COHORT, MAX_MEMBERS
from fednode.protocol.envelope import Envelope, Signed
from fednode.protocol.requests import TaskCard, ask_frame, spec_frame
from fednode.wire import MAX_VALUES, canonical, join_parts, split_parts, unpack
from fednode_crypto import Demand, Tampered, plan, scheme
from fednode_crypto.hazmat.seal_bytes import close_seal, open_seal
from fednode_crypto.identity import BoxKey, open_box, seal_box

HEAD = struct.Struct("<2sBBIQ")
SMALL = (
    CLIENTS[0]
    .signer.write("update", TOPIC, bytes(range(64)), attached={f"box-{n}": bytes([n]) * 60 for n in (1, 2, 3)})
    .to_bytes()
)


def redigested(frame: bytes) -> bytes:
    """The frame's digest is not secret: it finds accidents only."""
    return frame[:-32] + hashlib.sha256(frame[:-32]).digest()


def verdict(frame: bytes) -> str:
    """Why an honest node or holder refuses this update; "" if it does not."""
    try:
        read = Envelope.from_bytes(frame, 64, 180)
        read.signed.verified(small_cohort())
    except PeerFault as fault:
        return fault.reason
    return ""


def test_a_flip_of_any_byte_of_a_small_update_is_found():
    assert verdict(SMALL) == ""
    for at in range(len(SMALL)):
        for mask in (1, 0x80):
            assert verdict(flipped(SMALL, at, mask)) != "", at


def test_a_flip_of_any_byte_is_found_also_when_the_digest_is_written_anew():
    reasons = set()
    for at in range(len(SMALL) - 32):
        for mask in (1, 0x20):
            reason = verdict(redigested(flipped(SMALL, at, mask)))
            assert reason != "", at
            reasons.add(reason)
    assert {"malformed", "damaged", "bad-signature"} <= reasons


def test_cut_and_padded_updates_are_found():
    for frame in (*(SMALL[:size] for size in range(0, len(SMALL), 7)), SMALL + b"\0", b"\0" + SMALL, SMALL * 2):
        assert verdict(frame) != "" and verdict(redigested(frame)) != ""


def test_control_without_the_signature_a_flip_in_the_head_passes(monkeypatch):
    monkeypatch.setattr(Signed, "verified", lambda *_: None)
    passed = [at for at in range(len(SMALL) - 32) if verdict(redigested(flipped(SMALL, at))) == ""]
    assert len(passed) > 64


def test_a_flip_of_any_byte_of_a_box_is_found():
    key = BoxKey.generate()
    box = seal_box(key.public, b"a share of a secret", b"context")
    assert open_box(key, box, b"context") == b"a share of a secret"
    for at in range(len(box)):
        with pytest.raises(Tampered):
            open_box(key, flipped(box, at), b"context")


def test_a_real_update_of_ring_with_a_flip_is_found(ring):
    frame = ring.updates["client-1"].to_bytes()
    assert envelope(frame).signed.verified(ring.cohort.cohort).name == "client-1"
    for at in np.random.default_rng(3).integers(0, len(frame) - 32, 60).tolist():
        with pytest.raises(PeerFault):
            envelope(redigested(flipped(frame, at, 4))).signed.verified(ring.cohort.cohort)
    holder, update = ring.cohort.cohort.member("holder-3"), ring.updates["client-1"]
    key, box = ring.cohort.holder("holder-3")._boxes._current(ring.spec).key(0), update.attached[box_name(3)]
    for at in [0, 1, 32, 33, len(box) - 1, *range(40, len(box), 600)]:
        with pytest.raises(Tampered):
            open_box(key, flipped(box, at), box_context(ring.spec.digest(), "client-1", holder))


# --- lengths


def peak_of(ask) -> int:
    tracemalloc.start()
    try:
        with pytest.raises((PeerFault, Tampered, RuntimeError)):
            ask()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("body", [65, 1 << 31, 1 << 40, (1 << 64) - 1])
@pytest.mark.parametrize("header", [0, (1 << 32) - 1])
def test_claimed_lengths_cost_nothing(header, body):
    frame = HEAD.pack(b"FN", 1, 8, header, body) + SMALL[16:]
    assert peak_of(lambda: unpack("envelope", redigested(frame), 64)) < 1 << 16


def test_parts_that_claim_more_than_there_is_cost_nothing():
    for parts in (
        struct.pack("<I", (1 << 32) - 1),
        struct.pack("<IHQ", 1, 4, (1 << 63)) + b"body",
        struct.pack("<IHQ", 1, (1 << 16) - 1, 0),
        struct.pack("<I", 20_000) + struct.pack("<HQ", 0, 0) * 20_000,
    ):
        assert peak_of(lambda data=parts: split_parts(data, 1 << 17)) < 1 << 16


def test_more_than_an_update_can_be_is_refused_for_its_size():
    for size, boxes, reason in ((65, 0, "oversize"), (0, 15, ""), (0, 17, "malformed")):
        attached = {f"b{n}": b"x" for n in range(boxes)}
        assert verdict(CLIENTS[0].signer.write("update", TOPIC, bytes(size), attached=attached).to_bytes()) == reason


def test_a_holder_refuses_oversized_requests_and_answers_the_next(tmp_path):
    node = lying_node(real_cohort(tmp_path, BFV))
    heads = node.heads(node.names)
    assert reason_of(node.cohort, "holder-1", node.frame(heads, bytes(1 << 22))) == "bad-request"
    assert reason_of(node.cohort, "holder-1", node.frame(heads * 40)) == "too-many"
    assert node.opened_by("holder-1", node.names, node.sum_of(node.names).request())


# --- JSON: text that grows when it is parsed


@pytest.fixture
def parsed(monkeypatch):
    """The sizes of all texts that were parsed as JSON."""
    seen: list[int] = []
    real = json.loads

    def spied(text, **named):
        seen.append(len(text))
        return real(text, **named)

    monkeypatch.setattr(json, "loads", spied)
    return seen


LISTS = b'{"a":[' + b"[]," * (1 << 21) + b"[]]}"
LONG = b'{"a":"' + b"a" * MAX_COHORT + b'"}'


@pytest.mark.parametrize("text", [LISTS, LONG], ids=["values", "bytes"])
@pytest.mark.parametrize("part", ["cohort", "params"])
def test_what_is_too_large_to_parse_is_refused_before_it_is(tmp_path, parsed, part, text):
    cohort = real_cohort(tmp_path, BFV)
    card = TaskCard("another", cohort.cohort, BFV.sum_params()).parts() | {part: text}
    for kind, name in (("task", "client-1"), ("task", "holder-1"), ("key-commit", "holder-1")):
        # a list of members is no JSON before its signature was checked
        expected = "malformed" if part == "cohort" and len(text) < MAX_COHORT else "oversize"
        assert reason_of(cohort, name, ask_frame(kind, "another", card)) == expected
    assert max(parsed) < 1 << 16


@pytest.mark.parametrize("text", [LISTS, LONG], ids=["values", "bytes"])
def test_an_outline_too_large_to_parse_is_refused_before_it_is(tmp_path, parsed, text):
    node = lying_node(real_cohort(tmp_path, BFV))
    with pytest.raises(PeerFault, match="oversize"):
        node.cohort.client("client-1").join(replace(node.spec, round=2), node.parts | {"model": text}, {})
    assert max(parsed) < 1 << 16


@pytest.mark.parametrize("head", [LISTS[:4_000] + b"[]]}", LISTS], ids=["small", "large"])
def test_a_roster_of_heads_that_are_no_updates_is_refused_at_the_first(ring, parsed, head):
    heads = ring.heads(ring.names)
    bad = {f"{n:06d}": bytes(64) + head for n in range(1, len(heads))}
    roster = join_parts({"000000": heads[0].to_bytes(), **bad})
    parsed.clear()
    frame = spec_frame("confirm", ring.spec, {**MARKED, "roster": roster})
    assert reason_of(ring.cohort, "holder-1", frame) == "malformed"
    assert max(parsed) < 1 << 16
    many = join_parts({f"{n:06d}": heads[0].to_bytes() for n in range(ring.spec.sum_params.summands + 1)})
    parsed.clear()
    assert (
        reason_of(ring.cohort, "holder-1", spec_frame("confirm", ring.spec, {**MARKED, "roster": many})) == "too-many"
    )
    # the node's signature, now and before, the task's cohort and sum, the request's header, the identity, and the
    # answer: no head
    assert len(parsed) <= 12


@pytest.mark.parametrize("kind", ["box-key", "close", "key-check", "round", "key-reveal", "reopen"])
def test_every_kind_of_request_has_a_size_of_its_own(kind):
    most = requests._MOST.get(kind, 1 << 16)
    with pytest.raises(PeerFault, match="oversize"):
        requests.read_ask(kind, ask_frame(kind, "task-1", {"a": bytes(most)}))
    assert requests.read_ask(kind, ask_frame(kind, "task-1", {"a": bytes(most - 64)}))[0] == "task-1"


def test_the_largest_cohort_there_may_be_is_read():
    rows = []
    for number in range(MAX_MEMBERS):
        name = f"{number:06d}".ljust(63, "x")
        rows.append({"name": name, "role": "client", "verify_key": "0" * 64, "box_key": "0" * 64, "point": 0})
    signed = canonical({"format": "fednode-cohort-1", "members": rows, "signature": "0" * 128})
    assert len(signed) <= MAX_COHORT and sum(map(signed.count, (b",", b"[", b"{"))) <= MAX_VALUES


# --- bombs

BOMB = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 24))


def sealed_bomb() -> bytes:
    """A SEAL object whose header says that its body is packed by zstd, and that unpacks to 16 MiB."""
    stored = close_seal(struct.pack("<HBBBBHQ", 0xA15E, 16, 4, 1, 2, 0, 0), BOMB)
    return stored[:5] + b"\2" + stored[6:]


def test_control_the_bomb_is_one():
    assert len(BOMB) * 1_000 < len(zstandard.ZstdDecompressor().decompress(BOMB, max_output_size=1 << 24))


@pytest.mark.parametrize("size", [97, 4_096])
def test_seal_bytes_are_unpacked_no_further_than_they_may_go(size):
    # zstd's own window is not counted here; the bytes that Python gets are bounded
    assert peak_of(lambda: open_seal(sealed_bomb(), size)) < 1 << 19


@pytest.mark.parametrize("name", ["ring", "bfv"])
def test_nothing_of_a_peer_is_ever_unpacked(name, monkeypatch):
    params = plan(name, Demand(dimension=20, summands=4, value_bound=900, holders=3, threshold=2))
    total = scheme(name).zero(params)
    monkeypatch.delattr(zstandard, "ZstdDecompressor")
    filled = sealed_bomb() + bytes(params.payload_bytes)
    for payload in (BOMB, sealed_bomb(), filled[: params.payload_bytes - 1], filled):
        with pytest.raises(Tampered):
            total.absorb(payload)
    # bytes of the right size are residues, in range or not
    try:
        total.absorb(filled[: params.payload_bytes])
        assert total.count == 1
    except Tampered:
        assert total.count == 0
