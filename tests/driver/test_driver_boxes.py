"""Rounds of scheme `ring`: fresh keys, boxes checked before anything is charged, one opening, nothing left to read."""

import numpy as np
import pytest
from kit import cohort as kit
from kit.cohort import FakeCohort, Size, check_released, last_asked, refusal
from kit.history.judging import judge
from kit.marks import MARKED

from fednode.driver.channel import Request
from fednode.driver.driver import Driver
from fednode.errors import PeerFault, TooFewHolders
from fednode.protocol.envelope import Envelope
from fednode.protocol.requests import key_request, read_roster, read_spec, roster_part, spec_frame
from fednode.wire import join_parts, split_parts

SIZE = Size(clients=5, holders=5, threshold=4, dimension=50, scheme="ring")


@pytest.fixture
def cohort(tmp_path):
    return FakeCohort(tmp_path, SIZE)


def test_rounds_are_exact_and_every_holder_answers(cohort):
    driver = cohort.begun()
    for number in (1, 2):
        outcome = check_released(cohort, driver.run_round(number))
        assert len(outcome.answered) == 5 and outcome.silent == () and outcome.rejected == ()
    assert not cohort.asked("key-commit") and len(cohort.asked("box-key")) == 10


def test_a_client_whose_box_does_not_open_is_struck_and_named(cohort):
    cohort.tell("client-2", kit.spoiling_box(3))
    node = cohort.node()
    driver = cohort.begun(node)
    outcome = check_released(cohort, driver.run_round(1), {"client-2"})
    # the client's check answers the boxes that it sealed, so no other share of its fits either
    assert outcome.rejected == (("client-2", "crooked-share"),) and outcome.lost == ()
    (entry,) = node.ledger.entries
    assert entry.charge.survivors == outcome.survivors
    assert entry.charge.event.contributors == 4 - cohort.size.colluders
    cohort.forgive()
    check_released(cohort, driver.run_round(2))


def test_too_many_struck_costs_nothing(tmp_path):
    cohort = FakeCohort(tmp_path, SIZE)
    for name in cohort.size.client_names[:4]:
        cohort.tell(name, kit.spoiling_box(1))
    node = cohort.node()
    outcome = cohort.begun(node).run_round(1)
    assert (outcome.cause, node.ledger.entries, outcome.opened) == ("too-few-survivors", (), False)
    assert {name for name, _ in outcome.rejected} == set(cohort.size.client_names[:4])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("box-key", "no-key"), ("boxes", "no-answer"), ("confirm", "no-answer"), ("open", "no-answer")],
)
def test_one_silent_holder_is_named_and_the_round_goes_on(cohort, kind, reason):
    cohort.tell("holder-4", kit.silent, kind)
    outcome = check_released(cohort, cohort.begun().run_round(1))
    assert outcome.silent == (("holder-4", reason),) and len(outcome.answered) == 4


@pytest.mark.parametrize("kind", ["boxes", "confirm", "open"])
def test_two_silent_holders_end_the_round(cohort, kind):
    for name in ("holder-1", "holder-2"):
        cohort.tell(name, kit.silent, kind)
    node = cohort.node()
    outcome = cohort.begun(node).run_round(1)
    assert outcome.cause == "too-few-holders" and outcome.release is None
    assert len(node.ledger.entries) == (1 if kind == "open" else 0)


def test_without_enough_keys_no_client_is_asked(cohort):
    for name in ("holder-1", "holder-2"):
        cohort.tell(name, kit.silent, "box-key")
    driver = cohort.begun()
    with pytest.raises(TooFewHolders, match="holder-1: no answer; holder-2: no answer"):
        driver.run_round(1)
    assert not cohort.asked("round")


def test_an_opening_that_lies_is_left_out_and_named(cohort):
    cohort.tell("holder-2", kit.wrong_opening, "open")
    outcome = check_released(cohort, cohort.begun().run_round(1))
    assert outcome.silent == (("holder-2", "wrong-answer"),)


@pytest.mark.parametrize("kind", ["box-key", "boxes", "confirm", "open"])
def test_a_holder_that_is_restarted_says_the_same(cohort, kind):
    cohort.tell("holder-1", kit.reborn, kind)
    outcome = check_released(cohort, cohort.begun().run_round(1))
    assert outcome.silent == ()
    first, second = cohort.said["holder-1", kind]
    assert Envelope.from_bytes(first, 1 << 20).body == Envelope.from_bytes(second, 1 << 20).body


# --- what a holder refuses of a node that lies


@pytest.fixture
def opened(cohort):
    check_released(cohort, cohort.begun().run_round(1))
    return cohort


def test_a_second_roster_is_refused_also_after_a_restart(opened):
    spec, parts = read_spec("open", last_asked(opened, "open", "holder-1"))
    heads = read_roster(parts["roster"])
    fewer = spec_frame("open", spec, {**MARKED, "roster": roster_part(heads[:-1]), "request": b""})
    for _ in range(2):
        assert refusal(opened, "holder-1", fewer) == "already-opened"
        opened.restart("holder-1")
    again = Envelope.from_bytes(
        opened.speak("holder-1", Request("query", "t", last_asked(opened, "open", "holder-1"))), 1 << 20
    )
    assert again.body == Envelope.from_bytes(opened.said["holder-1", "open"][0], 1 << 20).body


def test_after_the_opening_boxes_and_key_are_gone(opened):
    room = opened.holder("holder-1")._boxes
    assert room.folder.state.get(f"boxes/{kit.TASK}") is None
    assert len(room.folder.state.get(f"box-key/{kit.TASK}")) == 8
    assert refusal(opened, "holder-1", last_asked(opened, "boxes", "holder-1")) == "bad-request"
    assert refusal(opened, "holder-1", key_request(kit.TASK, 1)) == "already-opened"


def test_there_is_no_key_for_a_round_that_is_past_or_never_comes(opened):
    opened.speak("holder-1", Request("query", "t", key_request(kit.TASK, 7)))
    assert refusal(opened, "holder-1", key_request(kit.TASK, 3)) == "past-round"
    assert refusal(opened, "holder-1", key_request(kit.TASK, 1_001)) == "round-cap"
    assert refusal(opened, "holder-1", key_request(kit.TASK, 9_999_999)) == "round-cap"


def test_boxes_that_are_not_those_that_were_signed_are_the_nodes_fault(cohort):
    def swapped(cohort, name, request):
        spec, parts = read_spec("boxes", request.frame)
        boxes = split_parts(parts["boxes"], 10)
        names = sorted(boxes)
        boxes[names[0]], boxes[names[1]] = boxes[names[1]], boxes[names[0]]
        frame = spec_frame("boxes", spec, {"roster": parts["roster"], "boxes": join_parts(boxes)})
        return [cohort.speak(name, Request("query", request.tag, frame))]

    cohort.tell("holder-5", swapped, "boxes")
    outcome = check_released(cohort, cohort.begun().run_round(1))
    assert outcome.silent == (("holder-5", "refused: bad-request"),) and outcome.rejected == ()


def test_a_roster_whose_boxes_never_came_is_refused(cohort):
    def unasked(cohort, name, request):
        spec, parts = read_spec("boxes", request.frame)
        heads = read_roster(parts["roster"])
        boxes = split_parts(parts["boxes"], 10)
        fewer = {head.head.sender: boxes[head.head.sender] for head in heads[1:]}
        frame = spec_frame("boxes", spec, {"roster": roster_part(heads[1:]), "boxes": join_parts(fewer)})
        cohort.speak(name, Request("query", request.tag, frame))
        whole = spec_frame("open", spec, {**MARKED, "roster": parts["roster"], "request": b""})
        reasons.append(refusal(cohort, name, whole))
        return [cohort.speak(name, request)]

    reasons = []
    cohort.tell("holder-1", unasked, "boxes")
    check_released(cohort, cohort.begun().run_round(1))
    assert reasons == ["not-confirmed"]


def test_who_signed_another_roster_is_left_out_of_the_opening(cohort):
    def another(cohort, name, request):
        spec, parts = read_spec("confirm", request.frame)
        fewer = roster_part(read_roster(parts["roster"])[1:])
        return [
            cohort.speak(name, Request("query", request.tag, spec_frame("confirm", spec, {**MARKED, "roster": fewer})))
        ]

    cohort.tell("holder-3", another, "confirm")
    outcome = check_released(cohort, cohort.begun().run_round(1))
    assert outcome.silent == (("holder-3", "bad-confirmation"),)
    assert not [name for name, _ in cohort.asked("open") if name == "holder-3"]


def test_confirmations_of_others_or_of_something_else_do_not_count(cohort):
    for name in cohort.size.holder_names:
        cohort.tell(name, kit.silent, "open")
        cohort.tell(name, kit.silent, "close")
    cohort.begun().run_round(1)
    spec, parts = read_spec("open", last_asked(cohort, "open", "holder-1"))
    signed = {name: part for name, part in parts.items() if name.startswith("confirmed-")}
    assert len(signed) == 5
    plain = {name: part for name, part in parts.items() if name not in signed}
    three = dict(list(signed.items())[:3])
    swapped = {**signed, "confirmed-1": signed["confirmed-2"]}
    of_boxes = Envelope.from_bytes(cohort.said["holder-2", "boxes"][-1], 1 << 20).signed.to_bytes()
    for given, reason in (
        ({}, "not-confirmed"),
        (three, "not-confirmed"),
        ({**three, "confirmed-9": signed["confirmed-4"]}, "not-confirmed"),
        (swapped, "bad-confirmation"),
        ({**signed, "confirmed-2": of_boxes}, "bad-confirmation"),
        ({**signed, "confirmed-2": b"junk"}, "malformed"),
    ):
        assert refusal(cohort, "holder-1", spec_frame("open", spec, {**MARKED, **plain, **given})) == reason
    answer = cohort.speak("holder-1", Request("query", "t", spec_frame("open", spec, {**MARKED, **plain, **signed})))
    assert Envelope.from_bytes(answer, 1 << 20).head.kind == "answer"


# --- what a client refuses


def test_a_key_that_another_holder_signed_is_refused(cohort):
    driver = cohort.begun()
    driver.run_round(1)
    frame = last_asked(cohort, "round", "client-1")
    spec, parts = read_spec("round", frame)
    for changed in (
        {"box-key-1": parts["box-key-2"]},
        {"box-key-1": parts["box-key-1"][:-1]},
        {"box-key-2": b""},
    ):
        must_refuse_round(cohort, spec, {**parts, **changed})
    fewer = {name: part for name, part in parts.items() if name != "box-key-1"}
    must_refuse_round(cohort, spec, fewer)


def must_refuse_round(cohort, spec, parts):
    cohort.restart("client-1")
    with pytest.raises(PeerFault) as caught:
        judge(cohort.client("client-1"), spec, parts)
    assert caught.value.reason in {"bad-box-key", "malformed", "damaged"}


def test_a_retry_sends_the_same_bytes_and_no_fresh_secret(cohort):
    cohort.tell("client-1", kit.reborn)
    check_released(cohort, cohort.begun().run_round(1))
    first, second = cohort.said["client-1", "round"]
    assert first == second


def test_a_driver_of_a_boxed_scheme_needs_no_ceremony(cohort):
    driver = Driver(cohort.node(), cohort.task())
    driver.begin(np.zeros(cohort.size.dimension))
    assert cohort.sent == []


def test_an_update_that_says_more_than_what_is_attached_is_not_passed_on(cohort):
    """A head goes to every holder in every roster: what it carries beside the hashes would be carried by all."""
    talking = kit.resigning(lambda told: {"about": {**told.head.about, "more": "x" * 1_000}})
    cohort.tell("client-1", talking)
    outcome = check_released(cohort, cohort.begun().run_round(1), {"client-1"})
    assert outcome.rejected == (("client-1", "another-round"),)
