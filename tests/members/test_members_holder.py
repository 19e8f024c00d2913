"""What a holder opens, and everything that it does not."""

from dataclasses import replace

import pytest
from kit.cohort import TASK, FakeCohort, Size, wide_limits
from kit.marks import MARKED

from fednode.disk import atomic as files
from fednode.driver.steps.ceremony import AgreedKey, agree_on_key
from fednode.errors import PeerFault, StoreError
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.requests import roster_part, spec_frame
from fednode.protocol.spec import RoundSpec
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_crypto import scheme
from fednode_crypto.identity import SigningKey


class Desk:
    """A cohort with a key, and one holder to ask: `frame` makes the honest request, or a bent one."""

    def __init__(self, root, limits=None, secure=False) -> None:
        self.kit = FakeCohort(root, Size(clients=4, holders=2), scheme("bfv") if secure else None, limits)
        self.node = self.kit.node()
        self.agreed: AgreedKey = agree_on_key(self.node, self.kit.task())

    def spec(self, number=1) -> RoundSpec:
        task = self.kit.task()
        digests = (bytes(32), task.cohort.digest(), self.agreed.key.digest())
        return RoundSpec(TASK, number, 1, *digests, task.terms, task.sum_params)

    def head(self, name: str, spec: RoundSpec, kind="update", body=b"sealed") -> Signed:
        return self.kit.folder(name).signer.write(kind, Topic(spec.task, spec.round, spec.digest()), body).signed

    def roster(self, spec: RoundSpec, names=("client-1", "client-2", "client-3")) -> list[Signed]:
        return [self.head(name, spec) for name in names]

    def frame(self, spec=None, roster=None, request=None) -> bytes:
        spec = spec or self.spec()
        wanted = bytes(spec.sum_params.request_bytes) if request is None else request
        heads = self.roster(spec) if roster is None else roster
        return spec_frame("open", spec, {**MARKED, "roster": roster_part(heads), "request": wanted})

    def ask(self, frame: bytes) -> Envelope:
        return self.kit.holder("holder-1").handle(frame)

    def must_refuse(self, frame: bytes, reason: str, restarted=True) -> None:
        """Refused, with nothing recorded, by this process and by the next."""
        for _ in range(1 + restarted):
            before = self.kit.folder("holder-1").audit_log.entries()
            with pytest.raises(PeerFault) as refused:
                self.ask(frame)
            assert refused.value.reason == reason
            assert self.kit.folder("holder-1").audit_log.entries() == before
            self.kit.restart("holder-1")


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def test_an_honest_roster_is_opened_and_signed(desk):
    answer = desk.ask(desk.frame())
    assert answer.signed.verified(desk.kit.cohort).name == "holder-1"
    assert (answer.head.kind, answer.head.task, answer.head.round) == ("answer", TASK, 1)
    assert answer.head.spec == desk.spec().digest() and len(answer.body) == desk.spec().sum_params.answer_bytes


def test_a_roster_of_one(desk):
    spec = desk.spec()
    desk.must_refuse(desk.frame(roster=desk.roster(spec, ["client-1"])), "min-survivors")
    desk.must_refuse(desk.frame(roster=[]), "min-survivors")
    # fewer than the round promises
    desk.must_refuse(desk.frame(roster=desk.roster(spec, ["client-1", "client-2"])), "min-survivors")


def test_a_repeated_client(desk):
    spec = desk.spec()
    roster = desk.roster(spec, ["client-1", "client-2", "client-2"])
    desk.must_refuse(desk.frame(roster=roster), "repeated")
    other = desk.head("client-2", spec, body=b"another update")
    desk.must_refuse(desk.frame(roster=[*desk.roster(spec), other]), "repeated")


def test_a_header_that_its_client_did_not_sign(desk):
    spec = desk.spec()
    good = desk.roster(spec)
    unsigned = Signed(good[2].head, bytes(64))
    desk.must_refuse(desk.frame(roster=[*good[:2], unsigned]), "bad-signature")
    renamed = Signed(replace(good[2].head, sender="client-4"), good[2].signature)
    desk.must_refuse(desk.frame(roster=[*good[:2], renamed]), "bad-signature")
    by_the_node = Signed(good[2].head, SigningKey.generate().sign(b"envelope", good[2].head.to_bytes()))
    desk.must_refuse(desk.frame(roster=[*good[:2], by_the_node]), "bad-signature")


def test_a_stranger(desk, tmp_path):
    spec = desk.spec()
    outside = KeyFolder.create(tmp_path / "outside", "client-9", SigningKey.generate().public)
    head = outside.signer.write("update", Topic(TASK, 1, spec.digest()), b"sealed").signed
    desk.must_refuse(desk.frame(roster=[*desk.roster(spec), head]), "stranger")
    desk.must_refuse(desk.frame(roster=desk.roster(spec, ["client-1", "client-2", "holder-2"])), "stranger")


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: replace(spec, round=2),
        lambda spec: replace(spec, model_version=2),
        lambda spec: replace(spec, model_digest=b"m" * 32),
        lambda spec: replace(spec, terms=replace(spec.terms, clip=0.5)),
        lambda spec: replace(spec, terms=replace(spec.terms, divisor=2.0)),
        lambda spec: replace(spec, terms=replace(spec.terms, deadline=61.0)),
    ],
)
def test_updates_that_were_made_for_another_spec(desk, change):
    heads = desk.roster(desk.spec())
    desk.must_refuse(desk.frame(spec=change(desk.spec()), roster=heads), "another-spec")
    one_odd = [*desk.roster(change(desk.spec()))[:2], heads[2]]
    desk.must_refuse(desk.frame(spec=change(desk.spec()), roster=one_odd), "another-spec")


def test_something_else_that_a_client_signed_for_this_round(desk):
    spec = desk.spec()
    heads = [*desk.roster(spec)[:2], desk.head("client-3", spec, kind="refusal")]
    desk.must_refuse(desk.frame(roster=heads), "another-spec")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda spec: replace(spec, cohort_digest=bytes(32)), "another-task"),
        (lambda spec: replace(spec, key_digest=bytes(32)), "another-task"),
        (lambda spec: replace(spec, sum_params=replace(spec.sum_params, dimension=6)), "another-task"),
        (lambda spec: replace(spec, sum_params=replace(spec.sum_params, holders=1, threshold=1)), "another-task"),
        (lambda spec: replace(spec, task="task-2"), "unknown-task"),
    ],
)
def test_another_task_cohort_key_or_sum(desk, change, reason):
    desk.must_refuse(desk.frame(spec=change(desk.spec())), reason)


@pytest.mark.parametrize("size", [0, 1, -1, 1 << 20])
def test_a_request_of_the_wrong_size(desk, size):
    right = desk.spec().sum_params.request_bytes
    assert size != right
    desk.must_refuse(desk.frame(request=bytes(size if size >= 0 else right - 1)), "bad-request")


def test_a_request_that_is_out_of_range(tmp_path):
    desk = Desk(tmp_path, secure=True)
    desk.must_refuse(desk.frame(request=b"\xff" * desk.spec().sum_params.request_bytes), "bad-request")


def test_a_second_roster_for_a_round(desk):
    desk.ask(desk.frame())
    spec = desk.spec()
    for names in (["client-1", "client-2", "client-4"], [f"client-{n}" for n in (1, 2, 3, 4)]):
        desk.must_refuse(desk.frame(roster=desk.roster(spec, names)), "already-opened")
    reordered = desk.frame(roster=desk.roster(spec, ["client-3", "client-2", "client-1"]))
    desk.must_refuse(reordered, "already-opened")


def test_another_request_or_spec_for_a_round(desk):
    desk.ask(desk.frame())
    other = b"\1" + bytes(desk.spec().sum_params.request_bytes - 1)
    desk.must_refuse(desk.frame(request=other), "already-opened")
    desk.must_refuse(desk.frame(spec=replace(desk.spec(), model_version=2)), "already-opened")


@pytest.mark.parametrize("secure", [False, True])
def test_the_same_question_gets_the_same_bytes(tmp_path, secure):
    desk = Desk(tmp_path, secure=secure)
    first = desk.ask(desk.frame()).to_bytes()
    assert desk.ask(desk.frame()).to_bytes() == first
    desk.kit.restart("holder-1")
    assert desk.ask(desk.frame()).to_bytes() == first
    assert len([line for line in desk.kit.folder("holder-1").audit_log.entries() if line.get("round") == 1]) == 1


def test_a_lost_answer_is_not_made_a_second_time(desk):
    desk.ask(desk.frame())
    desk.kit.folder("holder-1").state.drop(f"answer/{TASK}")
    desk.must_refuse(desk.frame(), "already-opened")


def test_its_own_floor_of_survivors(tmp_path):
    desk = Desk(tmp_path, wide_limits(floor_survivors=4))
    desk.must_refuse(desk.frame(), "min-survivors")
    spec = replace(desk.spec(), terms=replace(desk.spec().terms, min_survivors=4))
    desk.must_refuse(desk.frame(spec=spec), "min-survivors")
    everyone = desk.roster(spec, desk.kit.size.client_names)
    assert desk.ask(desk.frame(spec=spec, roster=everyone)).head.kind == "answer"


def test_a_floor_that_no_cohort_can_reach_is_no_promise_of_noise(tmp_path):
    """With min_survivors of a million, a client would believe that a million others add noise too, and add none."""
    desk = Desk(tmp_path)
    crowd = replace(desk.spec().terms, min_survivors=1_000_000, local_variance=1)
    desk.must_refuse(desk.frame(spec=replace(desk.spec(), terms=crowd)), "min-survivors")
    with pytest.raises(PeerFault, match="min-survivors"):
        wide_limits().check(replace(desk.spec(), terms=crowd), 4)


def test_the_floor_of_noise_counts_what_rounding_adds(tmp_path):
    """On a coarse grid one record moves the rounded sum by much more than the clip: the ledger charges that."""
    spec = Desk(tmp_path).spec()
    coarse = replace(spec.terms, grid_bits=0, local_variance=1)
    assert coarse.noise_multiplier(10_000) < 0.03 < 0.5 < coarse.noise_multiplier()
    with pytest.raises(PeerFault, match="noise-floor"):
        wide_limits(min_noise=0.5).check(replace(spec, terms=coarse), 4)


def test_its_own_floor_of_noise(tmp_path):
    desk = Desk(tmp_path, wide_limits(min_noise=1.0))
    floor = desk.spec().terms
    assert floor.noise_multiplier() == pytest.approx(2**0.5)
    quiet = replace(desk.spec(), terms=replace(floor, local_variance=1 << 14))
    desk.must_refuse(desk.frame(spec=quiet), "noise-floor")
    loud = replace(desk.spec(), terms=replace(floor, clip=2.0))
    desk.must_refuse(desk.frame(spec=loud), "noise-floor")
    assert desk.ask(desk.frame()).head.kind == "answer"


def test_its_own_cap_of_rounds(tmp_path):
    desk = Desk(tmp_path, wide_limits(max_rounds=2))
    for number in (1, 2):
        assert desk.ask(desk.frame(spec=desk.spec(number))).head.round == number
    desk.must_refuse(desk.frame(spec=desk.spec(3)), "round-cap")


def test_a_cap_that_was_lowered_counts_what_was_opened_before(tmp_path):
    desk = Desk(tmp_path)
    for number in (5, 6, 7):
        desk.ask(desk.frame(spec=desk.spec(number)))
    desk.kit.limits = wide_limits(max_rounds=2)
    desk.kit.restart("holder-1")
    desk.must_refuse(desk.frame(spec=desk.spec(1)), "round-cap")


def test_no_answer_leaves_before_the_record_is_on_the_disk(desk, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    before = desk.kit.folder("holder-1").audit_log.entries()
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            desk.ask(desk.frame())
    assert desk.kit.folder("holder-1").audit_log.entries() == before
    assert desk.ask(desk.frame()).head.kind == "answer"
    assert len(desk.kit.folder("holder-1").audit_log.entries()) == len(before) + 1


def test_the_known_vector_round_opens_for_holders_alone_and_once(desk):
    spec = desk.spec(0)
    desk.must_refuse(desk.frame(spec=spec), "stranger")
    holders = desk.roster(spec, desk.kit.size.holder_names)
    desk.must_refuse(desk.frame(spec=spec, roster=holders[:1]), "min-survivors")
    desk.must_refuse(desk.frame(spec=spec, roster=holders), "already-opened")


def test_more_updates_than_the_sum_has_room_for(tmp_path):
    kit = FakeCohort(tmp_path / "five", Size(clients=5))
    params = replace(kit.size.sum_params(), summands=4)
    small = replace(kit.task(), sum_params=params)
    agreed = agree_on_key(kit.node(), small)
    digests = (bytes(32), kit.cohort.digest(), agreed.key.digest())
    spec = RoundSpec(TASK, 1, 1, *digests, kit.size.terms(), params)
    topic = Topic(TASK, 1, spec.digest())
    heads = [kit.folder(name).signer.write("update", topic, b"s").signed for name in kit.size.client_names]
    parts = {"roster": roster_part(heads), "request": bytes(params.request_bytes)}
    with pytest.raises(PeerFault, match="at most 4"):
        kit.holder("holder-1").handle(spec_frame("open", spec, parts))
