"""Complaints, judged: whoever is wrong is named, and nobody else, in thousands of small rounds.

The boxes, keys and signatures are real. The secure sum is a toy: 8 numbers a secret, and the check of docs/crypto.md.
"""

import random
from hashlib import sha256, shake_256

import numpy as np
import pytest
from kit.faults import reason_of
from kit.members import CLIENTS, HOLDERS, TASK, flipped, small_cohort, some_spec

from fednode.protocol.boxkeys import (
    BoxKeys,
    HolderKeys,
    about_keys,
    box_context,
    box_hashes,
    box_name,
    client_indices,
    key_tree,
    share_challenge,
)
from fednode.protocol.complaints import Complaint, Court, KeyedBox, Verdict, complaint_parts, read_complaints
from fednode.protocol.envelope import Topic, about_check
from fednode.reasons import Reason
from fednode_crypto import Tampered
from fednode_crypto.identity import BoxKey, seal_box

PRIME, LONG, ROWS, THRESHOLD = 2039, 8, 12, 2
COHORT, NAMES = small_cohort(), [client.name for client in small_cohort().clients]
INDICES = client_indices(COHORT)


def matrix(challenge):
    drawn = np.frombuffer(shake_256(challenge).digest(4 * ROWS * LONG), "<u4").astype(np.int64)
    return drawn.reshape(ROWS, LONG) % PRIME


class InsecureToyBoxes:
    """The two verbs that a judge uses."""

    boxed = True

    def check_share(self, params, share, point, challenge, check):
        if len(share) != 2 * (LONG + ROWS):
            raise Tampered("size")
        numbers = np.frombuffer(share, "<u2").astype(np.int64)
        answer = np.frombuffer(check, "<u2").astype(np.int64).reshape(THRESHOLD, ROWS)
        found = (matrix(challenge) @ numbers[:LONG] + numbers[LONG:]) % PRIME
        if (numbers >= PRIME).any() or not np.array_equal(found, (answer[0] + point * answer[1]) % PRIME):
            raise Tampered("check")


class ToyRound:
    """The keys of one round, and an update of each client."""

    def __init__(self, rng):
        self.rng = rng
        self.secrets = {h.point: [BoxKey.from_private_bytes(rng.randbytes(32)) for _ in NAMES] for h in HOLDERS}
        topic, keys = Topic(TASK, 3), {}
        for holder in HOLDERS:
            public = tuple(secret.public.raw for secret in self.secrets[holder.point])
            tree = key_tree(public)
            signed = holder.signer.write("box-key", topic, b"", about_keys(tree)).signed
            keys[holder.point] = HolderKeys(signed, public, tree)
        self.keys = BoxKeys(keys, INDICES)
        self.spec = some_spec(3)
        object.__setattr__(self.spec, "key_digest", self.keys.digest())
        self.about = self.spec.digest()
        self.court = Court(self.spec, COHORT, InsecureToyBoxes(), self.keys.heads, INDICES)
        self.updates = {}

    def send(self, client, spoil=lambda shares: None, spoil_boxes=lambda boxes: None):
        """The client's signed head and boxes; the spoilers change its shares, or its sealed boxes."""
        drawn = np.array([self.rng.randrange(PRIME) for _ in range(THRESHOLD * (LONG + ROWS))])
        polynomial = drawn.reshape(THRESHOLD, -1)
        shares = {h.point: (polynomial[0] + h.point * polynomial[1]) % PRIME for h in HOLDERS}
        spoil(shares)
        boxes = {}
        for holder in HOLDERS:
            key, share = self.secrets[holder.point][INDICES[client.name]].public, shares[holder.point]
            context = box_context(self.about, client.name, holder.public)
            boxes[holder.point] = seal_box(key, share.astype("<u2").tobytes(), context)
        spoil_boxes(boxes)
        hashes = {point: sha256(box).digest() for point, box in boxes.items()}
        challenge = share_challenge(self.about, client.name, hashes)
        check = (polynomial[:, :LONG] @ matrix(challenge).T + polynomial[:, LONG:]) % PRIME
        attached = {box_name(point): box for point, box in boxes.items()}
        about = about_check(check.astype("<u2").tobytes())
        topic = Topic(TASK, 3, self.about)
        update = client.signer.write("update", topic, b"", about, attached)
        assert box_hashes(update.head) == hashes
        self.updates[client.name] = (update.signed, boxes)

    def strikes(self, holder):
        """The clients that an honest holder strikes."""
        found = []
        for name, (signed, boxes) in self.updates.items():
            key = self.secrets[holder.point][INDICES[name]]
            if KeyedBox(signed.head, holder.public, boxes[holder.point], key).fault(
                self.spec, self.about, self.court.scheme
            ):
                found.append(name)
        return found

    def complaint(self, holder, name, secret=None):
        signed, boxes = self.updates[name]
        shown = secret or self.secrets[holder.point][INDICES[name]].private_bytes()
        return Complaint(signed, boxes[holder.point], self.keys.holders[holder.point].of(INDICES[name]), shown)


def one_coefficient(rng):
    def spoil(shares):
        point, at = rng.choice(list(shares)), rng.randrange(LONG)
        shares[point] = shares[point].copy()
        shares[point][at] = (shares[point][at] + rng.randrange(1, PRIME)) % PRIME

    return {"spoil": spoil}


def higher_degree(rng):
    def spoil(shares):
        by = rng.randrange(1, PRIME)
        for point in shares:
            shares[point][0] = (shares[point][0] + by * point**THRESHOLD) % PRIME

    return {"spoil": spoil}


def junk(rng):
    def spoil(boxes):
        point = rng.choice(list(boxes))
        boxes[point] = flipped(boxes[point], rng.randrange(len(boxes[point])))

    return {"spoil_boxes": spoil}


CHEATS = [one_coefficient, higher_degree, junk]


def check_random_round(seed):
    """Honest holders strike exactly the crooked client, and every complaint ends with whoever is wrong."""
    rng = random.Random(seed)
    toy = ToyRound(rng)
    crook = rng.choice([None, *CLIENTS])
    for client in CLIENTS:
        toy.send(client, **(rng.choice(CHEATS)(rng) if client is crook else {}))
    liar = rng.choice([None, *HOLDERS])
    for holder in HOLDERS:
        struck = toy.strikes(holder)
        assert set(struck) <= {crook.name} if crook else not struck
        for name in struck:
            verdict = toy.court.judge(toy.complaint(holder, name))
            assert verdict.member == name and verdict.reason in {Reason.BAD_BOX, Reason.CROOKED_SHARE}
        if holder is liar:
            victim = rng.choice([name for name in NAMES if name not in struck])
            secret = rng.choice([None, rng.randbytes(32)])
            lie = Verdict(holder.name, Reason.FALSE_COMPLAINT)
            assert toy.court.judge(toy.complaint(holder, victim, secret)) == lie
    assert crook is None or any(crook.name in toy.strikes(holder) for holder in HOLDERS)


def test_in_random_rounds_nobody_honest_is_named():
    for seed in range(150):
        check_random_round(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, 11))
def test_in_ten_thousand_random_rounds_nobody_honest_is_named(part):
    for seed in range(1_000 * part, 1_000 * (part + 1)):
        check_random_round(seed)


@pytest.fixture
def toy():
    made = ToyRound(random.Random(1))
    for client in CLIENTS:
        made.send(client, **(one_coefficient(random.Random(2)) if client is CLIENTS[1] else {}))
    return made


def test_complaints_travel_with_the_heads_of_all_keys(toy):
    (holder,) = (holder for holder in HOLDERS if toy.strikes(holder))
    complaint = toy.complaint(holder, "client-2")
    parts = complaint_parts(toy.keys.heads, [complaint])
    assert read_complaints(parts, len(NAMES)) == [complaint]
    court = Court.from_parts(toy.spec, COHORT, InsecureToyBoxes(), parts)
    assert court.judge(complaint) == Verdict("client-2", Reason.CROOKED_SHARE)
    assert complaint_parts(toy.keys.heads, []) == {} and read_complaints({}, 3) == []


def test_complaints_that_are_too_long_together_are_left_out(toy, monkeypatch):
    complaint = toy.complaint(HOLDERS[0], "client-1")
    monkeypatch.setattr("fednode.protocol.complaints._MOST_COMPLAINTS", 2 * len(complaint.to_bytes()))
    assert len(read_complaints(complaint_parts(toy.keys.heads, [complaint] * 3), 3)) == 2


@pytest.mark.parametrize("data", [b"", b"junk", bytes(4)], ids=len)
def test_bytes_that_are_no_complaint_are_refused(data):
    assert reason_of(Complaint.from_bytes, data, 3) == "malformed"


def test_more_complaints_than_clients_are_refused_before_they_are_parsed(toy):
    parts = complaint_parts(toy.keys.heads, [toy.complaint(HOLDERS[0], "client-1")] * 4)
    assert reason_of(read_complaints, parts, 3) == "malformed"
