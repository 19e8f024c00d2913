"""Requests in the node's place: to close a round, for a key of a far round, for tasks that nobody runs, an old hello.

Attacker: whoever reaches a member, with any key but the node's, and with what the node signed before. Success: the
member does what was asked, or the node takes an old answer for a member. It fails where the request enters, before
anything is kept. Control: without the signature's check, and with a nonce that never changes, each of the four works.
"""

import pytest
from flwr.app import Message
from flwr.clientapp import ClientApp
from kit.cohort import TASK, FakeCohort, Size, place, wide_limits

from fednode.driver import Request
from fednode.inproc import InProcGrid
from fednode.protocol.envelope import Envelope, Signer, Topic
from fednode.protocol.requests import TaskCard, ask_frame, close_request, frame_kind, key_request, spec_frame
from fednode.protocol.signed_requests import SignedRequest, sign_request
from fednode.records import frame_of, to_content
from fednode.server import GridChannel
from fednode_crypto.identity import SigningKey

SIZE = Size(clients=4, holders=3, threshold=2, scheme="ring")
FAR = 900
MANY = 3


@pytest.fixture
def cohort(tmp_path):
    made = FakeCohort(tmp_path, SIZE, limits=wide_limits(max_tasks=MANY))
    made.driver = made.begun()
    assert made.driver.run_round(1).cause == ""
    # round 2 has begun
    assert answer(made, "holder-1", made.signed("holder-1", key_request(TASK, 2))) == "box-key"
    return made


def answer(cohort, name, request) -> str:
    """The kind of the answer, or the reason of a refusal."""
    said = Envelope.from_bytes(cohort.members(name).query(place(name), request), 1 << 20)
    return said.about.text("reason", 64) if said.head.kind == "refusal" else said.head.kind


def seals(cohort, name, frame):
    """What somebody has who is not the node: nothing, junk, an own key, the node's signature on other requests."""
    mallory = Signer("node", SigningKey.generate())
    other = next(one for one in SIZE.holder_names if one != name)
    earlier = sign_request(cohort.signer, name, key_request(TASK, 1))
    return {
        b"": "unsigned-request",
        b"junk": "malformed",
        sign_request(mallory, name, frame): "bad-signature",
        sign_request(cohort.signer, other, frame): "unsigned-request",
        earlier: "unsigned-request",
        bytes(64) + earlier[64:]: "bad-signature",
    }


def attacks(cohort) -> dict[str, tuple[bytes, str]]:
    card = TaskCard("made-up", cohort.cohort, SIZE.sum_params()).parts()
    return {
        "close a round": (close_request(TASK, 2), "closed"),
        "a far key": (key_request(TASK, FAR), "box-key"),
        "a task": (ask_frame("task", "made-up", card), "ready"),
    }


@pytest.mark.parametrize("attack", ["close a round", "a far key", "a task"])
def test_a_request_that_the_node_did_not_sign_for_this_member_changes_nothing(cohort, attack, monkeypatch):
    frame, success = attacks(cohort)[attack]
    before = {path: path.read_bytes() for path in cohort.root.rglob("*") if path.is_file()}
    for seal, reason in seals(cohort, "holder-1", frame).items():
        assert answer(cohort, "holder-1", SignedRequest(frame, seal)) == reason
    after = {path: path.read_bytes() for path in cohort.root.rglob("*") if path.is_file()}
    assert after == before
    # control: without the check it works, as it does for the node
    monkeypatch.setattr("fednode_clients.membership.require_authentic", lambda *_: None)
    assert answer(cohort, "holder-1", SignedRequest(frame)) == success


def test_control_the_node_itself_is_answered(cohort):
    for frame, success in attacks(cohort).values():
        if frame_kind(frame) != "close":
            assert answer(cohort, "holder-2", cohort.signed("holder-2", frame)) == success


def test_tasks_of_strangers_do_not_take_the_room_of_the_nodes(cohort, monkeypatch):
    def fill(name, seal):
        card = TaskCard(name, cohort.cohort, SIZE.sum_params()).parts()
        frame = ask_frame("task", name, card)
        return answer(cohort, "client-1", SignedRequest(frame, seal(frame)))

    for number in range(2 * MANY):
        assert fill(f"false-{number}", lambda _: b"") == "unsigned-request"
    assert fill("true", lambda frame: sign_request(cohort.signer, "client-1", frame)) == "ready"
    monkeypatch.setattr("fednode_clients.membership.require_authentic", lambda *_: None)
    told = [fill(f"false-{number}", lambda _: b"") for number in range(2 * MANY)]
    assert told[-1] == "task-cap"


def test_a_node_that_signs_another_round_than_it_sends_is_found_out(cohort):
    spec = cohort.driver._spec(2, bytes(32), cohort.size.terms())
    frame = spec_frame("confirm", spec)
    wrong = sign_request(cohort.signer, "holder-1", frame, Topic(TASK, 3, spec.digest()))
    assert answer(cohort, "holder-1", SignedRequest(frame, wrong)) == "unsigned-request"


def found_with(cohort, hello) -> frozenset[str]:
    """Whom the roll call finds where `hello` answers in the place of holder-1."""
    app, names = ClientApp(), [member.name for member in cohort.cohort.members]

    @app.query()
    def answering(message, context) -> Message:
        name, frame = names[context.node_config["partition-id"]], frame_of(message.content)
        said = hello(frame) if name == "holder-1" else cohort.speak(name, Request("query", "", frame))
        return Message(to_content(said), reply_to=message)

    return GridChannel(InProcGrid(app, names, {}), cohort.cohort, cohort.signer).roll_call(lambda: False)


@pytest.mark.parametrize("defended", [True, False])
def test_a_repeated_hello_binds_nobody(cohort, monkeypatch, defended):
    if not defended:
        monkeypatch.setattr("fednode.server.secrets.token_bytes", bytes)
    heard = []

    def listening(frame):
        heard.append(cohort.members("holder-1").query(place("holder-1"), SignedRequest(frame)))
        return heard[-1]

    assert "holder-1" in found_with(cohort, listening)
    assert ("holder-1" in found_with(cohort, lambda _: heard[0])) == (not defended)


def test_a_refusal_on_demand_is_about_no_round(cohort):
    """It cannot be passed off as an answer to the node's own request for this round."""
    frame = cohort.asked("confirm")[0][1].frame
    for seal in (b"", b"junk", sign_request(Signer("node", SigningKey.generate()), "holder-1", frame)):
        said = Envelope.from_bytes(cohort.members("holder-1").query(place("holder-1"), SignedRequest(frame, seal)), 0)
        assert (said.head.kind, said.head.round, said.head.spec) == ("refusal", 0, bytes(32))
    asked = Envelope.from_bytes(
        cohort.members("holder-1").query(place("holder-1"), cohort.signed("holder-1", frame)), 0
    )
    assert asked.head.round == 1
