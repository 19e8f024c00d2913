"""An update that finds no room: its client is asked again in the round, and only for what it sealed."""

from dataclasses import replace

import pytest
from kit import cohort as kit
from kit.cohort import FakeCohort, Size, check_released, failing

from fednode.cache import Limits, MemoryBackend, StoreFull, WhenFull
from fednode.protocol.requests import read_roster, read_spec
from fednode.round.machine import MOST_ASKS
from fednode.stores import UpdateStore

BFV = Size(clients=4, min_survivors=2, colluders=0)
RING = replace(BFV, scheme="ring")
LAZY = replace(RING, staleness=2)
SIZES = [BFV, RING]
WAIT = 7.0


class Narrow:
    """A cohort whose node has room for so many entries; `counted` are the pushes by name."""

    def __init__(self, root, size, entries, wait=WAIT):
        self.cohort, self.pushed = FakeCohort(root, size), []
        self.backend = MemoryBackend(self.cohort.clock, Limits(entries, 1 << 28, 1 << 26), WhenFull.REFUSE)
        self.updates = UpdateStore(self.backend, retry_after=wait)
        self.node = replace(self.cohort.node(), updates=self.updates)
        self.driver = self.cohort.begun(self.node)
        honest = self.updates.put

        def put(task, number, client, payload):
            self.pushed.append(client)
            honest(task, number, client, payload)

        self.updates.put = put

    @property
    def each(self):
        """Entries that one update takes."""
        return 2 if self.cohort.size.scheme == "ring" else 1

    def widen(self):
        self.backend.tune(Limits(256, 1 << 28, 1 << 26))

    def asks(self, name):
        return [request for member, request in self.cohort.asked("round") if member == name]

    def after(self, asks, then):
        """`then` is done when somebody has been asked for its update that often."""
        seen = {}

        def conduct(cohort, name, request):
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > asks:
                then()
            return [cohort.speak(name, request)]

        for name in self.cohort.size.client_names:
            self.cohort.tell(name, conduct)


def narrow(root, size, updates, more=0, wait=WAIT):
    return Narrow(root, size, updates * (2 if size.scheme == "ring" else 1) + more, wait)


@pytest.mark.parametrize(
    ("size", "asks", "more"),
    [(BFV, 1, 0), (BFV, MOST_ASKS, 0), (RING, 1, 1), (RING, MOST_ASKS, 0), (LAZY, MOST_ASKS, 1)],
)
def test_who_finds_room_later_is_in_the_sum_with_the_very_bytes_it_sealed_first(tmp_path, size, asks, more):
    scene = narrow(tmp_path, size, 3, more)
    scene.after(asks, scene.widen)
    began = scene.cohort.clock.now()
    outcome = check_released(scene.cohort, scene.driver.run_round(1))
    assert outcome.asked_again == asks and len(scene.asks("client-4")) == 1 + asks
    assert outcome.discarded == (("client-4", "no-room-yet"),) * asks and outcome.rejected == outcome.lost == ()
    assert len(set(scene.cohort.said["client-4", "round"])) == 1
    assert asks * WAIT <= scene.cohort.clock.now() - began < size.terms().deadline
    joined = [entry for entry in scene.cohort.folder("client-4").audit_log.entries() if "joined" in entry]
    assert len(joined) == 1 and scene.updates.usage().updates == 0
    assert scene.driver.run_round(2).asked_again == 0


@pytest.mark.parametrize("size", [*SIZES, LAZY])
def test_who_is_asked_again_gets_the_same_request_and_no_model_a_second_time(tmp_path, size):
    scene = narrow(tmp_path, size, 3)
    scene.after(1, scene.widen)
    scene.driver.run_round(1)
    first, second = scene.asks("client-4")
    assert (first.frame, first.tag, first.call) == (second.frame, second.tag, second.call)
    assert first.chunks and not second.chunks


@pytest.mark.parametrize(("size", "more"), [(BFV, 0), (RING, 0), (RING, 1)])
def test_where_no_room_ever_comes_the_round_goes_on_without_them(tmp_path, size, more):
    scene = narrow(tmp_path, size, 2, more)
    outcome = scene.driver.run_round(1)
    assert outcome.cause == "" and outcome.survivors == ("client-1", "client-2")
    for name in ("client-3", "client-4"):
        own = [reason for member, reason in outcome.discarded if member == name]
        assert own == ["no-room-yet"] * MOST_ASKS + ["no-room"]
        assert scene.pushed.count(name) == 1 + MOST_ASKS
    assert outcome.asked_again == 2 * MOST_ASKS and outcome.lost == ()


def test_where_no_room_ever_comes_and_too_few_are_left_it_says_why(tmp_path):
    outcome = narrow(tmp_path, RING, 1).driver.run_round(1)
    assert outcome.cause == "too-few-survivors" and "; 3 no-room (no room for " in outcome.reason


@pytest.mark.parametrize("wait", [60.0, 1e9])
def test_nobody_waits_for_a_time_after_the_round(tmp_path, wait):
    scene = narrow(tmp_path, RING, 3, wait=wait)
    began = scene.cohort.clock.now()
    outcome = scene.driver.run_round(1)
    assert outcome.cause == "" and outcome.discarded == (("client-4", "no-room"),) and outcome.asked_again == 0
    assert scene.cohort.clock.now() == began


def test_a_store_that_cannot_say_when_is_not_waited_for(tmp_path, monkeypatch):
    scene = narrow(tmp_path, RING, 4)

    monkeypatch.setattr(scene.updates, "put", failing(StoreFull("no room")))
    outcome = scene.driver.run_round(1)
    assert outcome.reason.endswith("; 4 no-room (no room)") and outcome.asked_again == 0


@pytest.mark.parametrize("wait", [0.0, -1.0, float("nan"), float("inf")])
def test_whatever_a_store_says_the_round_ends(tmp_path, monkeypatch, wait):
    scene = narrow(tmp_path, BFV, 4)

    monkeypatch.setattr(scene.updates, "put", failing(StoreFull("no room", wait)))
    outcome = scene.driver.run_round(1)
    assert outcome.cause == "too-few-survivors" and outcome.asked_again <= 4 * MOST_ASKS


@pytest.mark.parametrize("size", SIZES)
def test_who_does_not_answer_when_asked_again_is_told_as_without_room(tmp_path, size):
    scene = narrow(tmp_path, size, 3)

    def once(cohort, name, request):
        return [] if cohort.said[name, "round"] else [cohort.speak(name, request)]

    scene.cohort.tell("client-4", once)
    began = scene.cohort.clock.now()
    outcome = scene.driver.run_round(1)
    assert outcome.cause == "" and len(outcome.survivors) == 3
    assert outcome.discarded == (("client-4", "no-room-yet"),) and outcome.lost == ()
    assert scene.cohort.clock.now() - began <= size.terms().deadline + scene.node.poll


def test_a_stop_ends_the_waiting(tmp_path):
    scene = narrow(tmp_path, RING, 3)
    node = replace(scene.node, stop=lambda: scene.cohort.clock.now() > 1_003.0)
    scene.driver._node = node
    outcome = scene.driver.run_round(1)
    assert outcome.cause == "stopped" and outcome.asked_again == 0 and len(node.ledger.entries) == 0


# --- hostile clients


def sealing_anew(what, widen):
    """The first time what it sealed; asked again, something else under its own signature, when there is room."""
    again = kit.resigning(
        lambda told: dict(zip(("body", "attached"), what(told.body, dict(told.attached)), strict=True))
    )

    def conduct(cohort, name, request):
        if not cohort.said[name, "round"]:
            return [cohort.speak(name, request)]
        frames = again(cohort, name, request)
        widen()
        return frames

    return conduct


def other_body(body, attached):
    return body[:1] + bytes([body[1] ^ 1]) + body[2:], attached


def other_boxes(body, attached):
    return body, {name: data[::-1] if name == "box-1" else data for name, data in attached.items()}


@pytest.mark.parametrize(
    ("size", "what"), [(BFV, other_body), (RING, other_body), (RING, other_boxes), (LAZY, other_boxes)]
)
def test_who_uses_the_asking_to_send_something_else_is_refused(tmp_path, size, what):
    scene = narrow(tmp_path, size, 3)
    scene.cohort.tell("client-4", sealing_anew(what, scene.widen))
    outcome = scene.driver.run_round(1)
    assert outcome.cause == "" and "client-4" not in outcome.survivors and len(outcome.survivors) == 3
    assert outcome.rejected == (("client-4", "second-update"),)
    assert scene.pushed.count("client-4") == 1
    if size.scheme == "ring":
        _, parts = read_spec("boxes", scene.cohort.asked("boxes")[-1][1].frame)
        assert "client-4" not in {signed.head.sender for signed in read_roster(parts["roster"])}


@pytest.mark.parametrize("size", SIZES)
def test_who_floods_gets_one_attempt_each_time_it_is_asked(tmp_path, size):
    scene = narrow(tmp_path, size, 3)
    scene.cohort.tell("client-4", lambda cohort, name, request: [cohort.speak(name, request)] * 6)
    outcome = scene.driver.run_round(1)
    assert outcome.cause == "" and len(outcome.survivors) == 3
    assert scene.pushed.count("client-4") == 1 + MOST_ASKS == len(scene.asks("client-4"))
    assert outcome.asked_again == MOST_ASKS


def test_junk_in_between_takes_nothing_away_from_who_waits(tmp_path):
    scene = narrow(tmp_path, RING, 3)
    scene.after(1, scene.widen)
    told = scene.cohort._told["client-4"][0][2]
    scene.cohort.tell("client-4", lambda *asked: [*told(*asked), b"junk", None])
    outcome = check_released(scene.cohort, scene.driver.run_round(1))
    assert {reason for _, reason in outcome.rejected} == {"malformed", "no-answer"}


def test_a_payload_whose_boxes_found_no_room_leaves_nothing_behind(tmp_path):
    scene = narrow(tmp_path, RING, 3, more=1)
    seen = []

    def conduct(cohort, name, request):
        seen.append({one.client for one in scene.updates.ids()})
        return [cohort.speak(name, request)] * 2

    scene.cohort.tell("client-4", conduct)
    outcome = scene.driver.run_round(1)
    assert outcome.cause == "" and len(seen) == 1 + MOST_ASKS
    assert all("client-4" not in names for names in seen) and seen[1] == seen[0]
    assert "client-4/boxes" in scene.pushed and scene.updates.usage().lost == 0
