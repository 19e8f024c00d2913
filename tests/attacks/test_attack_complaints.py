"""Crooked boxes, and complaints about good ones.

Attacker: an enrolled client that spoils its boxes, a corrupt holder that strikes honest clients, or a lying node with
such a holder. Success: a crooked share is found only after the charge, or somebody honest is named or excluded. It
fails: a holder that strikes shows the key of that box, and the node and every other holder judge it before the charge.
Control: a node that believes complaints excludes whom one holder likes; without the check of shares a crooked one costs
the charge.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit import cohort as kit
from kit.cohort import check_released, last_asked, refusal
from kit.crypto.attacker import RING, envelope, real_cohort
from kit.crypto.crooked import CHEATS, another_secret, complaining, crooked, key_of
from kit.marks import MARKED

from fednode.protocol.boxkeys import BOX_KEY, HolderKeys, about_keys, key_tree
from fednode.protocol.complaints import Complaint, Court, Verdict, complaint_parts, read_complaints
from fednode.protocol.envelope import Topic
from fednode.protocol.requests import read_roster, read_spec, spec_frame
from fednode.reasons import Reason
from fednode_crypto.identity import BoxKey
from fednode_crypto.ring import share_check


@pytest.fixture
def cohort(tmp_path):
    return real_cohort(tmp_path, RING)


def holders_asked(cohort, kind):
    return {name for name, _ in cohort.asked(kind)}


@pytest.mark.parametrize(("cheat", "reason"), CHEATS.values(), ids=CHEATS)
def test_a_client_whose_boxes_are_wrong_is_named_before_the_charge(cohort, cheat, reason):
    cohort.tell("client-2", cheat)
    node = cohort.node()
    outcome = check_released(cohort, cohort.begun(node).run_round(1), {"client-2"})
    assert (outcome.rejected, outcome.silent) == ((("client-2", reason),), ())
    assert len(outcome.answered) == 5
    (entry,) = node.ledger.entries
    assert entry.charge.survivors == outcome.survivors
    spec, parts = read_spec("confirm", last_asked(cohort, "confirm"))
    (complaint,) = read_complaints(parts, 5)
    court = Court.from_parts(spec, cohort.cohort, cohort.scheme, parts)
    assert court.judge(complaint) == Verdict("client-2", Reason(reason))


@pytest.mark.parametrize("secret", [None, b"k" * 32], ids=["the key of a good box", "another key"])
def test_a_holder_that_strikes_an_honest_client_is_named_and_out_of_the_round(cohort, secret):
    cohort.tell("holder-3", complaining("client-1", secret), "boxes")
    node = cohort.node()
    outcome = check_released(cohort, cohort.begun(node).run_round(1))
    assert outcome.silent == (("holder-3", "false-complaint"),) and outcome.rejected == ()
    assert len(node.ledger.entries[0].charge.survivors) == 5
    for kind in ("confirm", "open"):
        assert holders_asked(cohort, kind) == set(cohort.size.holder_names) - {"holder-3"}


@pytest.mark.parametrize("first", ["lie", "truth"])
def test_a_false_complaint_is_not_taken_back(cohort, first):
    def both(cohort, name, request):
        lie, truth = complaining("client-1")(cohort, name, request), kit.honest(cohort, name, request)
        return [*lie, *truth] if first == "lie" else [*truth, *lie]

    cohort.tell("holder-3", both, "boxes")
    outcome = check_released(cohort, cohort.begun().run_round(1))
    assert outcome.silent == (("holder-3", "false-complaint"),)
    assert "holder-3" not in holders_asked(cohort, "confirm")


def test_too_many_liars_end_the_round_without_a_charge_and_no_client_is_named(cohort):
    for name in ("holder-3", "holder-4"):
        cohort.tell(name, complaining("client-1"), "boxes")
    node = cohort.node()
    outcome = cohort.begun(node).run_round(1)
    assert (outcome.cause, outcome.rejected, node.ledger.entries) == ("too-few-holders", (), ())
    assert set(outcome.silent) == {("holder-3", "false-complaint"), ("holder-4", "false-complaint")}


def conducts():
    crooks = st.dictionaries(st.sampled_from(["client-1", "client-2"]), st.sampled_from(sorted(CHEATS)))
    lies = st.sampled_from([complaining("client-3"), complaining("client-3", b"k" * 32), kit.silent, kit.garbage])
    return st.tuples(crooks, st.dictionaries(st.sampled_from(RING.holder_names), lies, max_size=1))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=conducts())
def test_whoever_cheats_is_named_and_nobody_else(tmp_path_factory, told):
    crooks, liars = told
    cohort = real_cohort(tmp_path_factory.mktemp("round"), RING)
    for client, cheat in crooks.items():
        cohort.tell(client, CHEATS[cheat][0])
    for holder, conduct in liars.items():
        cohort.tell(holder, conduct, "boxes")
    node = cohort.node()
    outcome = cohort.begun(node).run_round(1)
    named = {name for name, reason in outcome.rejected}
    assert named <= set(crooks) and {name for name, _ in outcome.silent} == set(liars)
    # a crooked share that only the absent holder had does no harm
    for client in set(crooks) - named:
        assert liars and CHEATS[crooks[client]][1] != "" and client in outcome.survivors
    check_released(cohort, outcome, named)
    assert node.ledger.entries[0].charge.survivors == outcome.survivors


# --- a lying node: holders judge what it shows


@pytest.fixture
def struck(cohort):
    """A round in which holders 1 and 2 confirmed nothing yet: the request, its complaint, and what comes with it."""
    cohort.tell("client-2", crooked(another_secret(3)))
    for name in cohort.size.holder_names:
        cohort.tell(name, kit.silent, "confirm")
        cohort.tell(name, kit.silent, "close")
    cohort.begun().run_round(1)
    spec, parts = read_spec("confirm", last_asked(cohort, "confirm"))
    return cohort, spec, parts


def asked_with(struck, change=lambda one: one, **parts):
    """Why holder 1 refuses to confirm with this complaint; "answered" if it does not."""
    cohort, spec, honest = struck
    court = Court.from_parts(spec, cohort.cohort, cohort.scheme, honest)
    (complaint,) = read_complaints(honest, 5)
    given = {**honest, **complaint_parts(court.heads, [change(complaint)]), **parts}
    try:
        return refusal(cohort, "holder-1", spec_frame("confirm", spec, given))
    except AssertionError:
        return "answered"


def test_a_true_complaint_is_confirmed(struck):
    assert asked_with(struck) == "answered"


def test_no_holder_confirms_a_roster_with_a_client_that_is_shown_to_be_wrong(struck):
    cohort, _, honest = struck
    _, boxes = read_spec("boxes", last_asked(cohort, "boxes"))
    assert len(read_roster(boxes["roster"])) == 5 and len(read_roster(honest["roster"])) == 4
    assert asked_with(struck, roster=boxes["roster"]) == "crooked-share"


def false_complaint(struck):
    """Of holder 3, which is honest here, about a good box."""
    cohort, spec, _ = struck
    box, secret = boxed(cohort)["client-1"], key_of(cohort, "holder-3", spec, "client-1")
    return Complaint(box.signed, box.attached["box-3"], kit_keys(cohort, "holder-3", spec).of(0), secret)


def test_no_holder_confirms_on_a_false_complaint(struck):
    false = false_complaint(struck)
    assert asked_with(struck, lambda _: false) == "bad-request"
    assert asked_with(struck, lambda _: replace(false, secret=b"k" * 32)) == "bad-request"


def test_a_complaint_that_the_node_made_up_frames_no_holder(struck):
    """Control: by the verdict alone, holder 3 would be the liar, over the signature of holder 1."""
    cohort, spec, honest = struck
    forged = replace(false_complaint(struck), secret=b"k" * 32)
    court = Court.from_parts(spec, cohort.cohort, cohort.scheme, honest)
    assert court.judge(forged) == Verdict("holder-3", Reason.FALSE_COMPLAINT)
    frame = spec_frame("confirm", spec, {**MARKED, **honest, **complaint_parts(court.heads, [forged])})
    said = envelope(cohort.speak("holder-1", kit.Request("query", "any", frame)))
    assert (said.head.kind, said.head.sender, said.about.text("reason")) == ("refusal", "holder-1", "bad-request")
    assert "client-1" in said.about.text("detail", 512) and "holder-3" not in said.about.text("detail", 512)


def boxed(cohort):
    return {name: envelope(cohort.said[name, "round"][-1]) for name in ("client-1", "client-3")}


def kit_keys(cohort, holder, spec):
    """The keys that this holder signed for the round."""
    told = envelope(cohort.said[holder, "box-key"][-1])
    point = cohort.cohort.member(holder).point
    return HolderKeys.verified(told, cohort.cohort, point, Topic(spec.task, spec.round))


def test_a_second_set_of_keys_proves_nothing(struck):
    """A corrupt holder signs other keys after the round, under which no client's box opens."""
    cohort, spec, _ = struck
    other = [BoxKey.generate() for _ in range(5)]
    tree = key_tree([key.public.raw for key in other])
    head = cohort.folder("holder-3").signer.write(BOX_KEY, Topic(spec.task, spec.round), b"", about_keys(tree)).signed
    keys = HolderKeys(head, tuple(key.public.raw for key in other), tree)
    victim = boxed(cohort)["client-1"]
    forged = Complaint(victim.signed, victim.attached["box-3"], keys.of(0), other[0].private_bytes())
    assert asked_with(struck, lambda _: forged) == "bad-box-key"
    assert asked_with(struck, lambda _: forged, **{"box-head-3": head.to_bytes()}) == "bad-box-key"


def test_another_box_or_another_client_proves_nothing(struck):
    cohort, _, _ = struck
    victim = boxed(cohort)["client-1"]
    assert asked_with(struck, lambda one: replace(one, box=bytes(len(one.box)))) == "bad-request"
    assert asked_with(struck, lambda one: replace(one, head=victim.signed)) == "bad-box-key"
    swapped = lambda one: replace(one, box=victim.attached["box-3"])  # noqa: E731 - a change, as those above
    assert asked_with(struck, swapped) == "bad-request"
    renamed = replace(victim.signed, head=replace(victim.signed.head, sender="client-2"))
    assert asked_with(struck, lambda one: replace(one, head=renamed)) == "bad-signature"


# --- controls


def test_control_a_node_that_believes_complaints_excludes_whom_one_holder_likes(cohort, monkeypatch):
    monkeypatch.setattr(Court, "judge", lambda _, one: Verdict(one.head.head.sender, Reason.BAD_BOX))
    cohort.tell("holder-3", complaining("client-1"), "boxes")
    outcome = check_released(cohort, cohort.begun().run_round(1), {"client-1"})
    assert outcome.rejected == (("client-1", "bad-box"),) and outcome.silent == ()


def test_control_without_the_check_a_crooked_share_is_found_after_the_charge(cohort, monkeypatch):
    monkeypatch.setattr(share_check, "check_share", lambda *_: None)
    cohort.tell("client-2", crooked(another_secret(3, 4)))
    node = cohort.node()
    outcome = cohort.begun(node).run_round(1)
    assert (outcome.cause, outcome.rejected, len(node.ledger.entries)) == ("opening-rejected", (), 1)
