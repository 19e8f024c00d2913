"""Clients are sent what they do not hold, by their own signed word; the result has the same bits as sending it all."""

from dataclasses import replace

import numpy as np
import pytest
from kit import cohort as kit
from kit.cohort import FakeCohort, Size, round_of

from fednode.driver import Reply
from fednode.errors import PeerFault
from fednode.protocol.envelope import Envelope
from fednode.protocol.model import BASIS, Basis
from fednode.protocol.requests import read_spec
from fednode.reasons import Reason

FROZEN = {"ice": np.linspace(0, 1, 1_000, dtype=np.float32), "snow": np.ones((3, 4), dtype=np.float32)}
RING = Size(holders=3, threshold=3, scheme="ring")
LAZY = Size(staleness=1)


@pytest.fixture
def cohort(tmp_path):
    cohort = FakeCohort(tmp_path)
    cohort.frozen = dict(FROZEN)
    return cohort


@pytest.fixture
def lazy(tmp_path):
    return FakeCohort(tmp_path, LAZY)


def sent(cohort, number, name="client-1"):
    """The chunks of each request to a client in a round."""
    return [sorted(r.chunks) for member, r in cohort.asked("round") if (member, round_of(r)) == (name, number)]


ALL = ["ice/0", "snow/0", "w/0"]


# --- chunks that did not change


def test_frozen_arrays_come_down_once(cohort):
    driver = cohort.begun()
    outcomes = [driver.run_round(number) for number in (1, 2, 3)]
    assert [outcome.cause for outcome in outcomes] == [""] * 3
    assert [sent(cohort, number) for number in (1, 2, 3)] == [[ALL], [["w/0"]], [["w/0"]]]
    frames = {n: np.mean([len(r.frame) for _, r in cohort.asked("round") if round_of(r) == n]) for n in (1, 2, 3)}
    trained, frozen = 4 * 5, 4 * (1_000 + 12)
    downs = [outcome.bytes_down for outcome in outcomes]
    assert downs == [frames[1] + trained + frozen, frames[2] + trained, frames[3] + trained]


def test_the_bits_are_those_of_a_run_that_sends_everything(tmp_path):
    ended = []
    for forgetful in (False, True):
        cohort = FakeCohort(tmp_path / str(forgetful))
        cohort.frozen = dict(FROZEN)
        driver = cohort.begun()
        for number in range(1, 5):
            if forgetful:
                for name in cohort.size.client_names:
                    driver.downloads.forget(name)
            cohort.tell("client-2", kit.silent, rounds={2})
            assert driver.run_round(number).cause == ""
        ended.append(driver.parameters().tobytes())
        assert (sent(cohort, 4) == [ALL]) is forgetful
    assert ended[0] == ended[1]


def test_a_client_that_was_away_gets_what_it_missed(cohort):
    driver = cohort.begun()
    driver.run_round(1)
    cohort.tell("client-2", kit.silent, rounds={2})
    assert driver.run_round(2).lost == ("client-2",)
    driver.run_round(3)
    assert sent(cohort, 3, "client-2") == [["w/0"]]
    assert cohort.trained_from["client-2"].version == 3


@pytest.mark.parametrize("conduct", [kit.garbage, kit.borrowing("client-1"), kit.breaking, kit.short_body])
def test_what_is_not_a_members_signed_word_proves_nothing(cohort, conduct):
    cohort.tell("client-2", conduct, rounds={1})
    driver = cohort.begun()
    driver.run_round(1)
    cohort.forgive()
    assert driver.run_round(2).cause == ""
    # what is short is still signed, and for this very spec: it proves a copy, not that it was trained well
    assert sent(cohort, 2, "client-2") == [["w/0"] if conduct is kit.short_body else ALL]


def test_a_late_reply_still_proves_a_copy(cohort):
    kept = []

    def slow(cohort, name, request):
        kept.append(Reply(name, request.tag, cohort.speak(name, request)))
        return []

    cohort.tell("client-3", slow, rounds={1})
    driver = cohort.begun()
    assert driver.run_round(1).lost == ("client-3",)
    cohort.late += kept
    outcome = driver.run_round(2)
    assert sent(cohort, 2, "client-3") == [ALL]
    assert outcome.discarded == (("client-3", "late"),) and len(outcome.survivors) == 4
    driver.run_round(3)
    assert sent(cohort, 3, "client-3") == [["w/0"]]


def test_nothing_comes_down_where_the_model_did_not_change(cohort):
    """A round without a release: the next one is about the same version."""
    for name in ("client-1", "client-2"):
        cohort.tell(name, kit.silent, rounds={1})
    driver = cohort.begun()
    assert driver.run_round(1).cause == "too-few-survivors"
    assert driver.run_round(2).cause == ""
    assert sent(cohort, 2, "client-3") == [[]] and sent(cohort, 2, "client-1") == [ALL]


# --- copies that were lost


def lost(cohort, name):
    """The process ends, and its key folder is restored from before the copy."""
    folder = cohort.folder(name)
    for entry in ("copy", *(f"copy/{chunk.id}" for chunk in cohort.task().outline.chunks())):
        folder.state.drop(entry)
    cohort.restart(name)


def test_a_client_that_lost_its_copy_does_not_lose_the_round(cohort):
    driver = cohort.begun()
    driver.run_round(1)
    lost(cohort, "client-2")
    outcome = driver.run_round(2)
    assert "client-2" in outcome.survivors and outcome.rejected == () and outcome.lost == ()
    assert sent(cohort, 2, "client-2") == [["w/0"], ALL]
    frames = sum(len(r.frame) for _, r in cohort.asked("round") if round_of(r) == 2)
    assert outcome.bytes_down == (frames + 4 * (5 * 5 + 1_012)) / 4
    driver.run_round(3)
    assert sent(cohort, 3, "client-2") == [["w/0"]]


# --- older models


def test_a_client_may_train_from_the_version_before(lazy):
    driver = lazy.begun()
    outcomes = [driver.run_round(number) for number in range(1, 5)]
    assert all(len(outcome.survivors) == 4 for outcome in outcomes)
    assert [sent(lazy, number) for number in range(1, 5)] == [[["w/0"]], [[]], [["w/0"]], [[]]]
    specs = [read_spec("round", r.frame)[0] for name, r in lazy.asked("round") if name == "client-1"]
    assert [spec.model_version for spec in specs] == [1, 2, 3, 4]
    assert lazy.trained_from["client-1"] == Basis(3, specs[2].model_digest)


@pytest.mark.parametrize("size", [LAZY, replace(RING, staleness=2)])
def test_an_update_says_by_hash_which_model_it_is_of(tmp_path, size):
    cohort = FakeCohort(tmp_path, size)
    driver = cohort.begun()
    for number in range(1, 4):
        assert driver.run_round(number).cause == ""
    first, second, third = (Envelope.from_bytes(f, 1 << 26, 1 << 20) for f in cohort.said["client-1", "round"])
    assert len({envelope.attached[BASIS] for envelope in (first, second)}) == 1
    assert (first.attached[BASIS] == third.attached[BASIS]) is (size.staleness == 2)
    assert Basis.from_bytes(first.attached[BASIS]).version == 1
    # the head goes to every holder in every roster: hashes and the check of the shares, and nothing beside them
    assert set(third.head.about) - {"check"} == {"attached"} and set(third.head.attached()) == set(third.attached)


def test_after_a_round_that_failed_nothing_vouches_for_its_copies(lazy):
    driver = lazy.begun()
    for name in ("client-1", "client-2"):
        lazy.tell(name, kit.silent, rounds={1})
    assert driver.run_round(1).cause == "too-few-survivors"
    lazy.tell("client-3", kit.silent, rounds={2})
    assert driver.run_round(2).cause == ""
    assert driver.run_round(3).cause == ""
    # client-3 proved version 1 in a round that nobody opened
    assert sent(lazy, 3, "client-3") == [["w/0"]] and sent(lazy, 3, "client-4") == [[]]


def claiming(version, digest=None):
    """Trains honestly, and says that it was from another model."""

    def changed(told):
        basis = Basis.from_bytes(told.attached[BASIS])
        said = Basis(basis.version + version, basis.digest if digest is None else digest)
        return {"attached": {**told.attached, BASIS: said.to_bytes()}}

    return kit.resigning(changed)


@pytest.mark.parametrize(
    ("conduct", "reason"),
    [
        (claiming(-1), "another-model"),
        (claiming(-2), "stale"),
        (claiming(1), "another-model"),
        (claiming(0, bytes(32)), "another-model"),
    ],
)
def test_an_update_of_a_model_that_was_not_published_or_is_too_old_is_refused(lazy, conduct, reason):
    driver = lazy.begun()
    driver.run_round(1)
    driver.run_round(2)
    lazy.tell("client-4", conduct, rounds={3})
    outcome = driver.run_round(3)
    assert outcome.rejected == (("client-4", reason),) and outcome.cause == ""
    assert len(outcome.survivors) == 3


@pytest.mark.parametrize("attached", [{}, {BASIS: bytes(39)}, {"more": bytes(40)}])
def test_an_update_that_does_not_say_is_refused(lazy, attached):
    lazy.tell("client-4", kit.resigning(lambda _: {"attached": attached}))
    outcome = lazy.begun().run_round(1)
    assert outcome.rejected == (("client-4", "malformed"),) and outcome.cause == ""


def test_members_that_did_not_agree_to_staleness_refuse_it(tmp_path):
    cohort = FakeCohort(tmp_path, LAZY, limits=kit.wide_limits())
    outcome = cohort.begun().run_round(1)
    assert outcome.cause == "too-few-survivors"
    assert {reason for _, reason in outcome.rejected} == {"refused: staleness"}


# --- what a task is made of


def test_frozen_arrays_are_float32_and_have_names_of_their_own(cohort):
    for frozen, what in (({"ice": np.zeros(3)}, "float32"), ({"w": np.zeros(3, dtype=np.float32)}, "one name")):
        cohort.frozen = frozen
        with pytest.raises(ValueError, match=what):
            cohort.task()


def test_what_is_frozen_stays_as_it_was(cohort):
    task = cohort.task()
    kept = cohort.frozen["ice"].copy()
    cohort.frozen["ice"][:] = 7
    assert np.array_equal(task.frozen["ice"], kept)
    with pytest.raises(ValueError, match="read-only"):
        task.frozen["ice"][0] = 1
    assert list(task.model(np.zeros(5))) == ["w", "ice", "snow"]
    cohort.frozen["ice"][:] = kept


def test_a_request_that_comes_when_its_version_has_expired_is_refused(cohort):
    driver = cohort.begun()
    download = driver._downloads.of_round(driver._spec(1, bytes(32), cohort.size.terms()), lambda _: {})
    for number in (1, 2, 3):
        assert driver.run_round(number).cause == ""
    # superseded, and not yet expired
    assert set(download.requests(("client-1",))["client-1"].chunks) == {"w/0"}
    cohort.clock.sleep(100.0)
    driver.run_round(4)
    for ask in (lambda: download.requests(("client-1",)), lambda: download.again("client-2")):
        with pytest.raises(PeerFault) as refused:
            ask()
        assert refused.value.reason == Reason.EXPIRED_VERSION
    assert sent(cohort, 4, "client-3") == [["w/0"]]
