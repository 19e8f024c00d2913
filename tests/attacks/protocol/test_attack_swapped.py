"""Swaps: the node exchanges holders' keys, B sends the update of A, boxes are exchanged.

Attacker: a lying node, or the carrier of the messages, with its own box keys and every signed message; for the copied
update also an enrolled client B. Success: a client boxes a share for another key than its holder's, an update counts
under another name, or a box opens for another party. It fails at the first honest member: keys are signed by their
holder for a round, updates by their client, and boxes are bound to round, client, holder and point. Control: without
the signature check a client boxes for the node's key; a raw payload counts twice when its mask comes twice.
"""

from dataclasses import replace

import numpy as np
import pytest
from kit import cohort as kit
from kit.cohort import TASK, opened_sum
from kit.crypto.attacker import LyingNode, asked, envelope, must_refuse, real_cohort, reason_of
from kit.crypto.committee import CONTEXT, BoxedCommittee, updates_for
from kit.history.judging import judge

from fednode.protocol.boxkeys import (
    BOX_KEY,
    ClientKey,
    ClientKeys,
    HolderKeys,
    about_keys,
    box_context,
    box_name,
    key_tree,
)
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Signed, Signer, Topic, about_check
from fednode.protocol.requests import TaskCard, ask_frame, key_request, roster_part, spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.wire import join_parts
from fednode_crypto import Demand, Tampered, plan, scheme
from fednode_crypto.encoding import from_bytes
from fednode_crypto.identity import BoxKey, SigningKey, open_box
from fednode_crypto.ring.context import ring_context


def next_round(node: LyingNode, parts: dict[str, bytes]) -> RoundSpec:
    """An honest spec of a later round, except that it names these keys."""
    keys = ClientKeys.from_parts(parts, node.cohort.cohort)
    return replace(node.spec, round=node.spec.round + 1, key_digest=keys.digest())


def fresh_keys(node: LyingNode, index: int = 0) -> dict[str, bytes]:
    """The honest keys of the next round for one client, the first."""
    request = kit.Request("query", "keys", key_request(TASK, node.spec.round + 1))
    cohort, topic = node.cohort.cohort, Topic(TASK, node.spec.round + 1)
    told = {h.point: envelope(node.cohort.speak(h.name, request)) for h in cohort.holders}
    return {
        f"box-key-{point}": HolderKeys.verified(one, cohort, point, topic).of(index).to_bytes()
        for point, one in told.items()
    }


def judged(node: LyingNode, parts: dict[str, bytes]):
    spec = next_round(node, parts)
    return judge(node.cohort.client("client-1"), spec, parts)


# --- holders' keys


def of_the_nodes_making(node: LyingNode, signer: Signer, key: BoxKey | None = None) -> bytes:
    keys = [(key or BoxKey.generate()).public.raw] * len(node.names)
    tree = key_tree(keys)
    signed = signer.write(BOX_KEY, Topic(TASK, node.spec.round + 1), b"", about_keys(tree)).signed
    return HolderKeys(signed, tuple(keys), tree).of(0).to_bytes()


def test_the_honest_keys_of_the_next_round_are_taken(ring):
    assert judged(ring, fresh_keys(ring)) is None


def test_a_key_that_its_holder_did_not_sign_for_this_round(ring):
    good = fresh_keys(ring)
    as_holder = Signer("holder-2", SigningKey.generate())
    outsider = Signer("holder-9", SigningKey.generate())
    client = ring.cohort.folder("client-2").signer
    last = ring.parts["box-key-2"]
    stolen = ClientKey.from_bytes(good["box-key-2"], len(ring.names))
    renamed = replace(stolen, signed=Signed(replace(stolen.signed.head, sender="holder-3"), stolen.signed.signature))
    cases = {
        "the node's, as holder 2": (of_the_nodes_making(ring, as_holder), "bad-signature"),
        "a stranger's": (of_the_nodes_making(ring, outsider), "stranger"),
        "a client's": (of_the_nodes_making(ring, client), "bad-box-key"),
        "last round's": (last, "bad-box-key"),
        "another holder's": (good["box-key-3"], "bad-box-key"),
        "another holder's name": (renamed.to_bytes(), "bad-signature"),
        "another key under the same root": (
            replace(stolen, key=BoxKey.generate().public.raw).to_bytes(),
            "bad-box-key",
        ),
        "another client's": (fresh_keys(ring, 1)["box-key-2"], "bad-box-key"),
        "another path": (replace(stolen, path=stolen.path[32:] + stolen.path[:32]).to_bytes(), "bad-box-key"),
    }
    for part, reason in cases.values():
        must_refuse(lambda bad=part: judged(ring, {**good, "box-key-2": bad}), reason)


def test_keys_other_than_those_that_the_spec_names(ring):
    good = fresh_keys(ring)
    spec, client = next_round(ring, good), ring.cohort.client("client-1")
    for shown in (ring.parts, {k: v for k, v in good.items() if k != "box-key-5"}, {}):
        must_refuse(lambda parts=shown: judge(client, spec, parts), "bad-box-key")
    few = {name: good[name] for name in ("box-key-1", "box-key-2", "box-key-3")}
    must_refuse(lambda: judged(ring, few), "bad-box-key")


def test_control_unchecked_a_client_boxes_for_the_nodes_key(ring, monkeypatch):
    mine, parts = BoxKey.generate(), fresh_keys(ring)
    parts["box-key-2"] = of_the_nodes_making(ring, Signer("holder-2", SigningKey.generate()), mine)
    monkeypatch.setattr(Signed, "verified", lambda signed, cohort: cohort.member(signed.head.sender))
    assert judged(ring, parts) is None
    spec = next_round(ring, parts)
    ring.cohort.speaking = "client-1"
    update = envelope(ring.cohort.client("client-1").answer(spec, lambda: ring.learned("client-1")))
    holder = ring.cohort.cohort.member("holder-2")
    share = open_box(mine, update.attached[box_name(2)], box_context(spec.digest(), "client-1", holder))
    assert len(share) == spec.sum_params.share_bytes


def test_exchanged_identity_keys_in_the_list_of_members(ring):
    members = {m.name: m for m in ring.cohort.cohort.members}
    one, two = members["holder-1"], members["holder-2"]
    for changed in (
        {"holder-1": replace(one, box_key=two.box_key), "holder-2": replace(two, box_key=one.box_key)},
        {"holder-1": replace(one, verify_key=two.verify_key), "holder-2": replace(two, verify_key=one.verify_key)},
        {"holder-1": replace(one, point=2), "holder-2": replace(two, point=1)},
        {"holder-1": replace(one, box_key=BoxKey.generate().public)},
    ):
        listed = tuple((members | changed).values())
        another = Cohort.enrol(listed, SigningKey.generate(), ring.cohort.cohort.node)
        for cohort in (replace(another, signature=ring.cohort.cohort.signature), another):
            frame = ask_frame("task", "task-2", TaskCard("task-2", cohort, ring.spec.sum_params).parts())
            for name in ("client-1", "holder-1", "holder-3"):
                assert reason_of(ring.cohort, name, frame) == "unknown-cohort"


# --- the update of A as B's


def copying(*, boxes: bool):
    """B signs what A sent as its own, with A's boxes or with its own."""

    def conduct(cohort, name, request):
        theirs, own = envelope(cohort.said["client-1", "round"][-1]), envelope(cohort.speak(name, request))
        topic = Topic(theirs.head.task, theirs.head.round, theirs.head.spec)
        shared = theirs if boxes else own
        about = about_check(shared.head.check())
        return [cohort.folder(name).signer.write("update", topic, theirs.body, about, shared.attached).to_bytes()]

    return conduct


def test_a_copied_update_with_its_boxes_is_excluded_from_the_roster(tmp_path):
    """No box of A opens as B's, so the holders name B."""
    cohort = real_cohort(tmp_path)
    cohort.tell("client-4", copying(boxes=True))
    outcome = cohort.begun().run_round(1)
    assert outcome.cause == "" and outcome.rejected == (("client-4", "bad-box"),)
    assert np.array_equal(opened_sum(outcome.release.mean, cohort.size.terms()), cohort.sum_of(outcome.survivors))


def test_a_copied_payload_with_boxes_of_ones_own_does_not_open(tmp_path):
    """B lacks A's secret: the sum is junk, and nothing is published."""
    cohort = real_cohort(tmp_path)
    cohort.tell("client-4", copying(boxes=False))
    outcome = cohort.begun().run_round(1)
    assert (outcome.cause, outcome.release) == ("opening-rejected", None)


def test_an_update_that_another_signed_is_rejected(tmp_path):
    cohort = real_cohort(tmp_path)
    cohort.tell("client-4", kit.borrowing("client-1"))
    outcome = cohort.begun().run_round(1)
    assert outcome.cause == "" and outcome.rejected == (("client-4", "stranger"),)


def test_a_head_of_a_is_not_taken_as_bs(ring):
    signed = ring.updates["client-1"].signed
    renamed = Signed(replace(signed.head, sender="client-2"), signed.signature)
    roster = [renamed, *ring.heads(["client-3", "client-4", "client-5"])]
    assert {reason_of(ring.cohort, h, ring.frame(roster)) for h in ring.holders} == {"bad-signature"}


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


def test_exchanged_boxes_are_refused_and_name_no_client(ring):
    mine = {name: ring.updates[name].attached["box-1"] for name in ring.names}
    theirs = {name: ring.updates[name].attached["box-2"] for name in ring.names}
    first, second = ring.names[:2]
    for bad in (
        {**mine, first: mine[second], second: mine[first]},
        {**mine, first: theirs[first]},
        {**mine, first: b""},
        {name: box for name, box in mine.items() if name != first},
        theirs,
    ):
        assert reason_of(ring.cohort, "holder-1", boxes_frame(ring, bad)) == "bad-request"
    assert reason_of(ring.cohort, "holder-1", boxes_frame(ring, mine)) == ""


def test_a_box_opens_for_its_round_client_holder_and_point_only(ring):
    holder, update = ring.cohort.cohort.member("holder-1"), ring.updates["client-1"]
    key = ring.cohort.holder("holder-1")._boxes._current(ring.spec).key(0)
    box, spec = update.attached["box-1"], ring.spec.digest()
    share = open_box(key, box, box_context(spec, "client-1", holder))
    params = ring.spec.sum_params
    assert from_bytes(share, ring_context(params).masked).shape == (1, 4096 + params.check_rows)
    other = ring.cohort.cohort.member("holder-2")
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
        open_box(
            ring.cohort.holder("holder-2")._boxes._current(ring.spec).key(0), box, box_context(spec, "client-1", holder)
        )
    second = ring.cohort.holder("holder-1")._boxes._current(ring.spec).key(1)
    with pytest.raises(Tampered):
        open_box(second, box, box_context(spec, "client-1", holder))


def test_a_thief_gains_nothing_with_the_whole_envelope(ring):
    update, topic = ring.updates["client-1"], Topic(TASK, ring.spec.round, ring.spec.digest())
    stolen = ring.cohort.folder("client-2").signer.write("update", topic, update.body, attached=update.attached)
    heads = [stolen.signed, *ring.heads(["client-1", "client-3", "client-4"])]
    boxes = {name: ring.updates[name].attached["box-1"] for name in ("client-1", "client-3", "client-4")}
    frame = boxes_frame(ring, {**boxes, "client-2": stolen.attached["box-1"]}, heads)
    said = asked(ring.cohort, "holder-1", frame)
    assert said.head.kind == "checked" and b'"client-2"' in said.body and b'"client-1"' not in said.body
    assert reason_of(ring.cohort, "holder-1", ring.frame(heads)) == "not-confirmed"
    ring.updates["client-2"] = stolen
    for holder in ring.holders:
        ring.corrupt_confirm(holder, ["client-2", "client-1", "client-3", "client-4"])
    assert reason_of(ring.cohort, "holder-1", ring.frame(heads)) == "bad-request"
