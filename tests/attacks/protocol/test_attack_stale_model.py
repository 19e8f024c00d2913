"""A model of one's own for one client, in a task that allows older models.

Attacker: a lying node. In round 1 it names to the victim, and to nobody else, a model that it made up; the update for
that spec is for another round than everybody's and counts nowhere. In round 2, which everybody joins under one spec,
it sends the victim nothing, so that the victim trains from the model it has. Success: the victim's update, computed
from a model of the node's choice, counts in everybody's sum. It fails at the client: an older copy is used only where
as many holders as it takes to open signed that they opened the round it was checked in, and no honest holder opens a
round of one. Control: with that check taken out, the update is counted.

Or the node leaves a victim alone for some rounds, and then says in everybody's spec that the newest model is the one
after the victim's copy. Success: the victim trains from a model older than the task allows. It fails twice: the victim
counts rounds, and who went on refuses a version that goes back.
"""

from dataclasses import replace

import numpy as np
import pytest
from kit.cache.chunking import chunked
from kit.cohort import TASK, round_of
from kit.crypto.attacker import BFV, RING, envelope, real_cohort

from fednode.driver import Driver, Request
from fednode.protocol.envelope import Signer, Topic
from fednode.protocol.model import Basis
from fednode.protocol.openings import opening_parts
from fednode.protocol.requests import frame_kind, read_spec, roster_part, spec_frame
from fednode_clients.client import model_copy as copies
from fednode_crypto.identity import SigningKey

VICTIM = "client-1"
SIZES = {"ring": replace(RING, staleness=1), "bfv": replace(BFV, staleness=1)}


@pytest.fixture(params=SIZES)
def cohort(tmp_path, request):
    return real_cohort(tmp_path, SIZES[request.param])


def alone(made_up: np.ndarray, made: list):
    """The victim is told of a model that nobody else is; what it answers is kept, and the node hears nothing."""

    def conduct(cohort, name, request):
        spec, parts = read_spec("round", request.frame)
        arrays = {"w": made_up}
        lie = replace(spec, model_digest=cohort.task().outline.digest(arrays))
        made.append(lie)
        said = cohort.speak(name, Request("train", "", spec_frame("round", lie, parts), chunked(arrays)))
        assert envelope(said).head.kind == "update"
        return []

    return conduct


def nothing(vouchers=lambda cohort, spec: {}):
    """The victim gets no chunk, and whatever words of holders the node has."""

    def conduct(cohort, name, request):
        spec, parts = read_spec("round", request.frame)
        kept = {name: part for name, part in parts.items() if not name.startswith("opened-")}
        frame = spec_frame("round", spec, kept | vouchers(cohort, spec))
        return [cohort.speak(name, Request("train", request.tag, frame))]

    return conduct


def attacked(cohort, vouchers=lambda cohort, spec: {}):
    """Two rounds: the victim alone in the first, sent nothing in the second. Returns the outcome and the lie."""
    made: list = []
    made_up = np.full(cohort.size.dimension, 0.5, dtype=np.float32)
    cohort.tell(VICTIM, alone(made_up, made), rounds={1})
    cohort.tell(VICTIM, nothing(vouchers), rounds={2})
    driver = cohort.begun()
    assert driver.run_round(1).cause == ""
    return driver.run_round(2), made[0]


def check_refused(cohort, outcome):
    assert outcome.cause == "" and VICTIM not in outcome.survivors
    assert outcome.rejected == ((VICTIM, "refused: missing-chunks"),)
    assert len(cohort.said[VICTIM, "round"]) == 3


def test_a_made_up_model_is_not_trained_from_in_everybodys_round(cohort):
    outcome, _ = attacked(cohort)
    check_refused(cohort, outcome)


def test_the_word_for_everybodys_round_does_not_vouch_for_the_victims(cohort):
    def everybodys(cohort, spec):
        answers = [envelope(cohort.said[name, "open"][-1]).signed for name in cohort.size.holder_names]
        assert all(signed.head.round == 1 for signed in answers)
        return opening_parts({cohort.cohort.member(s.head.sender).point: s for s in answers})

    outcome, _ = attacked(cohort, everybodys)
    check_refused(cohort, outcome)


def test_fewer_corrupt_holders_than_it_takes_to_open_cannot_vouch(cohort):
    lies: list = []

    def corrupt(cohort, spec):
        topic = Topic(TASK, 1, lies[0].digest())
        corrupted = cohort.cohort.holders[: cohort.size.threshold - 1]
        answers = {h.point: cohort.folder(h.name).signer.write("answer", topic).signed for h in corrupted}
        outsiders = {
            h.point: Signer(h.name, SigningKey.generate()).write("answer", topic).signed
            for h in cohort.cohort.holders[cohort.size.threshold - 1 :]
        }
        return opening_parts(outsiders | answers)

    cohort.tell(VICTIM, alone(np.ones(cohort.size.dimension, dtype=np.float32), lies), rounds={1})
    cohort.tell(VICTIM, nothing(corrupt), rounds={2})
    driver = cohort.begun()
    assert driver.run_round(1).cause == ""
    check_refused(cohort, driver.run_round(2))


def test_holders_do_not_open_a_round_of_one(cohort):
    """So there is no word of theirs for it, however few of them are honest."""
    _, lie = attacked(cohort)
    update = next(e for e in map(envelope, cohort.said[VICTIM, "round"]) if e.head.spec == lie.digest())
    request = bytes(lie.sum_params.request_bytes)
    frame = spec_frame(
        "open", replace(lie, round=lie.round), {"roster": roster_part([update.signed]), "request": request}
    )
    for name in cohort.size.holder_names:
        said = envelope(cohort.speak(name, Request("query", "a lie", frame)))
        assert said.head.kind == "refusal" and said.about.text("reason", 64) == "min-survivors"


def test_control_without_the_holders_word_the_update_counts(cohort, monkeypatch):
    monkeypatch.setattr(copies, "opened_by", lambda *_: set(range(9)))
    lie: list = []

    def unheard(self, said, spec):
        return None

    # an honest node would find the statement out: this one does not look
    monkeypatch.setattr("fednode.driver.downloads.Downloads.check", unheard)
    made_up = np.ones(cohort.size.dimension, dtype=np.float32)
    cohort.tell(VICTIM, alone(made_up, lie), rounds={1})
    cohort.tell(VICTIM, nothing(), rounds={2})
    driver = cohort.begun()
    assert driver.run_round(1).cause == ""
    outcome = driver.run_round(2)
    assert VICTIM in outcome.survivors and cohort.trained_from[VICTIM] == Basis(1, lie[0].model_digest)


def test_an_honest_node_finds_a_model_that_it_never_published(cohort, monkeypatch):
    """Whoever fooled the client: the statement is signed, and is not of any published version."""
    monkeypatch.setattr(copies, "opened_by", lambda *_: set(range(9)))
    outcome, _ = attacked(cohort)
    assert outcome.cause == "" and outcome.rejected == ((VICTIM, "another-model"),)


class Enough(Exception):
    """What an honest node would send next is known."""


def left_alone(cohort, monkeypatch):
    """The victim has the model of round 1, the rest went on to round 5. Returns the lie about round 6: its honest spec
    with the version after the victim's, what comes with it, and the newest model."""
    cohort.tell(VICTIM, lambda *_: [], rounds=range(2, 6))
    driver, sent, carry = cohort.begun(), {}, cohort.send

    def send(requests):
        if all(frame_kind(one.frame) != "round" for one in requests.values()):
            return carry(requests)
        sent.update(requests)
        raise Enough

    assert driver.run_round(1).cause == ""
    opened = [envelope(cohort.said[name, "open"][-1]).signed for name in cohort.size.holder_names]
    assert all(driver.run_round(number).cause == "" for number in range(2, 6))
    monkeypatch.setattr(cohort, "send", send)
    with pytest.raises(Enough):
        driver.run_round(6)
    spec, parts = read_spec("round", sent[VICTIM].frame)
    held = cohort.client(VICTIM)._models._held(TASK)
    assert held.round == 1 and spec.model_version - held.basis.version == 5
    parts |= opening_parts({cohort.cohort.member(one.head.sender).point: one for one in opened})
    lie = spec_frame("round", replace(spec, model_version=held.basis.version + 1), parts)
    return lie, chunked(cohort.task().model(driver.parameters()))


def test_an_older_version_by_the_nodes_word_does_not_make_a_copy_newer(cohort, monkeypatch):
    lie, newest = left_alone(cohort, monkeypatch)
    for _ in range(2):
        said = envelope(cohort.speak(VICTIM, Request("train", "a lie", lie)))
        assert (said.head.kind, said.about.text("reason")) == ("refusal", "missing-chunks")
        cohort.restart(VICTIM)
    # and nobody who went on joins a round that went back
    for name in cohort.size.client_names[1:]:
        said = envelope(cohort.speak(name, Request("train", "a lie", lie, newest)))
        assert (said.head.kind, said.about.text("reason")) == ("refusal", "past-round")


def test_control_by_versions_alone_the_victim_trains_from_the_oldest_model(cohort, monkeypatch):
    lie, _ = left_alone(cohort, monkeypatch)
    monkeypatch.setattr(copies, "_may_lag", lambda held, card, spec, _: spec.model_version - held.basis.version == 1)
    said = envelope(cohort.speak(VICTIM, Request("train", "a lie", lie)))
    assert said.head.kind == "update" and cohort.trained_from[VICTIM].version == 1


def test_another_model_for_one_client_in_the_rounds_own_spec(cohort):
    """As without staleness: what came is not what the spec names."""

    def swapped(cohort, name, request):
        other = {name: chunk + np.float32(1) for name, chunk in request.chunks.items()}
        return [cohort.speak(name, replace(request, chunks=other))]

    cohort.tell(VICTIM, swapped)
    driver: Driver = cohort.begun()
    assert driver.run_round(1).rejected == ((VICTIM, "refused: another-model"),)
    assert len([r for name, r in cohort.asked("round") if name == VICTIM and round_of(r) == 1]) == 1
