"""The two mods around a training function, and the answers of `Members`: nothing leaves that is not sealed."""

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from kit.cache.chunking import chunked, outline_of
from kit.cohort import TASK, FakeCohort, FakeSum, Size, failing, place, wide_limits

from fednode.driver.steps.ceremony import agree_on_key
from fednode.errors import PeerFault, StoreError
from fednode.inproc import InProcGrid
from fednode.protocol.chunks import NOTHING, Outline
from fednode.protocol.envelope import Envelope
from fednode.protocol.model import Layout, model_digest
from fednode.protocol.requests import ask_frame, hello_request, spec_frame
from fednode.protocol.signed_requests import SignedRequest
from fednode.protocol.spec import RoundSpec
from fednode.records import arrays_of, frame_of, seal_in, to_arrays, to_content
from fednode_clients.client import client as client_module
from fednode_clients.client.model_copy import ModelCopyStore
from fednode_clients.keyfolder.audit_log import AuditLog
from fednode_clients.keyfolder.state_files import StateFiles
from fednode_clients.keyfolder.untrained import untrained
from fednode_clients.membership import Members, NodeContext
from fednode_clients.mods import clip_of, gradient_sum, limits_mod, query_of, read_sum, sealing_mod

ARRAYS = {"w": np.zeros((2, 2), dtype=np.float32), "b": np.zeros(1, dtype=np.float32)}


class Stage:
    """A client behind the mods, and the message of a round for it."""

    def __init__(self, root, limits=None) -> None:
        self.kit = FakeCohort(root, Size(clients=3, holders=2), limits=limits)
        agreed = agree_on_key(self.kit.node(), self.kit.task())
        self.task_frame = ask_frame("task", TASK, agreed.card.parts() | agreed.published.parts())
        self.kit.client("client-1").take_task(self.task_frame)
        task = self.kit.task()
        digests = (model_digest(ARRAYS), task.cohort.digest(), agreed.key.digest())
        self.spec = RoundSpec(TASK, 1, 1, *digests, task.terms, task.sum_params)
        self.kit.speaking = "client-1"
        self.seen: list[Message] = []
        # a message can only be made within a run, which the grid says it is
        InProcGrid(ClientApp(), ["client-1"], {})

    @property
    def members(self) -> Members:
        return self.kit.members("client-1")

    def message(self, arrays=ARRAYS, frame=None) -> Message:
        honest = spec_frame("round", self.spec, {"model": outline_of(ARRAYS).to_bytes()})
        content = to_content(honest if frame is None else frame, chunked(arrays), "chunks")
        self.sign(content)
        message = Message(content, dst_node_id=1, message_type="train")
        # as a carrier does: a reply needs an id to answer to
        message.metadata.__dict__["_message_id"] = "1"
        return message

    def sign(self, content) -> None:
        """As the node does, whatever the frame is."""
        with suppress(PeerFault):
            content["seal"] = seal_in(self.kit.signed("client-1", frame_of(content)).seal)

    def run(self, message, train, mods=None) -> Envelope:
        reply = self.reply(message, train, mods)
        assert set(reply.content) == {"fednode"}
        return Envelope.from_bytes(frame_of(reply.content), self.spec.sum_params.payload_bytes)

    def reply(self, message, train, mods=None) -> Message:
        def call(message, context):
            self.seen.append(message)
            return train(message)

        for mod in reversed(mods or [limits_mod(self.members), sealing_mod(self.members)]):
            call = _wrapped(mod, call)
        return call(message, Context(1, 1, {"name": "client-1"}, RecordDict(), {}))


def _wrapped(mod, call):
    return lambda message, context: mod(message, context, call)


def honest(message):
    clip = clip_of(message)
    return Message(gradient_sum(FakeSum(np.ones(5) / 4, 3, clip), ARRAYS), reply_to=message)


def answering(content):
    return lambda message: Message(content(), reply_to=message)


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


def reason_of(envelope: Envelope) -> str:
    assert envelope.head.kind == "refusal" and envelope.body == b""
    return envelope.about.text("reason", 64)


def test_what_leaves_is_sealed_and_nothing_else(stage):
    envelope = stage.run(stage.message(), honest)
    assert envelope.head.kind == "update" and envelope.head.spec == stage.spec.digest()
    assert envelope.signed.verified(stage.kit.cohort).name == "client-1"
    noise = stage.kit.plain["client-1"] - 2**8 / 4
    assert 0 < np.abs(noise).max() < 256 * 8


def test_a_repeated_message_gets_the_same_bytes_without_training(stage):
    first = stage.run(stage.message(), honest)
    stage.kit.restart("client-1")
    second = stage.run(stage.message(), honest)
    assert first.to_bytes() == second.to_bytes() and len(stage.seen) == 1
    # whether the model is still there or not
    assert stage.run(stage.message(arrays={}), honest).to_bytes() == first.to_bytes()


@pytest.mark.parametrize("pad", [0.0, 15.0])
def test_the_time_of_an_answer_tells_no_more_than_its_pad(tmp_path, pad):
    """Training takes 2 or 11 seconds, raises after 4, or was done before."""
    taken = []
    for number, seconds in enumerate((2.0, 11.0, 4.0, 16.0)):
        stage = Stage(tmp_path / str(number), wide_limits(pad=pad))

        def train(message, seconds=seconds, clock=stage.kit.clock):
            clock.sleep(seconds)
            if seconds == 4.0:
                raise RuntimeError("no such label")
            return honest(message)

        for _ in range(2):
            began = stage.kit.clock.now()
            assert stage.run(stage.message(), train).head.kind == "update"
            taken.append(stage.kit.clock.now() - began)
    trained, again = [2.0, 11.0, 4.0, 16.0], [0.0] * 4
    padded = ([15.0, 15.0, 15.0, 30.0], again)
    assert (taken[::2], taken[1::2]) == (padded if pad else (trained, again))


def test_a_message_says_that_it_was_made_after_the_pad(tmp_path):
    stage, ended = Stage(tmp_path, wide_limits(pad=15.0)), []
    stage.kit.clock.sleep = lambda _: ended.append(time.time())
    for _ in range(2):
        reply = stage.reply(stage.message(), honest)
        assert reply.metadata.created_at >= ended[-1]


def test_what_nobody_signed_does_not_reach_training(stage):
    message = stage.message()
    for name in ("frozen", "settings", "arrays"):
        message.content[name] = to_arrays({"w": np.full(3, np.nan, np.float32)})
    assert stage.run(message, honest).head.kind == "update"
    (seen,) = stage.seen
    assert set(seen.content) == {"fednode", "arrays", "terms"}
    assert all(np.array_equal(array, ARRAYS[name]) for name, array in arrays_of(seen.content).items())


def test_the_panic_of_an_extension_sends_zeros(tmp_path):
    class Panic(BaseException):
        pass

    assert check_zeros(tmp_path, failing(Panic("secret")))["reason"] == "Panic"
    for ending in (KeyboardInterrupt, SystemExit):
        stage = Stage(tmp_path / ending.__name__)
        with pytest.raises(ending):
            stage.reply(stage.message(), failing(ending()))


def test_a_round_below_the_floor_is_refused_before_training(tmp_path):
    stage = Stage(tmp_path, wide_limits(min_noise=5.0))
    assert reason_of(stage.run(stage.message(), honest)) == "noise-floor"
    assert stage.seen == []


def test_a_round_beyond_the_budget_is_refused_before_training(tmp_path):
    stage = Stage(tmp_path, wide_limits(max_epsilon=0.5))
    assert reason_of(stage.run(stage.message(), honest)) == "budget"
    assert stage.seen == []


def test_arrays_that_are_not_the_rounds_are_refused(stage):
    moved = ARRAYS | {"b": np.ones(1, dtype=np.float32)}
    whole = {name: array.astype(np.int64) for name, array in ARRAYS.items()}
    wide = ARRAYS | {"b": np.zeros(2, dtype=np.float32)}
    for arrays, reason in ((moved, "another-model"), (whole, "wrong-shape"), (wide, "wrong-shape")):
        assert reason_of(stage.run(stage.message(arrays), honest)) == reason
    assert stage.seen == []


def relabelled(stage, arrays, frozen=()):
    """A round of the honest task over this model."""
    outline = outline_of({name: array for name, array in arrays.items() if name not in frozen})
    outline = Outline(outline.trained, Layout.of({name: arrays[name] for name in frozen}) if frozen else NOTHING)
    spec = replace(stage.spec, model_digest=outline.digest(arrays))
    return stage.message(arrays, spec_frame("round", spec, {"model": outline.to_bytes()}))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1001, -1e4, 3e38])
@pytest.mark.parametrize("frozen", [(), ("ice",)])
def test_a_model_that_no_training_gives_is_refused_before_training(stage, value, frozen):
    arrays = {name: array.copy() for name, array in ARRAYS.items()} | {name: np.zeros(3, "f4") for name in frozen}
    arrays[(*frozen, "w")[0]].flat[1] = value
    assert reason_of(stage.run(relabelled(stage, arrays, frozen), honest)) == "bad-model" and stage.seen == []


def test_a_model_as_large_as_a_member_allows_is_trained(tmp_path):
    arrays = {name: np.full_like(array, -1000) for name, array in ARRAYS.items()} | {"ice": np.zeros(3, "f4")}
    stage = Stage(tmp_path, wide_limits(max_arrays=3))
    assert stage.run(relabelled(stage, arrays, ("ice",)), honest).head.kind == "update"
    tight = Stage(tmp_path / "tight", wide_limits(max_arrays=2))
    assert reason_of(tight.run(relabelled(tight, arrays, ("ice",)), honest)) == "bad-model" and tight.seen == []


def test_a_member_trains_no_model_but_its_own(stage):
    other = Layout(("w", "b"), ((4, 1), (1,)))
    for layout, reason in ((other, "wrong-shape"), (Layout.of(ARRAYS), "")):
        parts = replace(stage.members._parts, layout=lambda _, layout=layout: layout)
        members = Members(parts)
        envelope = stage.run(stage.message(), honest, [limits_mod(members), sealing_mod(members)])
        assert (reason_of(envelope) if reason else envelope.head.kind) == (reason or "update"), layout
        assert len(stage.seen) == (0 if reason else 1)


@pytest.mark.parametrize(
    "frame", [b"", b"x" * 100, spec_frame, ask_frame("task", TASK)], ids=["nothing", "junk", "open", "task"]
)
def test_a_frame_that_is_no_round_is_refused(stage, frame):
    data = spec_frame("open", stage.spec) if callable(frame) else frame
    envelope = stage.run(stage.message(frame=data), honest)
    assert reason_of(envelope) in ("malformed", "unexpected") and stage.seen == []


def test_a_message_without_arrays_is_refused(stage):
    assert reason_of(stage.run(stage.message(arrays={}), honest)) == "missing-chunks"
    bare = stage.message(frame=spec_frame("round", stage.spec))
    assert reason_of(stage.run(bare, honest)) == "malformed"
    assert stage.seen == []


def test_the_whole_model_is_shown_and_nothing_of_how_it_came(stage):
    stage.run(stage.message(), honest)
    content = stage.seen[0].content
    assert set(content) == {"fednode", "arrays", "terms"}
    shown = arrays_of(content)
    assert list(shown) == list(ARRAYS) and all(np.array_equal(shown[name], ARRAYS[name]) for name in ARRAYS)


def test_sealing_without_consent(stage):
    mods = [sealing_mod(stage.members)]
    assert reason_of(stage.run(stage.message(), honest, mods)) == "malformed"

    def careless(message):
        return Message(gradient_sum(FakeSum(np.zeros(5), 3, 1.0), ARRAYS), reply_to=message)

    shown = stage.message()
    shown.content["arrays"] = to_arrays(ARRAYS)
    assert reason_of(stage.run(shown, careless, mods)) == "no-consent"
    assert stage.kit.folder("client-1").audit_log.entries() == []


def sum_of(arrays, **changes):
    count = ConfigRecord({"clip": 1.0, "unit": "record"} | changes)
    return lambda: RecordDict({"gradient-sum": to_arrays(arrays), "count": count})


BAD_SUMS = {
    "raw arrays": lambda: RecordDict({"arrays": to_arrays(ARRAYS)}),
    "nothing": RecordDict,
    "no count": lambda: RecordDict({"gradient-sum": to_arrays(ARRAYS)}),
    "no sum": lambda: RecordDict({"count": ConfigRecord({"clip": 1.0, "unit": "record"})}),
    "a config": lambda: RecordDict(
        {"gradient-sum": ConfigRecord({"a": 1}), "count": ConfigRecord({"clip": 1.0, "unit": "record"})}
    ),
    "no unit": lambda: RecordDict({"gradient-sum": to_arrays(ARRAYS), "count": ConfigRecord({"clip": 1.0})}),
    "another unit": sum_of({"w": np.zeros((2, 2)), "b": np.zeros(1)}, unit="customer"),
    "a number as unit": sum_of({"w": np.zeros((2, 2)), "b": np.zeros(1)}, unit=1),
    "another shape": sum_of({"w": np.zeros((4, 1)), "b": np.zeros(1)}),
    "another name": sum_of({"w": np.zeros((2, 2)), "c": np.zeros(1)}),
    "another order": sum_of({"b": np.zeros(1), "w": np.zeros((2, 2))}),
    "integers": sum_of({"w": np.zeros((2, 2), dtype=np.int64), "b": np.zeros(1)}),
    "complex": sum_of({"w": np.zeros((2, 2), dtype=complex), "b": np.zeros(1)}),
    "NaN": sum_of({"w": np.full((2, 2), np.nan), "b": np.zeros(1)}),
    "infinity": sum_of({"w": np.zeros((2, 2)), "b": np.full(1, np.inf)}),
    "another clip": sum_of({"w": np.zeros((2, 2)), "b": np.zeros(1)}, clip=1.5),
    "NaN as clip": sum_of({"w": np.zeros((2, 2)), "b": np.zeros(1)}, clip=float("nan")),
    "a list as clip": sum_of({"w": np.zeros((2, 2)), "b": np.zeros(1)}, clip=[1.0]),
}


def zeros(message):
    return Message(gradient_sum(FakeSum(np.zeros(5), 3, clip_of(message)), ARRAYS), reply_to=message)


def check_zeros(tmp_path, train):
    """What `train` makes the member send is what a client without records sends, and a note stays with its owner."""
    sealed = []
    for name, given in (("empty", zeros), ("broken", train)):
        stage = Stage(tmp_path / name)
        assert stage.run(stage.message(), given).head.kind == "update"
        assert len(stage.kit.folder("client-1").audit_log.entries()) == 1
        sealed.append(stage.kit.plain["client-1"])
    assert np.array_equal(*sealed)
    return untrained(stage.kit.folder("client-1").state)


@pytest.mark.parametrize("content", BAD_SUMS.values(), ids=BAD_SUMS.keys())
def test_anything_but_a_clipped_sum_becomes_zeros(tmp_path, content):
    note = check_zeros(tmp_path, answering(content))
    assert (note["untrained"], note["round"], note["rounds"]) == (TASK, 1, 1)


@pytest.mark.parametrize("records", [3, 24.0, -1, [7], 10**7])
def test_how_many_records_there_were_is_not_read(stage, records):
    content = sum_of({"w": np.full((2, 2), 1e6, np.float32), "b": np.zeros(1, np.float32)}, records=records)
    assert stage.run(stage.message(), answering(content)).head.kind == "update"
    assert np.abs(stage.kit.plain["client-1"]).max() <= 8 * 2**8 + 256 * 8


def test_a_member_without_the_memory_refuses_and_goes_on(stage, monkeypatch):
    def spent(*_, **__):
        raise MemoryError

    with monkeypatch.context() as small:
        small.setattr("fednode.wire.parse", spent)
        frames = [
            frame_of(stage.reply(stage.message(), honest).content),
            stage.members.query(place("client-1"), stage.kit.signed("client-1", stage.task_frame)),
            stage.kit.members("holder-1").query(
                place("holder-1"), stage.kit.signed("holder-1", spec_frame("open", stage.spec))
            ),
        ]
    for envelope in (Envelope.from_bytes(frame, 0) for frame in frames):
        assert reason_of(envelope) == "member-memory" and envelope.head.task == TASK
    with monkeypatch.context() as small:
        small.setattr("fednode_clients.client.client.seal", spent)
        assert reason_of(stage.run(stage.message(), honest)) == "member-memory"
    assert stage.run(stage.message(), honest).head.kind == "update"


def test_a_sum_keeps_its_shapes_and_order(stage):
    vector = np.arange(5.0)
    content = gradient_sum(FakeSum(vector, 2, 0.5), ARRAYS)
    back = read_sum(Message(content, reply_to=stage.message()), Layout.of(ARRAYS))
    assert np.array_equal(back.vector, vector) and back.clip == 0.5
    assert "0." not in repr(back).partition("clip")[0]


# --- whatever comes, whatever breaks: a signed answer, and no exception


def error_from_carrier(stage):
    message = stage.message()
    return Message(Error(1, "lost"), reply_to=message)


HOSTILE = {
    "no frame": lambda stage: RecordDict(),
    "a frame under another name": lambda stage: RecordDict({"frame": to_arrays(ARRAYS)}),
    "no frame in the record": lambda stage: RecordDict({"fednode": to_arrays(ARRAYS)}),
    "a config as frame": lambda stage: RecordDict({"fednode": ConfigRecord({"frame": b"x"})}),
    "metrics as chunks": lambda stage: RecordDict({**stage.message().content, "chunks": MetricRecord({"w": 1.0})}),
    "an empty frame": lambda stage: to_content(b""),
    "junk": lambda stage: to_content(b"\xff" * 1_000),
    "half a frame": lambda stage: to_content(frame_of(stage.message().content)[:-40]),
    "another kind": lambda stage: to_content(spec_frame("open", stage.spec)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("mods", [None, "sealing", "consent"])
def test_no_train_message_leaves_a_mod_as_an_exception(stage, content, mods):
    message = stage.message()
    message.content = content(stage)
    stage.sign(message.content)
    chosen = {"sealing": [sealing_mod(stage.members)], "consent": [limits_mod(stage.members)], None: None}[mods]
    envelope = stage.run(message, answering(RecordDict), chosen)
    assert reason_of(envelope) in ("malformed", "unexpected", "damaged")
    assert envelope.signed.verified(stage.kit.cohort).name == "client-1"
    assert stage.seen == [] and stage.kit.folder("client-1").audit_log.entries() == []


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_query_leaves_as_an_exception(stage, content):
    message = stage.message()
    message.content = content(stage)
    request = query_of(message)
    assert reason_of(query(stage, request.frame)) in ("unexpected", "malformed", "damaged", "bad-request")


@pytest.mark.parametrize("mods", [None, "sealing"])
def test_a_message_that_is_an_error_is_refused(stage, mods):
    message = error_from_carrier(stage)
    message.metadata.__dict__["_message_id"] = "2"
    envelope = stage.run(message, honest, None if mods is None else [sealing_mod(stage.members)])
    assert reason_of(envelope) == "malformed" and envelope.head.task == "unreadable"
    assert query_of(message) == SignedRequest(b"")


@pytest.mark.parametrize("returned", [None, 7, RecordDict(), b"update"])
def test_a_function_that_returns_no_message_sends_zeros(tmp_path, returned):
    assert check_zeros(tmp_path, lambda _: returned)["reason"] == "ValueError"


@pytest.mark.parametrize("error", [OSError(28, "7"), MemoryError("7"), StoreError("7"), PeerFault("wrong-shape", "7")])
def test_a_function_that_raises_sends_zeros_and_only_the_owner_learns_why(tmp_path, caplog, error):
    assert check_zeros(tmp_path, failing(error))["reason"] == type(error).__name__
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


_PUT = StateFiles.put


def full_disk(*arguments):
    if isinstance(arguments[0], StateFiles) and len(arguments) == 3 and not arguments[1].startswith("sealed/"):
        # the state of a request, before the update is kept
        return _PUT(*arguments)
    raise StoreError("could not write /keys/secret/record.jsonl") from OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("part", "verb", "trained"),
    [
        (StateFiles, "get", 0),
        (AuditLog, "entries", 0),
        (AuditLog, "append", 1),
        (StateFiles, "put", 1),
        (ModelCopyStore, "_keep", 0),
        (client_module, "exclusive", 1),
    ],
)
def test_a_disk_that_fails_is_a_signed_refusal_that_says_so(stage, monkeypatch, part, verb, trained):
    with monkeypatch.context() as disk:
        disk.setattr(part, verb, full_disk)
        envelope = stage.run(stage.message(), honest)
    assert reason_of(envelope) == "member-storage" and len(stage.seen) == trained
    detail = envelope.about.text("detail", 512)
    assert "No space left on device" in detail and "secret" not in detail
    # its own state tells whose request it is
    known = part is not StateFiles or verb == "put"
    assert (envelope.head.task, envelope.head.round) == (TASK, int(known))
    # a round that was recorded and not kept is not sealed a second time
    assert stage.run(stage.message(), honest).head.kind == ("refusal" if verb == "put" else "update")


# --- members


def query(stage, frame, name="client-1"):
    data = stage.kit.members(name).query(place(name), stage.kit.signed(name, frame))
    return Envelope.from_bytes(data, 1 << 20)


def test_a_query_is_answered_by_role(stage):
    assert query(stage, hello_request(bytes(32))).head.kind == "hello"
    assert query(stage, stage.task_frame).head.kind == "ready"
    other = query(stage, stage.task_frame, "holder-1")
    assert (other.head.kind, other.head.sender) == ("ready", "holder-1")


def test_a_refused_query_names_what_it_is_about(stage):
    refused = query(stage, ask_frame("key-commit", "task-9"))
    assert (refused.head.kind, refused.head.task) == ("refusal", "task-9")
    opened = query(stage, spec_frame("open", stage.spec), "holder-1")
    assert (opened.head.task, opened.head.round, opened.head.spec) == (TASK, 1, stage.spec.digest())
    assert reason_of(opened) == "bad-request"
    junk = query(stage, b"junk")
    assert junk.head.task == TASK and reason_of(junk) == "malformed"


def test_limits_come_from_the_members_own_configuration(tmp_path):
    kit = FakeCohort(tmp_path, Size(clients=3, holders=2))
    own = {"name": "client-1", "floor-survivors": 7, "min-noise": 2, "max-rounds": 5, "max-tasks": 7}
    client = kit.members("client-1").client(
        NodeContext(1, own, {"floor-survivors": 1, "min-noise": 0.0, "max-tasks": 10**6})
    )
    assert client._limits == wide_limits(floor_survivors=7, min_noise=2.0, max_rounds=5, max_tasks=7)


def test_a_disk_that_fails_while_a_model_is_kept(tmp_path, monkeypatch):
    stage = Stage(tmp_path)
    monkeypatch.setattr(ModelCopyStore, "_keep", full_disk)
    assert reason_of(stage.run(stage.message(), honest)) == "member-storage" and stage.seen == []
    monkeypatch.undo()
    assert stage.run(stage.message(), honest).head.kind == "update"


def test_a_lock_that_cannot_be_had_is_a_refusal(stage, monkeypatch):
    monkeypatch.setattr("fednode_clients.client.client.exclusive", full_disk)
    assert reason_of(stage.run(stage.message(), honest)) == "member-storage"
