"""What a client joins, what it refuses, and that it sends one update a round and the same bytes on a retry."""

from dataclasses import replace

import numpy as np
import pytest
from kit.cohort import TASK, FakeCohort, FakeSum, Size, failing, wide_limits
from kit.history.judging import judge

from fednode.disk import atomic as files
from fednode.driver.steps.ceremony import agree_on_key
from fednode.errors import ConfigError, PeerFault, StoreError
from fednode.protocol.envelope import Envelope
from fednode.protocol.model import model_digest
from fednode.protocol.requests import ask_frame
from fednode.protocol.spec import RoundSpec
from fednode_clients.client.client import Client
from fednode_clients.keyfolder.state_files import StateFiles
from fednode_clients.keyfolder.untrained import untrained
from fednode_crypto import scheme

MODEL = model_digest({"w": np.zeros(5, dtype=np.float32)})


class Desk:
    """A client that took a task."""

    def __init__(self, root, limits=None, secure=False, size=None) -> None:
        self.kit = FakeCohort(root, size or Size(clients=3, holders=2), scheme("bfv") if secure else None, limits)
        agreed = agree_on_key(self.kit.node(), self.kit.task())
        self.key = agreed.key
        self.client.take_task(ask_frame("task", TASK, agreed.card.parts() | agreed.published.parts()))

    @property
    def client(self) -> Client:
        return self.kit.client("client-1")

    def restart(self) -> None:
        self.kit.restart("client-1")

    def spec(self, number=1, **changes) -> RoundSpec:
        task = self.kit.task()
        digests = (MODEL, task.cohort.digest(), self.key.digest())
        return RoundSpec(TASK, number, 1, *digests, replace(task.terms, **changes), task.sum_params)

    def join(self, spec, vector=None) -> bytes:
        assert judge(self.client, spec) is None
        return self.client.answer(spec, lambda: FakeSum(np.ones(5) / 3 if vector is None else vector))

    def must_refuse(self, spec, reason) -> None:
        """Refused, by this process and the next, and nothing can be sealed for it."""
        for _ in range(2):
            with pytest.raises(PeerFault) as refused:
                judge(self.client, spec)
            assert refused.value.reason == reason
            with pytest.raises(PeerFault, match="no-consent"):
                self.client.answer(spec, lambda: FakeSum(np.zeros(5)))
            self.restart()


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


# --- joining


def test_an_update_is_signed_sized_and_for_this_round(desk):
    spec = desk.spec()
    envelope = Envelope.from_bytes(desk.join(spec), spec.sum_params.payload_bytes)
    assert envelope.signed.verified(desk.kit.cohort).name == "client-1"
    head = envelope.head
    assert (head.kind, head.task, head.round, head.spec) == ("update", TASK, 1, spec.digest())
    assert len(envelope.body) == spec.sum_params.payload_bytes


@pytest.mark.parametrize("secure", [False, True])
def test_a_retry_of_the_same_spec_gives_the_same_bytes(tmp_path, secure):
    desk = Desk(tmp_path, secure=secure)
    frame = desk.join(desk.spec())
    assert judge(desk.client, desk.spec()) == frame
    desk.restart()
    assert judge(desk.client, desk.spec()) == frame
    assert len(desk.client.folder.audit_log.entries()) == 1


def test_a_new_round_is_a_new_update(desk):
    first, second = desk.join(desk.spec(1)), desk.join(desk.spec(2))
    assert first != second
    desk.must_refuse(desk.spec(1), "second-spec")


@pytest.mark.parametrize(
    "change",
    [{"clip": 0.5}, {"local_variance": 1 << 17}, {"assumed_colluders": 0}, {"deadline": 1.0}, {"divisor": 3.0}, None],
)
def test_a_second_spec_for_a_round(desk, change):
    desk.join(desk.spec())
    other = replace(desk.spec(), model_version=2) if change is None else desk.spec(**change)
    desk.must_refuse(other, "second-spec")
    assert judge(desk.client, desk.spec()) is not None


def test_a_round_that_was_joined_but_whose_bytes_are_gone_is_not_sealed_again(desk):
    desk.join(desk.spec())
    desk.client.folder.state.drop(f"sealed/{TASK}")
    desk.must_refuse(desk.spec(), "second-spec")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda spec: replace(spec, cohort_digest=bytes(32)), "another-task"),
        (lambda spec: replace(spec, key_digest=bytes(32)), "another-task"),
        (lambda spec: replace(spec, sum_params=replace(spec.sum_params, dimension=6)), "another-task"),
        (lambda spec: replace(spec, task="task-2"), "unknown-task"),
        # the round of the known vector is for holders
        (lambda spec: replace(spec, round=0), "not-a-client"),
    ],
)
def test_another_task_cohort_key_or_sum(desk, change, reason):
    desk.must_refuse(change(desk.spec()), reason)


def test_a_holder_sends_no_updates(desk):
    holder = desk.kit.client("holder-1")
    with pytest.raises(PeerFault, match="not-a-client"):
        judge(holder, desk.spec())


# --- its own limits


def test_floor_of_survivors(tmp_path):
    desk = Desk(tmp_path, wide_limits(floor_survivors=3))
    desk.must_refuse(desk.spec(min_survivors=2, assumed_colluders=0), "min-survivors")
    assert judge(desk.client, desk.spec()) is None
    # two honest ones are the least, whatever the floor
    desk.kit.limits = wide_limits()
    desk.restart()
    desk.must_refuse(desk.spec(min_survivors=2, assumed_colluders=1), "min-survivors")
    desk.must_refuse(desk.spec(min_survivors=1, assumed_colluders=0), "min-survivors")


def test_units(tmp_path):
    desk = Desk(tmp_path, wide_limits(units=("customer",)))
    desk.must_refuse(desk.spec(), "unit-refused")
    desk.must_refuse(desk.spec(unit="client", max_records=1), "unit-refused")
    assert judge(desk.client, desk.spec(unit="customer")) is None


def test_floor_of_noise(tmp_path):
    desk = Desk(tmp_path, wide_limits(min_noise=1.0))
    desk.must_refuse(desk.spec(local_variance=1 << 14), "noise-floor")
    desk.must_refuse(desk.spec(clip=8.0), "noise-floor")
    desk.must_refuse(desk.spec(grid_bits=12), "noise-floor")
    assert judge(desk.client, desk.spec()) is None


def test_cap_of_rounds_by_number(tmp_path):
    desk = Desk(tmp_path, wide_limits(max_rounds=2))
    desk.join(desk.spec(1))
    desk.join(desk.spec(2))
    desk.must_refuse(desk.spec(3), "round-cap")


def test_cap_of_rounds_counts_those_joined(tmp_path):
    desk = Desk(tmp_path)
    for number in (7, 8):
        desk.join(desk.spec(number))
    desk.kit.limits = wide_limits(max_rounds=2)
    desk.restart()
    desk.must_refuse(desk.spec(1), "round-cap")


# --- sealing


def test_nothing_is_sealed_that_was_not_judged(desk):
    with pytest.raises(PeerFault, match="no-consent"):
        desk.client.answer(desk.spec(), lambda: FakeSum(np.zeros(5)))
    judge(desk.client, desk.spec())
    with pytest.raises(PeerFault, match="no-consent"):
        desk.client.answer(desk.spec(clip=0.5), lambda: FakeSum(np.zeros(5)))
    assert desk.client.folder.audit_log.entries() == []


def test_one_judgement_is_good_for_one_update(desk):
    desk.join(desk.spec())
    with pytest.raises(PeerFault, match="no-consent"):
        desk.client.answer(desk.spec(), lambda: FakeSum(np.zeros(5)))
    assert len(desk.client.folder.audit_log.entries()) == 1


NOT_SEALED = {
    "not finite": lambda: FakeSum(np.array([0, 0, np.nan, 0, 0])),
    "too short": lambda: FakeSum(np.zeros(4)),
    "too many dimensions": lambda: FakeSum(np.zeros((5, 5))),
    "another clip": lambda: FakeSum(np.zeros(5), clip=2.0),
    "complex": lambda: FakeSum(np.zeros(5, dtype=complex)),
    "nothing": lambda: None,
    "an error": failing(ZeroDivisionError("4929")),
    "no memory": failing(MemoryError()),
    "a fault": failing(PeerFault("wrong-shape", "4929")),
    "a setting": failing(ConfigError("4929")),
    "a disk": failing(StoreError("4929")),
}


@pytest.mark.parametrize("train", NOT_SEALED.values(), ids=NOT_SEALED.keys())
def test_without_a_sum_that_honest_training_gives_zeros_and_noise_are_sealed(tmp_path, train):
    sealed = []
    for number, given in enumerate((lambda: FakeSum(np.zeros(5)), train)):
        desk = Desk(tmp_path / str(number))
        desk.kit.speaking = "client-1"
        judge(desk.client, desk.spec())
        envelope = Envelope.from_bytes(desk.client.answer(desk.spec(), given), desk.spec().sum_params.payload_bytes)
        assert envelope.head.kind == "update"
        sealed.append(desk.kit.plain["client-1"])
    assert np.array_equal(*sealed) and sealed[0].any()


def test_the_owner_finds_how_often_training_gave_nothing(desk, monkeypatch):
    assert untrained(desk.client.folder.state) == {}
    for number, train in ((1, failing(KeyError(7))), (2, lambda: FakeSum(np.zeros(5))), (3, lambda: None)):
        judge(desk.client, desk.spec(number))
        desk.client.answer(desk.spec(number), train)
    desk.restart()
    note = {"untrained": TASK, "round": 3, "reason": "AttributeError", "rounds": 2}
    assert untrained(desk.client.folder.state) == note


def test_a_disk_that_does_not_take_the_note_refuses_nothing(desk, monkeypatch):
    put = StateFiles.put

    def full(self, name, data):
        if name == "untrained":
            raise StoreError("full")
        put(self, name, data)

    monkeypatch.setattr(StateFiles, "put", full)
    judge(desk.client, desk.spec())
    assert len(desk.client.answer(desk.spec(), lambda: None)) > 0
    assert untrained(desk.client.folder.state) == {}


def test_a_sum_without_room_is_refused_before_the_data_are_looked_at(desk):
    desk.must_refuse(desk.spec(local_variance=1 << 40), "no-room")
    desk.must_refuse(desk.spec(max_records=1 << 30), "no-room")


def test_an_update_that_cannot_be_recorded_is_not_sent(desk, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    judge(desk.client, desk.spec())
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            desk.client.answer(desk.spec(), lambda: FakeSum(np.zeros(5)))
    assert desk.client.folder.audit_log.entries() == []
    assert len(desk.join(desk.spec())) > 0


# --- refusals


@pytest.mark.parametrize(
    ("fault", "reason", "detail"),
    [
        (PeerFault("noise-floor", "too quiet"), "noise-floor", "too quiet"),
        (PeerFault("bare"), "bare", "bare"),
        (PeerFault("lines", "one\ntwo\tthree\x00four"), "lines", "one two three four"),
        (PeerFault("r" * 100, "d" * 1000), "r" * 64, "d" * 512),
        (PeerFault("\n", "\n"), "no reason given", "no reason given"),
    ],
)
def test_a_refusal_is_signed_and_readable(desk, fault, reason, detail):
    envelope = Envelope.from_bytes(desk.client.refuse(desk.spec(), fault), 0)
    assert envelope.signed.verified(desk.kit.cohort).name == "client-1"
    assert (envelope.about.text("reason", 64), envelope.about.text("detail", 512)) == (reason, detail)
    assert envelope.head.spec == desk.spec().digest()
