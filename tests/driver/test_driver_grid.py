"""The grid in one process: real serialisation, one node at a time, and faults that do what they are called."""

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from kit.cohort import TASK, Size

from fednode.inproc import InProcGrid, run_in_process
from fednode.protocol.requests import ask_frame, close_request, key_request, spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.records import arrays_of, frame_of, to_arrays, to_content
from fednode.server import build_server_app
from fednode.settings import parse_fault

NAMES = ("client-1", "client-2", "holder-1")


class Scene:
    """Three nodes that answer with their name and the round; `ran` lists who was run."""

    def __init__(self, *faults: str) -> None:
        self.ran: list[str] = []
        self.kept: list[np.ndarray] = []
        app = ClientApp()

        def answer(message, context) -> Message:
            name = NAMES[context.node_config["partition-id"]]
            self.ran.append(name)
            arrays = arrays_of(message.content) if "arrays" in message.content else {}
            self.kept += arrays.values()
            frame = frame_of(message.content)
            if frame == b"break":
                raise ZeroDivisionError("as told")
            return Message(to_content(name.encode() + b" " + frame[:40] + frame[-8:], arrays), reply_to=message)

        app.train()(answer)
        app.query()(answer)
        self.grid = InProcGrid(app, NAMES, {}, [parse_fault(text) for text in faults])

    def push(self, frame: bytes, arrays=None, nodes=(100, 101, 102), kind="train") -> list[str]:
        return list(
            self.grid.push_messages(
                Message(content=to_content(frame, arrays), dst_node_id=node, message_type=kind) for node in nodes
            )
        )

    def pull(self, ids) -> list[tuple[str, bytes]]:
        """(message id, frame) of all that comes now; b"" for an error."""
        found = []
        while batch := list(self.grid.pull_messages(ids)):
            assert len(batch) == 1
            for reply in batch:
                frame = frame_of(reply.content) if reply.has_content() else b""
                found.append((reply.metadata.reply_to_message_id, frame))
        return found

    def round(self, number: int, kind="round") -> tuple[list[str], list[tuple[str, bytes]]]:
        ids = self.push(round_frame(number, kind))
        return ids, self.pull(ids)


def round_frame(number: int, kind="round") -> bytes:
    size = Size()
    return spec_frame(kind, RoundSpec(TASK, number, 1, *[bytes(32)] * 3, size.terms(), size.sum_params()))


def senders(replies) -> list[str]:
    return [frame.split(b" ")[0].decode("ascii", "replace") for _, frame in replies]


def test_every_node_answers_what_it_was_asked():
    scene = Scene()
    assert list(scene.grid.get_node_ids()) == [100, 101, 102]
    ids = scene.push(b"hello")
    assert len(set(ids)) == 3 and scene.ran == []
    assert scene.pull(ids) == [(one, name.encode() + b" hellohello") for one, name in zip(ids, NAMES, strict=True)]
    assert scene.pull(ids) == []


def test_one_node_runs_a_pull():
    scene = Scene()
    ids = scene.push(b"hello")
    list(scene.grid.pull_messages(ids))
    assert scene.ran == ["client-1"]
    list(scene.grid.pull_messages(ids))
    assert scene.ran == ["client-1", "client-2"]


def test_send_and_receive_brings_everything():
    scene = Scene()
    messages = [Message(to_content(b"x"), dst_node_id=node, message_type="query") for node in (102, 100)]
    replies = list(scene.grid.send_and_receive(messages, timeout=1.0))
    assert sorted(frame_of(reply.content) for reply in replies) == [b"client-1 xx", b"holder-1 xx"]


def test_what_a_node_gets_is_a_copy_and_so_is_what_it_sends():
    scene = Scene()
    mine = np.arange(4, dtype=np.float32)
    ids = scene.push(b"x", {"w": mine}, nodes=(100,))
    mine[:] = -1
    (reply,) = scene.grid.pull_messages(ids)
    assert np.array_equal(scene.kept[0], [0, 1, 2, 3])
    theirs = arrays_of(reply.content)["w"].copy()
    scene.kept[0] = scene.kept[0].copy()
    scene.kept[0][:] = 9
    assert np.array_equal(theirs, [0, 1, 2, 3]) and np.array_equal(mine, [-1] * 4)


def test_two_nodes_do_not_share_the_arrays_of_one_request():
    scene = Scene()
    shared = np.zeros(3, dtype=np.float32)
    scene.pull(scene.push(b"x", {"w": shared}))
    assert len(scene.kept) == 3
    assert not any(np.shares_memory(a, b) for a in (*scene.kept, shared) for b in scene.kept if a is not b)


def test_a_record_keeps_its_types_and_order():
    scene = Scene()
    arrays = {"b": np.float32([1.5]), "a": np.float64([[2.5, np.nan]]), "c": np.int64([3])}
    (reply,) = scene.grid.pull_messages(scene.push(b"x", arrays, nodes=(101,)))
    back = arrays_of(reply.content)
    assert list(back) == ["b", "a", "c"]
    assert all(back[name].dtype == arrays[name].dtype for name in arrays)
    assert all(np.array_equal(back[name], arrays[name], equal_nan=True) for name in arrays)


def test_a_node_that_breaks_is_an_answer():
    scene = Scene()
    ids = scene.push(b"break", nodes=(101,))
    (reply,) = scene.grid.pull_messages(ids)
    assert reply.has_error() and reply.error.reason == "ZeroDivisionError"
    assert reply.metadata.reply_to_message_id == ids[0]


def test_a_server_app_runs_over_it_and_its_errors_come_through():
    scene, seen = Scene(), []
    run_in_process(build_server_app(lambda grid, context: seen.append(context.run_config)), scene.grid, {"a": 1})
    assert seen == [{"a": 1}] and scene.grid.run.run_id == 1

    def broken(grid, context):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_in_process(build_server_app(broken), scene.grid, {})


# --- faults


@pytest.mark.parametrize(("kind", "member"), [("lost-before-upload", "client-1"), ("dead", "holder-1")])
def test_silence(kind, member):
    scene = Scene(f"{kind}@2:{member}")
    others = [name for name in NAMES if name != member]
    assert senders(scene.round(1)[1]) == list(NAMES)
    scene.ran.clear()
    assert senders(scene.round(2)[1]) == others and scene.ran == others
    assert senders(scene.round(3)[1]) == list(NAMES)


def test_a_dead_holder_is_not_dead_before_its_round():
    scene = Scene("dead@2-:holder-1")
    assert senders(scene.round(1, "open")[1]) == list(NAMES)
    for number in (2, 3, 9):
        assert "holder-1" not in senders(scene.round(number, "open")[1])


def test_a_dead_holder_hears_no_word_about_its_round_either():
    scene = Scene("dead@2:holder-1")
    for frame_of_round in (key_request, close_request):
        for number, there in ((1, True), (2, False), (3, True)):
            told = senders(scene.pull(scene.push(frame_of_round(TASK, number), kind="query")))
            assert ("holder-1" in told) == there and set(NAMES[:2]) <= set(told)


@pytest.mark.parametrize("kind", ["lost-after-upload", "lost-before-opening"])
def test_lost_when_nothing_more_is_asked_of_it(kind):
    scene = Scene(f"{kind}@1:client-1")
    assert senders(scene.round(1)[1]) == list(NAMES)


def test_a_repeat_comes_twice_and_runs_once():
    scene = Scene("repeat@1:client-2")
    ids, replies = scene.round(1)
    assert [one for one, _ in replies] == [ids[0], ids[1], ids[1], ids[2]]
    assert replies[1] == replies[2] and scene.ran == list(NAMES)


def test_slow_comes_after_the_next_thing_that_is_sent():
    scene = Scene("slow@1:client-1")
    ids, replies = scene.round(1)
    assert senders(replies) == ["client-2", "holder-1"]
    assert scene.pull(ids) == []
    more = scene.push(round_frame(1, "open"), nodes=(102,))
    assert scene.pull([*ids, *more])[0][0] == ids[0]


def test_garbage_has_the_size_of_the_answer_and_nothing_of_it():
    scene = Scene("garbage@1:client-1")
    _, replies = scene.round(1)
    honest = Scene().round(1)[1]
    assert len(replies[0][1]) == len(honest[0][1]) and replies[0][1] != honest[0][1]
    assert replies[1][1] == honest[1][1]


def test_a_lie_is_the_last_rounds_answer():
    scene = Scene("lie@2-3:client-1")
    first, second, third = (scene.round(number)[1][0][1] for number in (1, 2, 3))
    assert second == first and third == Scene().round(2)[1][0][1] != first
    assert Scene("lie@1:client-1").round(1)[1][0][1] == b""


@pytest.mark.parametrize(
    "frame",
    [
        b"no frame at all",
        ask_frame("task", TASK),
        spec_frame("key-check", RoundSpec(TASK, 0, 1, *[bytes(32)] * 3, Size().terms(), Size().sum_params())),
    ],
    ids=["junk", "task", "key-check"],
)
def test_faults_befall_rounds_alone(frame):
    scene = Scene("dead@1-:holder-1", "lost-before-upload@1-:client-1", "garbage@1-:client-2")
    assert senders(scene.pull(scene.push(frame, kind="query"))) == list(NAMES)


def test_content_without_a_frame_is_carried_too():
    scene = Scene()
    content = RecordDict({"arrays": to_arrays({"w": np.zeros(1)})})
    (reply,) = scene.grid.send_and_receive([Message(content, dst_node_id=100, message_type="train")])
    assert reply.has_error() and "no frame" in reply.error.reason
