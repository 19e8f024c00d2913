"""Staleness that an operator changes while a task runs, and how many copies of chunks new versions made stale."""

from dataclasses import replace

import numpy as np
import pytest
from kit import cohort as kit
from kit.cohort import FakeCohort, Size, check_released, round_of

from fednode.driver import Driver, Reply
from fednode.driver.downloads import Proof
from fednode.errors import PeerFault
from fednode.protocol.envelope import Envelope, Topic
from fednode.protocol.model import BASIS
from fednode.protocol.requests import read_spec

LAZY = Size(staleness=2)
RING = replace(LAZY, holders=3, threshold=3, scheme="ring")


class Knob:
    """What the operator last turned it to."""

    def __init__(self, value=0):
        self.value = value

    def __call__(self):
        return self.value


def begun(cohort, knob):
    driver = Driver(replace(cohort.node(), staleness=knob), cohort.task())
    driver.begin(np.zeros(cohort.size.dimension))
    return driver


def sent(cohort, number, name="client-1"):
    return [sorted(r.chunks) for member, r in cohort.asked("round") if (member, round_of(r)) == (name, number)]


def stale_of(cohort):
    """The staleness that each round's spec allowed."""
    specs = [read_spec("round", r.frame)[0] for name, r in cohort.asked("round") if name == "client-1"]
    return [spec.terms.staleness for spec in specs]


@pytest.mark.parametrize("size", [LAZY, RING])
def test_each_round_is_under_what_was_wanted_when_it_began(tmp_path, size):
    cohort, knob = FakeCohort(tmp_path, size), Knob()
    driver = begun(cohort, knob)
    for number, knob.value in enumerate([0, 2, 2, 0, 1, 1, 0], start=1):
        check_released(cohort, driver.run_round(number))
    assert stale_of(cohort) == [0, 2, 2, 0, 1, 1, 0]
    # 2: version 1 is still good; 3 too; 4: nothing old is; 5: version 4 is; 6: it is two behind by then; 7: nothing is
    assert [sent(cohort, n)[0] for n in range(1, 8)] == [["w/0"], [], [], ["w/0"], [], ["w/0"], ["w/0"]]
    updates = [Envelope.from_bytes(frame, 1 << 26, 1 << 20) for frame in cohort.said["client-1", "round"]]
    assert [BASIS in update.attached for update in updates] == [False, True, True, False, True, True, False]


@pytest.mark.parametrize(("wanted", "allowed"), [(0, 0), (1, 1), (2, 2), (3, 2), (10**9, 2), (-1, 0)])
def test_never_more_than_the_members_were_told(tmp_path, wanted, allowed):
    cohort = FakeCohort(tmp_path, LAZY)
    assert begun(cohort, Knob(wanted))._terms(1, frozenset({"client-1"})) == replace(LAZY.terms(), staleness=allowed)


def test_without_a_knob_it_is_the_tasks(tmp_path):
    assert FakeCohort(tmp_path, LAZY).begun()._terms(1, frozenset({"client-1"})) == LAZY.terms()


def claiming(attached_of):
    return kit.resigning(lambda told: {"attached": attached_of(dict(told.attached))})


@pytest.mark.parametrize("size", [LAZY, RING])
def test_an_update_keeps_to_its_own_rounds_terms(tmp_path, size):
    """Whoever says which model it is of where that is not asked, or does not say so where it is, is refused."""
    cohort, knob = FakeCohort(tmp_path, size), Knob(1)
    driver = begun(cohort, knob)
    said = []
    cohort.tell("client-4", claiming(lambda parts: said.append(parts[BASIS]) or parts), rounds={1})
    check_released(cohort, driver.run_round(1))
    cohort.tell("client-4", claiming(lambda parts: {n: p for n, p in parts.items() if n != BASIS}), rounds={2})
    cohort.tell("client-4", claiming(lambda parts: {**parts, BASIS: said[0]}), rounds={3})
    assert driver.run_round(2).rejected == (("client-4", "malformed"),)
    knob.value = 0
    assert driver.run_round(3).rejected == (("client-4", "oversize"),)


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 1), (1, 1), (0, 0)])
def test_a_late_update_is_read_by_the_terms_of_its_own_round(tmp_path, before, after):
    def slow(cohort, name, request):
        kept.append(Reply(name, request.tag, cohort.speak(name, request)))
        return []

    cohort, knob, kept = FakeCohort(tmp_path, LAZY), Knob(before), []
    driver = begun(cohort, knob)
    cohort.tell("client-3", slow, rounds={1})
    assert driver.run_round(1).lost == ("client-3",)
    assert driver.downloads.proofs.get("client-3") is None
    cohort.tell("client-3", kit.silent, rounds={2})
    cohort.late, knob.value = list(kept), after
    assert driver.run_round(2).discarded == (("client-3", "late"),)
    assert driver.downloads.proofs.get("client-3").version == 1


def test_a_late_word_about_another_model_proves_nothing(tmp_path):
    cohort = FakeCohort(tmp_path, LAZY)
    driver = cohort.begun()
    driver.run_round(1)
    first = Envelope.from_bytes(cohort.said["client-3", "round"][0], 1 << 26, 1 << 20)
    driver.downloads.proofs.pop("client-3")
    topic = Topic(kit.TASK, 1, first.head.spec)
    signer = cohort.folder("client-3").signer
    wrong = first.attached[BASIS][:-1] + bytes([first.attached[BASIS][-1] ^ 1])
    for envelope in (
        signer.write("checked", topic, first.body),
        signer.write("update", replace(topic, round=2), first.body, attached=first.attached),
        signer.write("update", replace(topic, spec=bytes(32)), first.body, attached=first.attached),
        signer.write("update", topic, first.body, attached={BASIS: wrong}),
    ):
        driver.downloads.learn(envelope)
        assert driver.downloads.proofs.get("client-3") is None
    with pytest.raises(PeerFault):
        driver.downloads.learn(signer.write("update", topic, first.body))
    driver.downloads.learn(first)
    assert driver.downloads.proofs.get("client-3") == Proof(1, first.head.spec)


@pytest.mark.thorough
def test_what_is_kept_of_old_rounds_does_not_grow(tmp_path):
    cohort = FakeCohort(tmp_path, LAZY)
    driver = cohort.begun()
    downloads = driver.downloads
    for number in range(1, 24):
        if number % 3 == 0:
            for name in ("client-1", "client-2"):
                cohort.tell(name, kit.silent, rounds={number})
        driver.run_round(number)
        assert len(downloads._specs) <= 16 and len(downloads._openings) <= 3 and len(downloads._published) <= 3
        assert len(downloads.proofs) <= 4


# --- what a new version makes stale


def test_chunks_that_clients_held_are_counted_when_they_change(tmp_path):
    cohort = FakeCohort(tmp_path)
    cohort.frozen = {"ice": np.ones(9, dtype=np.float32)}
    told = []
    driver = cohort.begun(replace(cohort.node(), invalidated=told.append))
    assert driver.downloads.invalidations == 0
    driver.run_round(1)
    assert driver.downloads.invalidations == 4
    cohort.tell("client-2", kit.silent, rounds={2})
    driver.run_round(2)
    # client-2 did not see version 2: the change to version 3 takes nothing more from it
    assert driver.downloads.invalidations == 4 + 3
    driver.run_round(3)
    assert driver.downloads.invalidations == 4 + 3 + 4 and told == [0, 4, 3, 4]


# --- resends


def test_who_has_sent_its_update_is_sent_nothing_more_for_complaining(tmp_path):
    def both(cohort, name, request):
        spec, _ = read_spec("round", request.frame)
        refused = cohort.client(name).refuse(spec, PeerFault("missing-chunks"))
        return [cohort.speak(name, request), *[refused] * 20]

    cohort = FakeCohort(tmp_path)
    cohort.tell("client-1", both)
    check_released(cohort, cohort.begun().run_round(1))
    assert sent(cohort, 1) == [["w/0"]]


def test_a_complaint_costs_one_whole_model_a_round_however_often_it_comes(tmp_path):
    def lacking(cohort, name, request):
        spec, _ = read_spec("round", request.frame)
        return [cohort.client(name).refuse(spec, PeerFault("missing-chunks"))] * 20

    cohort = FakeCohort(tmp_path)
    cohort.frozen = {"ice": np.ones(9, dtype=np.float32)}
    for name in ("client-1", "client-2"):
        cohort.tell(name, lacking, rounds={1, 2})
    driver = cohort.begun()
    for number in (1, 2):
        outcome = driver.run_round(number)
        assert outcome.cause == "too-few-survivors"
        assert "; 2 refused: missing-chunks" in outcome.reason
        assert len(sent(cohort, number)) == 2
    cohort.forgive()
    check_released(cohort, driver.run_round(3))
    assert sent(cohort, 3) == [["ice/0", "w/0"]] and sent(cohort, 3, "client-3") == [[]]
