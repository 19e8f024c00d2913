"""Flower's side of the node: a strategy that is started like any other, over a grid whose nodes nobody vouches for."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Strategy
from kit import cohort as kit
from kit.cohort import FakeCohort, Size, failing

from fednode.driver import Request
from fednode.errors import BudgetExhausted, Interrupted, StoreError, TooFewHolders, TooFewSurvivors
from fednode.inproc import InProcGrid
from fednode.protocol.envelope import Topic
from fednode.protocol.requests import frame_kind, hello_request
from fednode.records import arrays_of, frame_of, to_content
from fednode.server import DriverStrategy, GridChannel, accuracy_record, named_arrays, to_arrays
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_crypto.identity import SigningKey


def grid_of(cohort: FakeCohort, odd=None, without=()) -> InProcGrid:
    """Every member behind a node, odd nodes first."""
    odd = odd or {}
    names = [*odd, *(member.name for member in cohort.cohort.members if member.name not in without)]
    app = ClientApp()

    def answer(message, context) -> Message:
        name = names[context.node_config["partition-id"]]
        if name in odd:
            return odd[name](message)
        arrays = arrays_of(message.content, "chunks") if "chunks" in message.content else {}
        frame = frame_of(message.content)
        request = Request("train" if frame_kind(frame) == "round" else "query", "", frame, arrays)
        return Message(to_content(cohort.speak(name, request)), reply_to=message)

    app.train()(answer)
    app.query()(answer)
    return InProcGrid(app, names, {})


def strategy_of(cohort: FakeCohort, seen=None, **node) -> DriverStrategy:
    return DriverStrategy(
        cohort.task(),
        cohort.signer,
        lambda channel: replace(cohort.node(**node), channel=channel),
        lambda *told: None if seen is None else seen.append(told),
    )


def zeros(cohort: FakeCohort) -> ArrayRecord:
    return to_arrays({"w": np.zeros(cohort.size.dimension, dtype=np.float32)})


@pytest.fixture
def cohort(tmp_path):
    return FakeCohort(tmp_path)


def test_start_is_flowers_start():
    ours, theirs = inspect.signature(DriverStrategy.start), inspect.signature(Strategy.start)
    assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
        (p.name, p.kind, p.default) for p in theirs.parameters.values()
    ]
    assert issubclass(DriverStrategy, Strategy)


@pytest.mark.parametrize("hook", ["configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"])
def test_the_hooks_refuse(cohort, hook):
    with pytest.raises(RuntimeError, match=r"start\(\)"):
        getattr(strategy_of(cohort), hook)(1, None, None, None)


def test_a_run_gives_flowers_result(cohort):
    seen = []
    scores = []

    def evaluate(number, arrays):
        scores.append((number, named_arrays(arrays)["w"].copy()))
        return accuracy_record(number / 10)

    result = strategy_of(cohort, seen).start(grid_of(cohort), zeros(cohort), num_rounds=2, evaluate_fn=evaluate)
    assert [outcome.round for outcome, _ in seen] == [1, 2]
    assert all(len(outcome.survivors) == 4 for outcome, _ in seen)
    assert [number for number, _ in scores] == [1, 2]
    assert np.array_equal(named_arrays(result.arrays)["w"], scores[-1][1]) and np.abs(scores[-1][1]).max() > 0
    assert {n: m["accuracy"] for n, m in result.evaluate_metrics_serverapp.items()} == {1: 0.1, 2: 0.2}


def test_an_evaluation_may_say_nothing(cohort):
    result = strategy_of(cohort).start(grid_of(cohort), zeros(cohort), 1, evaluate_fn=lambda number, arrays: None)
    assert result.evaluate_metrics_serverapp == {}


@pytest.mark.parametrize("config", ["train_config", "evaluate_config"])
def test_free_form_config_is_refused(cohort, config):
    with pytest.raises(ValueError, match="client's own configuration"):
        strategy_of(cohort).start(grid_of(cohort), zeros(cohort), **{config: ConfigRecord({"lr": 0.1})})


def saying(frame_of_request):
    return lambda message: Message(to_content(frame_of_request(message)), reply_to=message)


def test_nodes_that_are_no_members_are_passed_over(cohort, tmp_path):
    outside = KeyFolder.create(tmp_path / "outside", "client-9", SigningKey.generate().public)
    impostor = KeyFolder.create(tmp_path / "impostor", "client-1", SigningKey.generate().public)

    def breaking(message):
        raise ZeroDivisionError

    def empty(message):
        return Message(RecordDict({"metrics": MetricRecord({"a": 1})}), reply_to=message)

    odd = {
        "unenrolled": saying(lambda _: outside.signer.write("hello", Topic("hello")).to_bytes()),
        "impostor": saying(lambda _: impostor.signer.write("hello", Topic("hello")).to_bytes()),
        "talker": saying(lambda _: cohort.folder("client-2").signer.write("ready", Topic("hello")).to_bytes()),
        "junk": saying(lambda _: b"junk"),
        "breaking": breaking,
        "empty": empty,
    }
    seen = []
    strategy_of(cohort, seen).start(grid_of(cohort, odd), zeros(cohort), num_rounds=1)
    assert set(seen[0][0].survivors) == set(cohort.size.client_names)


def twin_of(cohort, name):
    return saying(lambda message: cohort.speak(name, Request("query", "", frame_of(message.content))))


@pytest.mark.parametrize("name", ["client-1", "holder-1"])
def test_one_member_behind_two_nodes_is_asked_once_and_told_of(cohort, caplog, name):
    grid, noticed = grid_of(cohort, {"copy": twin_of(cohort, name)}), []
    channel = GridChannel(grid, cohort.cohort, cohort.signer, noticed.append)
    assert channel.roll_call(lambda: False) == {member.name for member in cohort.cohort.members}
    assert [told.partition(":")[0] for told in noticed] == [f"Two nodes answer as {name}"]
    assert f"answer as {name}: its key folder was copied" in caplog.text and "is not a member" not in caplog.text


def test_two_copies_of_one_folder_are_told_of_once(cohort):
    odd, noticed = {"copy": twin_of(cohort, "holder-1"), "another": twin_of(cohort, "holder-1")}, []
    GridChannel(grid_of(cohort, odd), cohort.cohort, cohort.signer, noticed.append).roll_call(lambda: False)
    assert len(noticed) == 1


@pytest.mark.parametrize("gone", [True, False])
def test_a_member_whose_node_was_started_anew_is_asked_at_the_new_one(cohort, monkeypatch, gone):
    """While others are still waited for; as long as the first node is there, the second may be a copy's."""
    grid, noticed, asked = grid_of(cohort, {"anew": twin_of(cohort, "holder-1")}), [], []
    anew, *nodes = grid.get_node_ids()
    first = nodes[[member.name for member in cohort.cohort.members].index("holder-1")]
    late = next(node for node in nodes if node != first)
    there = [node for node in nodes if node != late]
    monkeypatch.setattr(grid, "get_node_ids", lambda: list(there))

    def wait():
        there[:] = [anew, late, *(node for node in there if not gone or node != first)]
        return True

    channel = GridChannel(grid, cohort.cohort, cohort.signer, noticed.append)
    assert channel.roll_call(wait) == {member.name for member in cohort.cohort.members}
    push = grid.push_messages

    def pushed(messages):
        asked.extend(message.metadata.dst_node_id for message in messages)
        return push(messages)

    monkeypatch.setattr(grid, "push_messages", pushed)
    channel.send({"holder-1": Request("query", "a", hello_request(bytes(32)))})
    assert [reply.sender for reply in channel.receive()] == ["holder-1"]
    assert asked == [anew if gone else first] and len(noticed) == (not gone)


class Holding(InProcGrid):
    """A grid that keeps one node's answers back until it is told to let them go."""

    held: int | None = None

    def pull_messages(self, message_ids):
        kept = [entry for entry in self._queue if entry.node == self.held]
        for entry in kept:
            self._queue.remove(entry)
        found = list(super().pull_messages(message_ids))
        self._queue.extend(kept)
        return found


def test_a_second_node_that_says_hello_after_the_roll_call_is_told_of_too(cohort):
    grid, noticed = grid_of(cohort, {"copy": twin_of(cohort, "holder-1")}), []
    grid.__class__, grid.held = Holding, 100
    channel = GridChannel(grid, cohort.cohort, cohort.signer, noticed.append)
    assert channel.roll_call(lambda: False) == {member.name for member in cohort.cohort.members}
    assert noticed == []
    grid.held = None
    channel.send({"client-1": Request("query", "a", hello_request(bytes(32)))})
    replies = [reply for _ in range(2) for reply in channel.receive()]
    assert [(reply.sender, reply.tag) for reply in replies] == [("client-1", "a")]
    assert len(noticed) == 1 and "holder-1" in noticed[0]


def test_a_round_that_is_broken_off_is_told_of_before_the_error_goes_on(cohort, monkeypatch):
    monkeypatch.setattr("fednode.driver.holders.combine_answers", failing(StoreError("the disk is gone")))
    seen = []
    with pytest.raises(StoreError, match="the disk is gone"):
        strategy_of(cohort, seen).start(grid_of(cohort), zeros(cohort), num_rounds=2)
    ((outcome, _),) = seen
    assert (outcome.cause, outcome.reason) == ("broken", "broken off: the disk is gone")
    assert outcome.opened and len(outcome.survivors) == 4 and outcome.release is None


@pytest.mark.parametrize(("kind", "heard"), [("round", 2), ("open", 1)])
def test_who_had_not_answered_yet_is_not_to_blame_for_a_round_that_is_broken_off(cohort, monkeypatch, kind, heard):
    driver, honest, answers = cohort.begun(), cohort.receive, []

    def receive():
        replies = honest()
        answers.extend(reply for reply in replies if f"/{kind}/" in reply.tag)
        if len(answers) > heard:
            raise KeyboardInterrupt
        return replies

    monkeypatch.setattr(cohort, "receive", receive)
    with pytest.raises(KeyboardInterrupt):
        driver.run_round(1)
    told = driver.broken
    assert (told.cause, told.reason, told.broken) == ("broken", "broken off: aborted by the operator", told.reason[12:])
    assert told.lost == told.silent == told.rejected == () and told.opened == (kind == "open")
    assert len(told.survivors) == (2 if kind == "round" else 4)


def test_a_round_before_which_nobody_is_asked_is_not_broken_off(cohort):
    driver = cohort.begun(cohort.node(epsilon=1e-9))
    with pytest.raises(BudgetExhausted):
        driver.run_round(1)
    assert driver.broken is None


def test_an_evaluation_that_breaks_takes_no_release_away(cohort):
    def evaluate(number, arrays):
        raise ZeroDivisionError

    seen = []
    with pytest.raises(ZeroDivisionError):
        strategy_of(cohort, seen).start(grid_of(cohort), zeros(cohort), num_rounds=2, evaluate_fn=evaluate)
    assert [(outcome.cause, metrics) for outcome, metrics in seen] == [("", None)] and seen[0][0].release


def test_a_member_without_a_node_is_lost_and_the_others_go_on(cohort):
    seen = []
    grid = grid_of(cohort, without=("client-3",))
    strategy_of(cohort, seen).start(grid, zeros(cohort), num_rounds=1, timeout=5)
    assert seen[0][0].lost == ("client-3",) and seen[0][0].release is not None


def test_a_missing_holder_is_named(cohort):
    with pytest.raises(TooFewHolders, match="holder-2: no answer"):
        strategy_of(cohort).start(grid_of(cohort, without=("holder-2",)), zeros(cohort), timeout=5)


def test_a_stop_while_waiting_for_nodes(cohort):
    with pytest.raises(Interrupted):
        strategy_of(cohort, stop=lambda: True).start(grid_of(cohort, without=("holder-2",)), zeros(cohort))


def test_a_failed_round_is_told_and_raised_with_its_cause(cohort):
    for name in ("client-1", "client-2"):
        cohort.limits = kit.wide_limits(max_rounds=1)
        cohort.restart(name)
    seen = []
    with pytest.raises(TooFewSurvivors, match="round 2 ended without a release: 2 of 4 updates arrived"):
        strategy_of(cohort, seen).start(grid_of(cohort), zeros(cohort), num_rounds=3)
    assert [(outcome.round, outcome.cause) for outcome, _ in seen] == [(1, ""), (2, "too-few-survivors")]
    assert seen[1][0].rejected == (("client-1", "refused: round-cap"), ("client-2", "refused: round-cap"))


def test_replies_that_are_no_frames_are_their_senders_fault(tmp_path):
    cohort = FakeCohort(tmp_path, Size(clients=5))
    grid = grid_of(cohort, {"client-5": lambda message: wordless(cohort, message)}, without=("client-5",))
    seen = []
    strategy_of(cohort, seen).start(grid, zeros(cohort), num_rounds=1)
    assert seen[0][0].rejected == (("client-5", "malformed"),)


def wordless(cohort, message):
    frame = frame_of(message.content)
    if frame_kind(frame) == "round":
        return Message(RecordDict({"metrics": MetricRecord({"a": 1})}), reply_to=message)
    return Message(to_content(cohort.speak("client-5", Request("query", "", frame))), reply_to=message)


def test_nothing_is_pulled_before_anything_is_asked(cohort):
    channel = GridChannel(grid_of(cohort), cohort.cohort, cohort.signer)
    assert channel.receive() == ()
    channel.send({"client-1": Request("query", "t", b"nobody is known yet")})
    assert channel.receive() == ()
