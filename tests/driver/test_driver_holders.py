"""Holders that answer junk, twice, too late, unasked or about strangers: named, bounded, and never counted twice."""

from dataclasses import replace

import pytest
from kit import cohort as kit
from kit.cohort import FakeCohort, Size, check_released, last_asked, refusal
from kit.crypto.plainsum import InsecureBoxedSum
from kit.marks import MARKED

from fednode.driver import Reply, Request
from fednode.errors import TooFewHolders
from fednode.protocol.confirmations import Confirmations
from fednode.protocol.envelope import Envelope, Topic
from fednode.protocol.requests import frame_kind, read_roster, read_spec, roster_part, spec_frame
from fednode.wire import canonical
from fednode_crypto import Tampered, WrongAnswer, scheme

pytestmark = pytest.mark.thorough

RING = Size(clients=5, holders=5, threshold=4, dimension=50, scheme="ring")
BFV = replace(RING, scheme="bfv")
STEPS = ["boxes", "confirm", "open"]


@pytest.fixture
def ring(tmp_path):
    """Boxes, rosters and signatures as they are; the numbers in the clear."""
    return FakeCohort(tmp_path, RING, InsecureBoxedSum())


@pytest.fixture(params=["ring", "bfv"])
def cohort(request, tmp_path):
    """The real schemes, both kinds."""
    return FakeCohort(tmp_path, RING if request.param == "ring" else BFV, scheme(request.param))


def answering(change):
    return kit.saying(lambda spec, told: (spec, change(told.body)))


MALFORMED = {
    "out of range": lambda body: b"\xff" * len(body),
    "one number out of range": lambda body: body[:-8] + b"\xff" * 8,
    "short": lambda body: body[:-8],
    "one byte short": lambda body: body[:-1],
    "long": lambda body: body + bytes(8),
    "empty": lambda body: b"",
}


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_answer_is_its_holders_and_the_others_open(cohort, change):
    driver = cohort.begun()
    cohort.tell("holder-2", answering(change), "open")
    outcome = check_released(cohort, driver.run_round(1))
    ((name, reason),) = outcome.silent
    assert name == "holder-2" and reason in ("bad-answer", "oversize")
    assert outcome.answered == ("holder-1", "holder-3", "holder-4", "holder-5")


def test_two_malformed_answers_of_five_are_both_named(cohort):
    node = cohort.node()
    driver = cohort.begun(node)
    for name in ("holder-2", "holder-5"):
        cohort.tell(name, answering(MALFORMED["out of range"]), "open")
    outcome = driver.run_round(1)
    assert outcome.cause == "too-few-holders" and len(node.ledger.entries) == 1
    assert outcome.silent == (("holder-2", "bad-answer"), ("holder-5", "bad-answer"))
    assert outcome.answered == ("holder-1", "holder-3", "holder-4")
    assert "3 of 5 holders answered and 4 are needed to open; 2 bad-answer (" in outcome.reason


def test_malformed_answers_to_the_known_vector_are_named(tmp_path):
    cohort = FakeCohort(tmp_path, BFV, scheme("bfv"))
    for name in ("holder-2", "holder-5"):
        cohort.tell(name, answering(MALFORMED["out of range"]), "open")
    with pytest.raises(TooFewHolders, match=r"holder-2: bad-answer.*holder-5: bad-answer"):
        cohort.begun()


class Accusing:
    """A scheme that says each time that other answers are wrong."""

    def __init__(self, inner, *faults):
        self._inner, self._faults = inner, list(faults)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def combine(self, *_):
        raise self._faults.pop(0)


ACCUSED = [
    ([WrongAnswer("a", [2]), WrongAnswer("b")], (2,)),
    ([WrongAnswer("a", [2]), Tampered("b")], (2,)),
    ([WrongAnswer("a", [2]), WrongAnswer("b", [3])], (2, 3)),
    ([WrongAnswer("a", [2, 3])], (2, 3)),
    ([WrongAnswer("a", [9, 2]), WrongAnswer("b", [2])], (2,)),
    ([WrongAnswer("a")], ()),
    ([Tampered("a")], ()),
]


@pytest.mark.parametrize(("faults", "points"), ACCUSED)
def test_and_is_named_in_the_outcome(ring, faults, points):
    outcome = ring.begun(replace(ring.node(), scheme=Accusing(ring.scheme, *faults))).run_round(1)
    assert outcome.cause == "opening-rejected" and outcome.release is None
    assert outcome.silent == tuple((f"holder-{point}", "wrong-answer") for point in points)
    assert len(outcome.answered) == 5 - len(points) and not set(outcome.answered) & {n for n, _ in outcome.silent}


# --- who is struck


KEY = "ab" * 32


def striking(struck):
    """Signs that the boxes of these are wrong, and shows such keys."""

    def conduct(cohort, name, request):
        told = Envelope.from_bytes(cohort.speak(name, request), 1 << 20)
        topic = Topic(told.head.task, told.head.round, told.head.spec)
        body = canonical({"struck": struck})
        return [cohort.folder(name).signer.write("checked", topic, body, told.head.about).to_bytes()]

    return conduct


@pytest.mark.parametrize(
    "struck",
    [
        {f"stranger-{n}": KEY for n in range(2_006)},
        {"client-1": KEY, "stranger": KEY},
        {"holder-1": KEY},
        ["client-1"],
        {"": KEY},
        {"client-1": 7},
        {"client-1": KEY[:-2]},
        {"client-1": KEY.upper()},
        {"\x1b[2J": KEY},
    ],
    ids=lambda struck: f"{len(struck)} {str(struck)[:20]!r}",
)
def test_a_holder_that_strikes_others_than_it_was_sent_is_silent_and_strikes_nobody(ring, struck, caplog):
    ring.tell("holder-2", striking(struck), "boxes")
    outcome = check_released(ring, ring.begun().run_round(1))
    assert outcome.rejected == () and max(map(len, caplog.messages), default=0) < 500
    assert outcome.silent in ((("holder-2", "malformed"),), (("holder-2", "oversize"),))
    assert not [name for name, _ in ring.asked("confirm") if name == "holder-2"]


def test_a_client_that_did_not_survive_collecting_is_a_stranger_to_the_roster(ring):
    ring.tell("client-1", kit.silent)
    ring.tell("holder-2", striking({"client-1": KEY}), "boxes")
    outcome = check_released(ring, ring.begun().run_round(1), {"client-1"})
    assert outcome.silent == (("holder-2", "malformed"),)


# --- answers of others, before they are asked, twice, and too late


def slipping(*replies):
    """Honest, and the carrier brings these replies with it."""

    def conduct(cohort, name, request):
        cohort._inbox.extend(replies)
        return [cohort.speak(name, request)]

    return conduct


NOBODIES = ["client-2", "nobody", "", "\x1b[2J", "holder-9"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("at", ["round", *STEPS])
def test_a_holders_tag_from_anybody_else_is_data(ring, step, at):
    tag = f"{kit.TASK}/{step}/1"
    replies = [Reply(name, tag, frame) for name in NOBODIES for frame in (None, b"", b"junk")]
    ring.tell("client-1" if at == "round" else "holder-1", slipping(*replies), at)
    outcome = check_released(ring, ring.begun().run_round(1))
    assert outcome.silent == () and outcome.rejected == () and len(outcome.answered) == 5


@pytest.mark.parametrize(("at", "step"), [(at, step) for at in ["round", *STEPS] for step in STEPS if at != step])
def test_a_holder_that_speaks_before_it_is_asked_or_after_is_not_held_to_it(ring, step, at):
    junk = [Reply(name, f"{kit.TASK}/{step}/1", b"junk") for name in ring.size.holder_names]
    ring.tell("client-1" if at == "round" else "holder-1", slipping(*junk), at)
    outcome = check_released(ring, ring.begun().run_round(1))
    assert outcome.silent == () and len(outcome.answered) == 5


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("junk_first", [False, True])
def test_a_holder_that_says_it_right_once_has_said_it(ring, step, junk_first):
    def both(cohort, name, request):
        frames = [cohort.speak(name, request), b"junk"]
        return frames[::-1] if junk_first else frames

    ring.tell("holder-2", both, step)
    outcome = check_released(ring, ring.begun().run_round(1))
    assert outcome.silent == () and outcome.answered == ring.size.holder_names


@pytest.mark.parametrize("step", STEPS)
def test_what_comes_many_times_counts_once(ring, step):
    ring.tell("holder-2", lambda *told: kit.honest(*told) * 50, step)
    ring.tell("holder-3", lambda *told: [b"junk"] * 50, step)
    outcome = check_released(ring, ring.begun().run_round(1))
    assert outcome.silent == (("holder-3", "malformed"),)
    assert outcome.answered == ("holder-1", "holder-2", "holder-4", "holder-5")


@pytest.mark.parametrize("step", STEPS)
def test_a_round_waits_for_holders_no_longer_than_its_deadline(ring, step):
    ring.tell("holder-2", kit.silent, step)
    began = ring.clock.now()
    outcome = check_released(ring, ring.begun().run_round(1))
    deadline = ring.size.terms().deadline
    assert deadline <= ring.clock.now() - began < deadline + 5
    assert outcome.silent == (("holder-2", "no-answer"),)


@pytest.mark.parametrize("step", ["boxes", "confirm"])
def test_a_stop_while_holders_are_asked_costs_nothing_and_blames_nobody(ring, step):
    asked = []
    node = ring.node(stop=lambda: bool(asked))
    ring.tell("holder-2", lambda *told: asked.append(1) or kit.honest(*told), step)
    outcome = ring.begun(node).run_round(1)
    assert (outcome.cause, outcome.opened, outcome.silent) == ("stopped", False, ())
    assert node.ledger.entries == () and not node.updates.ids()


# --- confirmations


def test_a_confirmation_of_an_earlier_round_confirms_nothing(ring):
    driver = ring.begun()
    check_released(ring, driver.run_round(1))
    ring.tell("holder-2", kit.stale, "confirm", {2})
    outcome = check_released(ring, driver.run_round(2))
    assert outcome.silent == (("holder-2", "bad-confirmation"),)
    spec, parts = read_spec("open", last_asked(ring, "open"))
    assert set(Confirmations.from_parts(parts, ring.cohort).heads) == {1, 3, 4, 5}
    assert spec.round == 2


def test_a_confirmation_of_a_holder_that_did_not_check_is_not_passed_on(ring):
    frames = []

    def eager(cohort, name, request):
        """holder-4 did not check its boxes, and signs the roster all the same."""
        cohort.forgive()
        spec, _ = read_spec("confirm", request.frame)
        topic, about = (
            Topic(spec.task, 1, spec.digest()),
            Envelope.from_bytes(cohort.speak(name, request), 0).head.about,
        )
        frames.append(cohort.folder("holder-4").signer.write("confirmed", topic, b"", about).to_bytes())
        cohort._inbox.append(Reply("holder-4", request.tag, frames[-1]))
        return [cohort.speak(name, request)]

    ring.tell("holder-4", kit.silent, "boxes")
    ring.tell("holder-1", eager, "confirm")
    outcome = check_released(ring, ring.begun().run_round(1))
    assert frames and outcome.silent == (("holder-4", "no-answer"),)
    assert set(Confirmations.from_parts(read_spec("open", last_asked(ring, "open"))[1], ring.cohort).heads) == {
        1,
        2,
        3,
        5,
    }
    assert len([name for name, request in ring.asked("open") if name == "holder-4"]) == 0


def test_a_holder_that_could_not_open_does_not_confirm_and_nothing_is_charged(ring):
    def forgetting(cohort, name, request):
        cohort.folder(name).state.drop(f"boxes/{kit.TASK}")
        cohort.restart(name)
        return [cohort.speak(name, request)]

    node = ring.node()
    driver = ring.begun(node)
    ring.tell("holder-2", forgetting, "confirm", {1, 2})
    ring.tell("holder-3", forgetting, "confirm", {2})
    outcome = check_released(ring, driver.run_round(1))
    assert outcome.silent == (("holder-2", "refused: bad-request"),) and len(outcome.answered) == 4
    failed = driver.run_round(2)
    assert (failed.cause, failed.opened, len(node.ledger.entries)) == ("too-few-holders", False, 1)
    assert "2 refused: bad-request (no boxes of this round are here)" in failed.reason
    check_released(ring, driver.run_round(3))


def test_a_roster_with_a_client_whose_box_is_no_good_is_not_confirmed(ring):
    """A node that does not strike whom a holder struck: no holder signs what it could not open."""

    def whole(cohort, name, request):
        spec, parts = read_spec("boxes", rosters[name])
        frame = spec_frame("confirm", spec, {**MARKED, "roster": parts["roster"]})
        reasons.append(refusal(cohort, name, frame))
        return [cohort.speak(name, request)]

    def keeping(cohort, name, request):
        rosters[name] = request.frame
        return [cohort.speak(name, request)]

    rosters, reasons = {}, []
    ring.tell("client-2", kit.spoiling_box(3))
    ring.tell("holder-3", keeping, "boxes")
    ring.tell("holder-3", whole, "confirm")
    check_released(ring, ring.begun().run_round(1), {"client-2"})
    assert reasons == ["bad-request"]


def test_confirming_again_grows_no_record_and_another_roster_is_refused_for_ever(ring):
    for name in ring.size.holder_names:
        ring.tell(name, kit.silent, "open")
    ring.begun().run_round(1)
    frame = last_asked(ring, "confirm")
    before = ring.folder("holder-1").audit_log.entries()
    first = ring.said["holder-1", "confirm"][-1]
    for _ in range(5):
        ring.restart("holder-1")
        assert ring.speak("holder-1", Request("query", "t", frame)) == first
    spec, parts = read_spec("confirm", frame)
    fewer = spec_frame("confirm", spec, {**MARKED, "roster": roster_part(read_roster(parts["roster"])[1:])})
    assert refusal(ring, "holder-1", fewer) == "already-confirmed"
    assert ring.folder("holder-1").audit_log.entries() == before and len(before) == 1


def test_after_the_opening_nothing_is_confirmed(ring):
    check_released(ring, ring.begun().run_round(1))
    assert refusal(ring, "holder-1", last_asked(ring, "confirm")) == "already-opened"


@pytest.mark.parametrize("name", ["client-1", "holder-1"])
def test_under_a_joint_key_nothing_is_confirmed(tmp_path, name):
    cohort = FakeCohort(tmp_path, BFV)
    check_released(cohort, cohort.begun().run_round(1))
    kinds = {frame_kind(request.frame) for _, request in cohort.sent}
    assert not kinds & {"box-key", "boxes", "confirm"}
    spec, parts = read_spec("open", last_asked(cohort, "open"))
    assert not [part for part in parts if part.startswith("confirmed-")]
    assert refusal(cohort, name, spec_frame("confirm", spec, {**MARKED, "roster": parts["roster"]})) == "unexpected"
    assert all("confirmed" not in entry for entry in cohort.folder("holder-1").audit_log.entries())
