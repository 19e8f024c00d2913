"""Things under another name: holders' keys exchanged by the node, the update of A sent as B's, boxes exchanged.

Attacker: a lying node, or whoever carries the messages, with box keys of its own and every signed message; for the
copied update also an enrolled client B. Success: a client boxes a share for a key that is not its holder's; or an
update counts under another name; or a box opens for whom it was not made. It fails at the first honest member that
looks: keys carry their holder's signature and their round, updates their client's, boxes their round, client, holder
and point. Control: with the check of the signature taken out, a client boxes for the node's key, and the node opens
the box; and a sum of raw payloads does count a copied one, when its mask comes with it.
"""

from dataclasses import replace

import numpy as np
import pytest
from kit import cohort as kit
from kit.cohort import TASK, opened_sum
from kit.crypto.attacker import LyingNode, envelope, lying_node, must_refuse, real_cohort, reason_of
from kit.crypto.committee import CONTEXT, BoxedCommittee, updates_for
from kit.history.judging import judge

from fednode.protocol.boxkeys import BoxKeys, box_context, box_name
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Envelope, Signed, Signer, Topic
from fednode.protocol.requests import TaskCard, ask_frame, key_request, roster_part, spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.wire import join_parts
from fednode_crypto import Demand, Tampered, plan, scheme
from fednode_crypto.encoding import from_bytes
from fednode_crypto.identity import BoxKey, SigningKey, open_box
from fednode_crypto.ring.context import ring_context


@pytest.fixture
def node(tmp_path):
    return lying_node(real_cohort(tmp_path))


def next_round(node: LyingNode, parts: dict[str, bytes]) -> RoundSpec:
    """An honest spec of a later round, except that it names these keys."""
    keys = BoxKeys.from_parts(parts, node.cohort.cohort)
    return replace(node.spec, round=node.spec.round + 1, key_digest=keys.digest())


def fresh_keys(node: LyingNode) -> dict[str, bytes]:
    found = {}
    for holder in node.cohort.cohort.holders:
        request = kit.Request("query", "keys", key_request(TASK, node.spec.round + 1))
        found[f"box-key-{holder.point}"] = node.cohort.speak(holder.name, request)
    return found


def judged(node: LyingNode, parts: dict[str, bytes]):
    spec = next_round(node, parts)
    return judge(node.cohort.client("client-1"), spec, parts)


# --- holders' keys


def of_the_nodes_making(node: LyingNode, signer: Signer, key: BoxKey | None = None) -> bytes:
    mine = key or BoxKey.generate()
    return signer.write("box-key", Topic(TASK, node.spec.round + 1), mine.public.raw).to_bytes()


def test_the_honest_keys_of_the_next_round_are_taken(node):
    assert judged(node, fresh_keys(node)) is None


def test_a_key_that_its_holder_did_not_sign_for_this_round(node):
    good = fresh_keys(node)
    as_holder = Signer("holder-2", SigningKey.generate())
    outsider = Signer("holder-9", SigningKey.generate())
    client = node.cohort.folder("client-2").signer
    last = node.parts["box-key-2"]
    stolen = Envelope.from_bytes(good["box-key-2"], 32)
    renamed = replace(stolen, signed=Signed(replace(stolen.head, sender="holder-3"), stolen.signed.signature))
    cases = {
        "the node's, as holder 2": (of_the_nodes_making(node, as_holder), "bad-signature"),
        "a stranger's": (of_the_nodes_making(node, outsider), "stranger"),
        "a client's": (of_the_nodes_making(node, client), "bad-box-key"),
        "last round's": (last, "bad-box-key"),
        "another holder's": (good["box-key-3"], "bad-box-key"),
        "another holder's name": (renamed.to_bytes(), "bad-signature"),
        "another key in the same envelope": (replace(stolen, body=BoxKey.generate().public.raw).to_bytes(), "damaged"),
    }
    for part, reason in cases.values():
        must_refuse(lambda bad=part: judged(node, {**good, "box-key-2": bad}), reason)


def test_keys_other_than_those_that_the_spec_names(node):
    good = fresh_keys(node)
    spec, client = next_round(node, good), node.cohort.client("client-1")
    for shown in (node.parts, {k: v for k, v in good.items() if k != "box-key-5"}, {}):
        must_refuse(lambda parts=shown: judge(client, spec, parts), "bad-box-key")
    few = {name: good[name] for name in ("box-key-1", "box-key-2", "box-key-3")}
    must_refuse(lambda: judged(node, few), "bad-box-key")


def test_control_unchecked_a_client_boxes_for_the_nodes_key(node, monkeypatch):
    mine, parts = BoxKey.generate(), fresh_keys(node)
    parts["box-key-2"] = of_the_nodes_making(node, Signer("holder-2", SigningKey.generate()), mine)
    monkeypatch.setattr(Signed, "verified", lambda signed, cohort: cohort.member(signed.head.sender))
    assert judged(node, parts) is None
    spec = next_round(node, parts)
    node.cohort.speaking = "client-1"
    sum_of_one = kit.FakeSum(node.cohort.learned["client-1"], node.cohort.size.records)
    update = envelope(node.cohort.client("client-1").answer(spec, sum_of_one))
    holder = node.cohort.cohort.member("holder-2")
    share = open_box(mine, update.attached[box_name(2)], box_context(spec.digest(), "client-1", holder))
    assert len(share) == spec.sum_params.share_bytes


def test_exchanged_identity_keys_in_the_list_of_members(node):
    members = {m.name: m for m in node.cohort.cohort.members}
    one, two = members["holder-1"], members["holder-2"]
    for changed in (
        {"holder-1": replace(one, box_key=two.box_key), "holder-2": replace(two, box_key=one.box_key)},
        {"holder-1": replace(one, verify_key=two.verify_key), "holder-2": replace(two, verify_key=one.verify_key)},
        {"holder-1": replace(one, point=2), "holder-2": replace(two, point=1)},
        {"holder-1": replace(one, box_key=BoxKey.generate().public)},
    ):
        listed = tuple((members | changed).values())
        for cohort in (
            Cohort(tuple(sorted(listed, key=lambda m: m.name)), node.cohort.cohort.signature),
            Cohort.enrol(listed, SigningKey.generate()),
        ):
            frame = ask_frame("task", "task-2", TaskCard("task-2", cohort, node.spec.sum_params).parts())
            for name in ("client-1", "holder-1", "holder-3"):
                assert reason_of(node.cohort, name, frame) == "unknown-cohort"


# --- the update of A as B's


def as_another(node: LyingNode, owner: str, thief: str) -> Envelope:
    """What an enrolled thief signs: the payload and the boxes of somebody else."""
    update = node.updates[owner]
    topic = Topic(TASK, node.spec.round, node.spec.digest())
    return node.cohort.folder(thief).signer.write("update", topic, update.body, attached=update.attached)


def test_a_copied_update_with_its_boxes_is_struck_from_the_roster(tmp_path):
    """B sends what A sent, in its own name: no box of A's opens as B's, so the holders name B."""
    cohort = real_cohort(tmp_path)

    def copying(cohort, name, request):
        told = envelope(cohort.said["client-1", "round"][-1])
        topic = Topic(told.head.task, told.head.round, told.head.spec)
        return [cohort.folder(name).signer.write("update", topic, told.body, attached=told.attached).to_bytes()]

    cohort.tell("client-4", copying)
    outcome = cohort.begun().run_round(1)
    assert outcome.cause == "" and outcome.rejected == (("client-4", "bad-box"),)
    assert np.array_equal(opened_sum(outcome.release.mean, cohort.size.terms()), cohort.sum_of(outcome.survivors))


def test_a_copied_payload_with_boxes_of_ones_own_does_not_open(tmp_path):
    """B has A's payload and not A's secret: whatever it boxes, the sum is junk, and nothing is published."""
    cohort = real_cohort(tmp_path)

    def copying(cohort, name, request):
        told, own = envelope(cohort.said["client-1", "round"][-1]), envelope(cohort.speak(name, request))
        topic = Topic(told.head.task, told.head.round, told.head.spec)
        return [cohort.folder(name).signer.write("update", topic, told.body, attached=own.attached).to_bytes()]

    cohort.tell("client-4", copying)
    outcome = cohort.begun().run_round(1)
    assert (outcome.cause, outcome.release) == ("opening-rejected", None)


def test_an_update_that_another_signed_is_rejected(tmp_path):
    cohort = real_cohort(tmp_path)
    cohort.tell("client-4", kit.borrowing("client-1"))
    outcome = cohort.begun().run_round(1)
    assert outcome.cause == "" and outcome.rejected == (("client-4", "stranger"),)


def test_a_head_of_a_is_not_taken_as_bs(node):
    signed = node.updates["client-1"].signed
    renamed = Signed(replace(signed.head, sender="client-2"), signed.signature)
    roster = [renamed, *node.heads(["client-3", "client-4", "client-5"])]
    assert {reason_of(node.cohort, h, node.frame(roster)) for h in node.cohort.size.holder_names} == {"bad-signature"}


def test_control_a_payload_counts_twice_where_its_mask_comes_twice():
    params = plan("ring", Demand(dimension=60, summands=4, value_bound=9_000, holders=3, threshold=2))
    everyone, updates = BoxedCommittee(scheme("ring"), params), updates_for(params, 4, seed=8)[:2]
    sealings = everyone.sealed(updates)
    assert np.array_equal(everyone.opened([*sealings, sealings[0]]), 2 * updates[0] + updates[1])
    total = everyone.summed([*sealings, sealings[0]])
    with pytest.raises(Tampered):
        everyone.scheme.combine(params, total, everyone.answers(total, [*sealings, sealings[1]]), CONTEXT)


# --- boxes


def boxes_frame(node: LyingNode, boxes: dict[str, bytes], heads=None) -> bytes:
    roster = roster_part(heads or node.heads(node.names))
    return spec_frame("boxes", node.spec, {"roster": roster, "boxes": join_parts(boxes)})


def test_exchanged_boxes_are_refused_and_name_no_client(node):
    mine = {name: node.updates[name].attached["box-1"] for name in node.names}
    theirs = {name: node.updates[name].attached["box-2"] for name in node.names}
    first, second = node.names[:2]
    for bad in (
        {**mine, first: mine[second], second: mine[first]},
        {**mine, first: theirs[first]},
        {**mine, first: b""},
        {name: box for name, box in mine.items() if name != first},
        theirs,
    ):
        assert reason_of(node.cohort, "holder-1", boxes_frame(node, bad)) == "bad-request"
    assert reason_of(node.cohort, "holder-1", boxes_frame(node, mine)) == ""


def test_a_box_opens_for_its_round_client_holder_and_point_only(node):
    holder, update = node.cohort.cohort.member("holder-1"), node.updates["client-1"]
    key = node.cohort.holder("holder-1")._boxes._current(node.spec)
    box, spec = update.attached["box-1"], node.spec.digest()
    share = open_box(key, box, box_context(spec, "client-1", holder))
    assert from_bytes(share, ring_context(node.spec.sum_params).shares).shape == (1, 4096)
    other = node.cohort.cohort.member("holder-2")
    for context in (
        box_context(bytes(32), "client-1", holder),
        box_context(spec, "client-2", holder),
        box_context(spec, "client-1", other),
        box_context(spec, "client-1", replace(holder, point=2)),
        b"",
    ):
        with pytest.raises(Tampered):
            open_box(key, box, context)
    with pytest.raises(Tampered):
        open_box(node.cohort.holder("holder-2")._boxes._current(node.spec), box, box_context(spec, "client-1", holder))


def test_a_thief_gains_nothing_with_the_whole_envelope(node):
    stolen = as_another(node, "client-1", "client-2")
    heads = [stolen.signed, *node.heads(["client-1", "client-3", "client-4"])]
    boxes = {name: node.updates[name].attached["box-1"] for name in ("client-1", "client-3", "client-4")}
    frame = boxes_frame(node, {**boxes, "client-2": stolen.attached["box-1"]}, heads)
    said = envelope(node.cohort.speak("holder-1", kit.Request("query", "t", frame)))
    assert said.head.kind == "checked" and b'"client-2"' in said.body and b'"client-1"' not in said.body
    assert reason_of(node.cohort, "holder-1", node.frame(heads)) == "not-confirmed"
    node.updates["client-2"] = stolen
    for holder in node.cohort.size.holder_names:
        node.corrupt_confirm(holder, ["client-2", "client-1", "client-3", "client-4"])
    assert reason_of(node.cohort, "holder-1", node.frame(heads)) == "bad-request"
