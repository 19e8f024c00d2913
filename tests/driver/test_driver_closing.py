"""A round that has failed is over for its holders too: key and boxes are gone, whatever is asked afterwards."""

import numpy as np
import pytest
from kit import cohort as kit
from kit.cohort import TASK, FakeCohort, Size, failing

from fednode.driver import Request
from fednode.driver.steps.close import PATIENCE
from fednode.errors import StoreError
from fednode.protocol.envelope import Envelope, Topic
from fednode.protocol.requests import TaskCard, ask_frame, close_request, frame_kind, key_request

SIZE = Size(scheme="ring")


@pytest.fixture
def cohort(tmp_path):
    return FakeCohort(tmp_path, SIZE)


def silenced(cohort, kind, names):
    for name in names:
        cohort.tell(name, kit.silent, kind)


def answered(cohort, name, frame):
    """The kind of the answer, or the reason of the refusal."""
    envelope = Envelope.from_bytes(cohort.speak(name, Request("query", "t", frame)), 1 << 26)
    return envelope.about.text("reason", 64) if envelope.head.kind == "refusal" else envelope.head.kind


def secrets_of(cohort, name):
    """Bytes of the key of a round, and of its boxes, in a holder's folder."""
    folder = cohort.folder(name)
    return len(folder.state.get(f"box-key/{TASK}") or b"") - 8, len(folder.state.get(f"boxes/{TASK}") or b"")


def fail_in(cohort, kind):
    """A round that fails where holders are asked this, for want of two of them; or "round", for want of clients."""
    names = cohort.size.client_names if kind == "round" else cohort.size.holder_names[:2]
    silenced(cohort, kind, names)
    outcome = cohort.begun().run_round(1)
    assert outcome.cause in ("too-few-survivors", "too-few-holders")
    return outcome


@pytest.mark.parametrize("kind", ["round", "boxes", "confirm", "open"])
def test_after_a_round_that_failed_no_holder_has_its_key_or_boxes(cohort, kind):
    outcome = fail_in(cohort, kind)
    assert all(secrets_of(cohort, name) == (0, 0) for name in cohort.size.holder_names)
    told = {name for name, _ in cohort.asked("close")}
    assert told == set(cohort.size.holder_names) - set(outcome.answered)


@pytest.mark.parametrize("restarted", [False, True])
def test_who_says_failed_and_asks_to_open_is_refused(cohort, restarted):
    fail_in(cohort, "open")
    for name in cohort.size.holder_names[:2]:
        if restarted:
            cohort.restart(name)
        asked = {kind: dict(cohort.asked(kind)) for kind in ("boxes", "confirm", "open")}
        cohort.forgive()
        assert answered(cohort, name, asked["boxes"][name].frame) == "bad-request"
        assert answered(cohort, name, asked["open"][name].frame) == "bad-request"
        # the same signature once more opens nothing: there is no key
        assert answered(cohort, name, asked["confirm"][name].frame) == "confirmed"
        assert answered(cohort, name, key_request(TASK, 1)) == "round-closed"
        assert secrets_of(cohort, name) == (0, 0)


def test_a_holder_that_was_told_before_its_boxes_came_takes_none_and_signs_nothing(cohort):
    driver = cohort.begun()

    def early(cohort, name, request):
        cohort.speak(name, Request("query", "t", close_request(TASK, 1)))
        return [cohort.speak(name, request)]

    cohort.tell("holder-1", early, "boxes")
    outcome = driver.run_round(1)
    assert outcome.cause == "" and outcome.silent == (("holder-1", "refused: bad-request"),)
    assert not [name for name, _ in cohort.asked("confirm") if name == "holder-1"]
    assert answered(cohort, "holder-1", cohort.asked("confirm")[0][1].frame) == "bad-request"


def test_where_nobody_says_so_the_round_can_be_opened_as_before(cohort):
    silenced(cohort, "close", cohort.size.holder_names)
    fail_in(cohort, "open")
    frame = dict(cohort.asked("open"))["holder-1"].frame
    assert secrets_of(cohort, "holder-1")[0] == 32
    assert answered(cohort, "holder-1", frame) == "answer"


@pytest.mark.parametrize("number", [1, 2, 4, 5, 1000, 1001, 9_999_999])
def test_the_word_about_another_round_destroys_nothing_and_puts_nothing_into_the_past(cohort, number):
    holder = "holder-1"
    cohort.speak(holder, Request("query", "t", ask_frame("task", TASK, _card(cohort))))
    key = cohort.speak(holder, Request("query", "t", key_request(TASK, 3)))
    assert answered(cohort, holder, close_request(TASK, number)) == ("closed" if number <= 1000 else "round-cap")
    assert secrets_of(cohort, holder)[0] == 32
    assert cohort.speak(holder, Request("query", "t", key_request(TASK, 3))) == key
    assert answered(cohort, holder, key_request(TASK, 4)) == "box-key"


def _card(cohort):
    return TaskCard(TASK, cohort.cohort, cohort.size.sum_params()).parts()


def test_a_holder_without_any_key_has_nothing_to_destroy_and_may_make_one_later(cohort):
    cohort.speak("holder-1", Request("query", "t", ask_frame("task", TASK, _card(cohort))))
    assert answered(cohort, "holder-1", close_request(TASK, 1)) == "closed"
    assert answered(cohort, "holder-1", key_request(TASK, 1)) == "box-key"
    assert answered(cohort, "holder-1", close_request("another", 1)) == "unknown-task"
    for frame in (ask_frame("close", TASK), ask_frame("close", TASK, {"round": b"0"})):
        assert answered(cohort, "holder-1", frame) == "malformed"


def test_what_was_opened_is_answered_again_whatever_is_said_of_it(cohort):
    assert cohort.begun().run_round(1).cause == ""
    frame = dict(cohort.asked("open"))["holder-1"].frame
    before = cohort.folder("holder-1").audit_log.entries()
    assert answered(cohort, "holder-1", close_request(TASK, 1)) == "closed"
    assert answered(cohort, "holder-1", frame) == "answer"
    assert answered(cohort, "holder-1", key_request(TASK, 1)) == "already-opened"
    assert cohort.folder("holder-1").audit_log.entries() == before


# --- best effort


def test_holders_that_are_gone_are_waited_for_a_little_and_no_more(cohort):
    silenced(cohort, "close", cohort.size.holder_names)
    driver = cohort.begun()
    silenced(cohort, "round", cohort.size.client_names)
    began = cohort.clock.now()
    outcome = driver.run_round(1)
    waited = cohort.clock.now() - began - SIZE.terms().deadline
    assert outcome.cause == "too-few-survivors" and outcome.silent == ()
    assert PATIENCE <= waited <= PATIENCE + 1.0


def test_after_a_release_who_did_not_open_is_told_and_nobody_is_waited_for(cohort):
    silenced(cohort, "open", ["holder-3"])
    driver = cohort.begun()
    outcome = driver.run_round(1)
    assert outcome.cause == "" and [name for name, _ in cohort.asked("close")] == ["holder-3"]
    assert secrets_of(cohort, "holder-3") == (0, 0)
    silenced(cohort, "close", ["holder-3"])
    began = cohort.clock.now()
    assert driver.run_round(2).cause == ""
    assert cohort.clock.now() - began <= SIZE.terms().deadline + 0.5


def of_another_round(cohort, name, request):
    return [cohort.folder(name).signer.write("closed", Topic(TASK, 7)).to_bytes()]


@pytest.mark.parametrize(
    "conduct", [kit.garbage, kit.breaking, kit.repeating, kit.borrowing("holder-2"), of_another_round]
)
def test_whatever_holders_answer_the_round_ends_as_it_did(cohort, conduct):
    for name in cohort.size.holder_names:
        cohort.tell(name, conduct, "close")
    outcome = fail_in(cohort, "boxes")
    assert outcome.cause == "too-few-holders" and outcome.reason.endswith("are needed to open")


class Unsendable:
    """The way to the members, over which the last word to holders does not go."""

    def __init__(self, cohort, monkeypatch):
        self.sent = cohort.send
        monkeypatch.setattr(cohort, "send", self.send)

    def send(self, requests):
        if any(frame_kind(request.frame) == "close" for request in requests.values()):
            raise ConnectionError("somebody's words")
        self.sent(requests)


def test_a_word_that_cannot_be_sent_costs_no_release(cohort, monkeypatch, caplog):
    driver = cohort.begun()
    before = driver.parameters().copy()
    silenced(cohort, "open", ["holder-1"])
    Unsendable(cohort, monkeypatch)
    outcome = driver.run_round(1)
    assert outcome.cause == "" and driver.broken is None
    assert not np.array_equal(driver.parameters(), before)
    assert "holder-1 may not know that it is over" in caplog.text and "somebody's words" not in caplog.text
    cohort.forgive()
    assert driver.run_round(2).cause == ""


def test_a_word_that_cannot_be_sent_hides_no_failure(cohort, monkeypatch):
    Unsendable(cohort, monkeypatch)
    assert fail_in(cohort, "boxes").reason.endswith("are needed to open")


@pytest.mark.parametrize("unsendable", [False, True])
@pytest.mark.parametrize("where", ["privacy.Ledger.charge", "driver.downloads.Downloads.publish"])
def test_a_store_that_breaks_ends_the_round_for_the_holders_too(cohort, monkeypatch, where, unsendable):
    driver = cohort.begun()
    silenced(cohort, "open", ["holder-3"])
    if unsendable:
        Unsendable(cohort, monkeypatch)
    monkeypatch.setattr(f"fednode.{where}", failing(StoreError("the disk is gone")))
    with pytest.raises(StoreError, match="the disk is gone"):
        driver.run_round(1)
    assert (driver.broken.release is None) == where.endswith("charge")
    assert unsendable or all(secrets_of(cohort, name) == (0, 0) for name in cohort.size.holder_names)


# --- holders whose disk fails them, or that die


def test_a_holder_on_a_full_disk_destroys_its_key_all_the_same(cohort, monkeypatch):
    def full(path, *_):
        raise StoreError(f"could not write {path}: No space left on device")

    def conduct(cohort, name, request):
        with monkeypatch.context() as disk:
            disk.setattr("fednode_clients.keyfolder.folder.write_whole", full)
            return [cohort.speak(name, request)]

    for name in cohort.size.holder_names:
        cohort.tell(name, conduct, "close")
    fail_in(cohort, "open")
    assert all(secrets_of(cohort, name) == (0, 0) for name in cohort.size.holder_names)
    assert answered(cohort, "holder-1", key_request(TASK, 1)) == "round-closed"


class Killed(BaseException):
    """The process is gone."""


def dying(monkeypatch, place):
    def conduct(cohort, name, request):
        with monkeypatch.context() as last, pytest.raises(Killed):
            last.setattr(f"fednode_clients.{place}", failing(Killed()))
            cohort.speak(name, request)
        cohort.restart(name)
        assert secrets_of(cohort, name)[1] > 0
        return [cohort.speak(name, request)]

    return conduct


@pytest.mark.parametrize(
    "place",
    [
        "holder.box_store.BoxStore.close",
        "keyfolder.state_files.StateFiles.shorten",
        "keyfolder.state_files.StateFiles.drop",
    ],
)
def test_a_holder_that_dies_before_its_key_is_destroyed_destroys_it_when_asked_again(cohort, monkeypatch, place):
    driver = cohort.begun()
    cohort.tell("holder-1", dying(monkeypatch, place), "open")
    outcome = driver.run_round(1)
    assert outcome.cause == "" and "holder-1" in outcome.answered and not cohort.asked("close")
    assert secrets_of(cohort, "holder-1") == (0, 0)


def test_under_bfv_there_is_nothing_to_close(tmp_path):
    cohort = FakeCohort(tmp_path, Size())
    driver = cohort.begun()
    silenced(cohort, "round", cohort.size.client_names)
    assert driver.run_round(1).cause == "too-few-survivors"
    assert not cohort.asked("close")
    assert answered(cohort, "holder-1", close_request(TASK, 1)) == "unexpected"
