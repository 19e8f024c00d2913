"""A made-up model for one client, in a task that allows older models.

Attacker: a lying node. In round 1 it sends the victim alone a spec with a made-up model; that update counts nowhere. In
round 2, which all clients join under one spec, it sends the victim no chunks, so that it trains from its copy. Success:
that update counts in the common sum. It fails: a client uses an older copy only if as many holders as it takes to open
signed that they opened its round, and no honest holder opens a round of one. Control: without that check it counts.

Or the node skips the victim for some rounds, then claims in the common spec that the newest model directly follows the
victim's copy. Success: the victim trains from a model older than the task allows. It fails twice: the victim counts
rounds, and clients that advanced refuse a version that goes back.
"""

from dataclasses import replace

import numpy as np
import pytest
from kit.cache.chunking import chunked
from kit.cohort import TASK, round_of
from kit.crypto.attacker import SIZES, envelope, real_cohort, reason_of
from kit.marks import MARKED

from fednode.driver import Request
from fednode.protocol.envelope import Signer, Topic
from fednode.protocol.model import Basis
from fednode.protocol.openings import opening_parts
from fednode.protocol.requests import frame_kind, read_spec, roster_part, spec_frame
from fednode_clients.client import model_copy as copies
from fednode_crypto.identity import SigningKey

VICTIM = "client-1"


@pytest.fixture(params=SIZES)
def cohort(tmp_path, request):
    return real_cohort(tmp_path, replace(SIZES[request.param], staleness=1))


def alone(made_up: np.ndarray, made: list):
    """The victim alone gets a spec with this model; its answer is kept from the honest node."""

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
    """The victim gets no chunk, and the holders' signatures that the node has."""

    def conduct(cohort, name, request):
        spec, parts = read_spec("round", request.frame)
        kept = {name: part for name, part in parts.items() if not name.startswith("opened-")}
        frame = spec_frame("round", spec, kept | vouchers(cohort, spec))
        return [cohort.speak(name, Request("train", request.tag, frame))]

    return conduct


def attacked(cohort, vouchers=lambda cohort, spec: {}, made=None):
    """Two rounds: the victim alone in the first, sent nothing in the second. Returns the outcome and the lie."""
    made = [] if made is None else made
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

    outcome, _ = attacked(cohort, corrupt, lies)
    check_refused(cohort, outcome)


def test_holders_do_not_open_a_round_of_one(cohort):
    _, lie = attacked(cohort)
    update = next(e for e in map(envelope, cohort.said[VICTIM, "round"]) if e.head.spec == lie.digest())
    request = bytes(lie.sum_params.request_bytes)
    frame = spec_frame("open", lie, {**MARKED, "roster": roster_part([update.signed]), "request": request})
    assert {reason_of(cohort, name, frame) for name in cohort.size.holder_names} == {"min-survivors"}


def test_control_without_the_holders_word_the_update_counts(cohort, monkeypatch):
    monkeypatch.setattr(copies, "opened_by", lambda *_: set(range(9)))
    # an honest node would check the client's statement
    monkeypatch.setattr("fednode.driver.downloads.Downloads.check", lambda *_: None)
    outcome, lie = attacked(cohort)
    assert VICTIM in outcome.survivors and cohort.trained_from[VICTIM] == Basis(1, lie.model_digest)


def test_an_honest_node_finds_a_model_that_it_never_published(cohort, monkeypatch):
    """The client's signed statement names no published version."""
    monkeypatch.setattr(copies, "opened_by", lambda *_: set(range(9)))
    outcome, _ = attacked(cohort)
    assert outcome.cause == "" and outcome.rejected == ((VICTIM, "another-model"),)


class Enough(Exception):
    """The honest node's next requests are captured."""


def left_alone(cohort, monkeypatch):
    """The victim has the model of round 1, the rest went on to round 5. Returns the lies about round 6 by client: its
    honest spec with the version after the victim's, what comes with it, and the newest model."""
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
    spec, _ = read_spec("round", sent[VICTIM].frame)
    held = cohort.client(VICTIM)._models._held(TASK)
    assert held.round == 1 and spec.model_version - held.basis.version == 5
    vouchers = opening_parts({cohort.cohort.member(one.head.sender).point: one for one in opened})
    lies = {
        name: spec_frame(
            "round",
            replace(spec, model_version=held.basis.version + 1),
            read_spec("round", request.frame)[1] | vouchers,
        )
        for name, request in sent.items()
    }
    return lies, chunked(cohort.task().model(driver.parameters()))


def test_an_older_version_by_the_nodes_word_does_not_make_a_copy_newer(cohort, monkeypatch):
    lies, newest = left_alone(cohort, monkeypatch)
    for _ in range(2):
        assert reason_of(cohort, VICTIM, lies[VICTIM], {}) == "missing-chunks"
        cohort.restart(VICTIM)
    # clients that advanced join no round that goes back
    assert {reason_of(cohort, name, lies[name], newest) for name in cohort.size.client_names[1:]} == {"past-round"}


def test_control_by_versions_alone_the_victim_trains_from_the_oldest_model(cohort, monkeypatch):
    lies, _ = left_alone(cohort, monkeypatch)
    monkeypatch.setattr(copies, "_may_lag", lambda held, card, spec, _: spec.model_version - held.basis.version == 1)
    assert reason_of(cohort, VICTIM, lies[VICTIM], {}) == "" and cohort.trained_from[VICTIM].version == 1


def test_another_model_for_one_client_in_the_rounds_own_spec(cohort):
    def swapped(cohort, name, request):
        other = {name: chunk + np.float32(1) for name, chunk in request.chunks.items()}
        return [cohort.speak(name, replace(request, chunks=other))]

    cohort.tell(VICTIM, swapped)
    assert cohort.begun().run_round(1).rejected == ((VICTIM, "refused: another-model"),)
    assert len([r for name, r in cohort.asked("round") if name == VICTIM and round_of(r) == 1]) == 1
