"""Rosters that hide nobody: of one, of nobody, with repeats, of strangers, of Sybils, of holders.

Attacker: a lying node with its own enrolment keys and members; it sees every sealed update and every answer. Success:
any holder answers for such a roster, or any member accepts the node's list of members. It fails at every holder, before
anything is recorded. Control: the holders answer for the honest roster; without their check, a roster of one opens one
client's update.
"""

from dataclasses import replace

import numpy as np
from kit.cohort import TASK
from kit.crypto.attacker import MOST, LyingNode, reason_of

from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.requests import TaskCard, ask_frame, spec_frame
from fednode.protocol.spec import KEY_CHECK_ROUND
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_crypto.identity import SigningKey


def must_be_refused(node: LyingNode, heads: list[Signed], reason: str) -> None:
    for holder in node.holders:
        before = node.cohort.folder(holder).audit_log.entries()
        assert reason_of(node.cohort, holder, node.frame(heads)) == reason
        assert node.cohort.folder(holder).audit_log.entries() == before


def sybils(node: LyingNode, count: int, root: SigningKey) -> list[KeyFolder]:
    folder = node.cohort.root / "sybils"
    return [KeyFolder.create(folder / f"sybil-{n}", f"sybil-{n}", root.public) for n in range(count)]


def head_by(folder: KeyFolder, node: LyingNode, body: bytes = b"sealed") -> Signed:
    return folder.signer.write("update", Topic(TASK, node.spec.round, node.spec.digest()), body).signed


def test_of_one_or_of_nobody(node):
    must_be_refused(node, node.heads(["client-1"]), "min-survivors")
    must_be_refused(node, node.heads(["client-1", "client-2"]), "min-survivors")
    must_be_refused(node, [], "min-survivors")


def test_of_one_client_many_times(node):
    must_be_refused(node, node.heads(["client-1"] * 4), "repeated")
    second = head_by(node.cohort.folder("client-1"), node, b"another")
    must_be_refused(node, [*node.heads(node.names[:-1]), second], "repeated")
    # one more than the sum has room for: refused before any is looked at
    for heads in (node.heads([*node.names, "client-1"]), [*node.heads(node.names), second]):
        must_be_refused(node, heads, "too-many")


def test_of_strangers_and_sybils(node):
    crowd = [head_by(folder, node) for folder in sybils(node, 3, SigningKey.generate())]
    must_be_refused(node, [*node.heads(["client-1"]), *crowd], "stranger")
    borrowed = [
        Signed(replace(one.head, sender=name), one.signature) for one, name in zip(crowd, node.names, strict=False)
    ]
    must_be_refused(node, [*node.heads(["client-1"]), *borrowed[1:]], "bad-signature")


def test_of_holders(node):
    insiders = [head_by(node.cohort.folder(name), node) for name in node.holders[:3]]
    must_be_refused(node, [*node.heads(["client-1"]), *insiders], "stranger")


def test_a_list_of_members_that_the_node_enrolled(node):
    root = SigningKey.generate()
    crowd = [folder.member("client") for folder in sybils(node, 4, root)]
    members = [m for m in node.cohort.cohort.members if m.name not in node.names[1:]]
    cohort = Cohort.enrol([*members, *crowd], root, node.cohort.cohort.node)
    for claimed in (cohort, replace(cohort, signature=node.cohort.cohort.signature)):
        for task in (TASK, "task-2"):
            kind = "task" if node.cohort.scheme.boxed else "key-commit"
            frame = ask_frame(kind, task, TaskCard(task, claimed, node.spec.sum_params).parts())
            for name in node.holders:
                assert reason_of(node.cohort, name, frame) == "unknown-cohort"
            to_client = ask_frame("task", task, TaskCard(task, claimed, node.spec.sum_params).parts())
            assert reason_of(node.cohort, "client-1", to_client) == "unknown-cohort"


def test_round_zero_opens_nothing_under_ring(ring):
    """Round 0 tests a joint key: `ring` has none, and the floors hold in it too."""
    zero = replace(ring.spec, round=KEY_CHECK_ROUND)
    topic = Topic(TASK, KEY_CHECK_ROUND, zero.digest())
    folders = [ring.cohort.folder(name) for name in ring.holders]
    insiders = [folder.signer.write("update", topic, b"x").signed for folder in folders]
    for holder in ring.holders:
        assert reason_of(ring.cohort, holder, spec_frame("key-check", zero)) == "unknown-task"
        assert reason_of(ring.cohort, holder, ring.frame(insiders, spec=zero)) == "not-confirmed"
        assert reason_of(ring.cohort, holder, ring.frame(ring.heads(ring.names), spec=zero)) == "stranger"


def test_control_the_honest_roster_is_opened(node):
    answers = node.answers(node.names, node.sum_of(node.names).request())
    assert np.array_equal(node.combined(node.names, answers), node.cohort.sum_of(node.names))


def test_control_without_the_check_a_roster_of_one_is_that_clients_update(node, monkeypatch):
    monkeypatch.setattr("fednode_clients.holder.holder.check_roster", lambda *_: None)
    answers = node.answers(["client-1"], node.sum_of(["client-1"]).request())
    assert np.array_equal(node.combined(["client-1"], answers), node.cohort.plain["client-1"])


def test_what_the_node_signs_itself_is_no_envelope_of_a_member(node):
    forged = Envelope.from_bytes(node.updates["client-1"].to_bytes(), MOST, MOST)
    by_node = Signed(forged.head, SigningKey.generate().sign(b"envelope", forged.head.to_bytes()))
    must_be_refused(node, [by_node, *node.heads(node.names[1:])], "bad-signature")
