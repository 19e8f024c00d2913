"""Flower's server side as a thin skin: a channel over any `Grid`, and a `Strategy` whose `start` runs the driver.

A round of FedNode has more phases than the two hooks of a strategy (invite, charge, open, release), so `start` is
overridden and the hooks refuse. Everything else stays Flower's: the signature of `start`, the records, the `Result`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from fednode.driver import Channel, Driver, Node, Reply, Request, RoundOutcome, Task
from fednode.errors import (
    BudgetExhausted,
    FednodeError,
    Interrupted,
    OpeningRejected,
    PeerFault,
    TooFewHolders,
    TooFewSurvivors,
    one_line,
)
from fednode.observer import Progress
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Envelope
from fednode.protocol.requests import ask_frame
from fednode.reasons import Reason
from fednode.records import CHUNKS, frame_of, to_arrays, to_content

__all__ = ["ArrayRecord", "Context", "FedNodeStrategy", "Grid", "GridChannel", "MetricRecord", "Seen", "ServerApp"]
"""Flower's own types among them: whoever builds on this file needs them, and Flower is imported in as few files as can
be."""

log = logging.getLogger("fednode.server")

_TWO_NODES = (
    "Two nodes speak as {name}: its key folder was copied, unless its node was started anew or somebody repeats its "
    "hello. A copy forgets what the other one signed; docs/threats.md says what that costs."
)

_CAUSES: Mapping[str, type[FednodeError]] = {
    "too-few-survivors": TooFewSurvivors,
    "too-few-holders": TooFewHolders,
    "opening-rejected": OpeningRejected,
    "budget": BudgetExhausted,
    "stopped": Interrupted,
}


class GridChannel:
    """A cohort's members over Flower's `Grid`: by name, not by node id, and one reply at a time.

    `noticed` is told, once a member, when two nodes speak as one: the one that spoke first is asked.
    """

    def __init__(self, grid: Grid, cohort: Cohort, noticed: Callable[[str], None] = lambda _: None) -> None:
        self._grid, self._cohort, self._noticed = grid, cohort, noticed
        self._nodes: dict[str, int] = {}
        self._greeted: dict[str, int] = {}
        self._doubled: set[str] = set()
        self._asked: dict[str, tuple[str, str]] = {}
        self._open: set[str] = set()

    def roll_call(self, wait: Callable[[], bool], progress: Progress = lambda *_: None) -> frozenset[str]:
        """Ask every node who it is, until all members are found or `wait()` says that it has been long enough.

        Flower's node ids say nothing about identity; a member is who signed "hello" with an enrolled key.
        """
        asked = self._greeted
        known: set[int] = set()
        while len(self._nodes) < len(self._cohort.members):
            fresh = [node for node in self._grid.get_node_ids() if node not in known]
            known.update(fresh)
            hello = to_content(ask_frame("hello", "hello"))
            messages = [Message(content=hello, dst_node_id=node, message_type="query") for node in fresh]
            asked.update(zip(self._grid.push_messages(messages), fresh, strict=False) if messages else ())
            replies = list(self._grid.pull_messages(list(asked)))
            for reply in replies:
                self._greet(reply)
                progress("calling the members", len(self._nodes), len(self._cohort.members))
            if not replies and not fresh and not wait():
                break
        return frozenset(self._nodes)

    def _greet(self, reply: Message) -> None:
        """Enter who says hello, if this is the answer to that; who comes late is a member like all others."""
        node = self._greeted.pop(reply.metadata.reply_to_message_id, None)
        if node is not None:
            self._enter(node, reply)

    def _enter(self, node: int, reply: Message) -> None:
        try:
            if not reply.has_content():
                raise PeerFault(Reason.NO_ANSWER, reply.error.reason or "")
            envelope = Envelope.from_bytes(frame_of(reply.content), 0)
            member = envelope.signed.verified(self._cohort)
            if envelope.head.kind != "hello":
                raise PeerFault(Reason.UNEXPECTED, f"{member.name} said {envelope.head.kind}")
        except PeerFault as fault:
            log.warning("node %d is no member: %s", node, fault)
            return
        first = self._nodes.setdefault(member.name, node)
        if first != node and first not in set(self._grid.get_node_ids()):
            log.info("%s speaks from node %d now: node %d is gone", member.name, node, first)
            self._nodes[member.name] = node
        elif first != node:
            self._note_double(member.name, node)

    def _note_double(self, name: str, node: int) -> None:
        first = self._nodes[name]
        log.warning("nodes %d and %d speak as %s: its key folder was copied; the first is asked", first, node, name)
        if name not in self._doubled:
            self._doubled.add(name)
            self._noticed(_TWO_NODES.format(name=name))

    def send(self, requests: Mapping[str, Request]) -> None:
        """One message a member; members that no node speaks for are left out and will not answer."""
        reached = [name for name in requests if name in self._nodes]
        for name in sorted(set(requests) - set(reached)):
            log.warning("%s cannot be reached", name)
        messages = [self._message(requests[name], self._nodes[name]) for name in reached]
        for name, message_id in zip(reached, self._grid.push_messages(messages), strict=True):
            self._asked[message_id] = (name, requests[name].tag)
            self._open.add(message_id)

    def _message(self, request: Request, node: int) -> Message:
        content = to_content(request.frame, request.chunks, CHUNKS)
        return Message(content=content, dst_node_id=node, message_type=request.call)

    def receive(self) -> Sequence[Reply]:
        """Whatever has come, read as far as the frame; what is no frame is that member's error."""
        if not self._open:
            return ()
        # an answer to the roll call that came too late for it may be the second node of a member
        messages = list(self._grid.pull_messages(sorted(self._open.union(self._greeted))))
        for message in messages:
            self._greet(message)
        return [self._read(message) for message in messages if self._known(message)]

    def _known(self, message: Message) -> bool:
        return message.metadata.reply_to_message_id in self._asked

    def _read(self, message: Message) -> Reply:
        self._open.discard(message.metadata.reply_to_message_id)
        # not forgotten: a carrier that delivers twice must be seen to do so
        name, tag = self._asked[message.metadata.reply_to_message_id]
        if not message.has_content():
            return Reply(name, tag, None, one_line(message.error.reason or "an error without a reason", 300))
        try:
            return Reply(name, tag, frame_of(message.content))
        except PeerFault as fault:
            return Reply(name, tag, b"", str(fault))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a strategy tells after each round: how it ended, or how far it came, and what the model scores now."""

    outcome: RoundOutcome
    metrics: MetricRecord | None


class FedNodeStrategy(Strategy):
    """Flower's strategy interface over the driver: `start(grid, initial_arrays, num_rounds, ...)` and nothing else.

    `node` makes the parts with effects around the channel it is given; `seen` is called after each round in which
    clients were asked, whatever then raised; `noticed` is told in a sentence of what weakens what the run may claim.
    """

    def __init__(
        self,
        task: Task,
        node: Callable[[Channel], Node],
        seen: Callable[[Seen], None] = lambda _: None,
        noticed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._task, self._make_node, self._seen, self._noticed = task, node, seen, noticed

    def summary(self) -> None:
        """Log what will be run."""
        terms, params = self._task.terms, self._task.sum_params
        log.info("task %s: %d parameters, scheme %s", self._task.name, params.dimension, params.scheme)
        log.info("clip %g, noise multiplier at least %.4g per released sum", terms.clip, terms.noise_multiplier())

    def start(  # noqa: PLR0913, PLR0917 - the signature is Flower's
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run `num_rounds` rounds and return Flower's result, the newest arrays in it.

        `timeout` bounds the wait for nodes to appear, in seconds; the time of a round is the task's deadline. The
        configs must be empty: what a client may be told stands in the round's spec, which it can check. Raises the
        `FednodeError` of the first round that failed; rounds before it are released and charged.
        """
        if train_config or evaluate_config:
            raise ValueError("FedNode sends no free-form config: put it into the client's own configuration")
        self.summary()
        channel = GridChannel(grid, self._task.cohort, self._noticed)
        node = self._make_node(channel)
        self._await_members(channel, node, timeout)
        driver = Driver(node, self._task)
        driver.begin(_vector(self._task, initial_arrays))
        result = Result()
        result.arrays = initial_arrays
        for number in range(1, num_rounds + 1):
            outcome = self._driven(driver, number)
            metrics: MetricRecord | None = None
            try:
                result.arrays = to_arrays(self._task.model(driver.parameters()))
                metrics = evaluate_fn(number, result.arrays) if evaluate_fn and not outcome.cause else None
            finally:
                # what was charged and opened is told of also if its model cannot be kept
                self._seen(Seen(outcome, metrics))
            if metrics is not None:
                result.evaluate_metrics_serverapp[number] = metrics
            if outcome.cause:
                raise _CAUSES[outcome.cause](f"round {number} ended without a release: {outcome.reason}")
        return result

    def _driven(self, driver: Driver, number: int) -> RoundOutcome:
        """A round's outcome; of one that was broken off `seen` is told too, before the error goes on."""
        try:
            return driver.run_round(number)
        except BaseException:
            if driver.broken is not None:
                self._seen(Seen(driver.broken, None))
            raise

    def _await_members(self, channel: GridChannel, node: Node, timeout: float) -> None:
        deadline = node.clock.now() + timeout

        def wait() -> bool:
            if node.clock.now() >= deadline or node.stop():
                return False
            node.clock.sleep(node.poll)
            return True

        present = channel.roll_call(wait, node.progress)
        cohort = self._task.cohort
        missing = sorted(member.name for member in cohort.members if member.name not in present)
        if missing:
            log.warning("not here: %s", ", ".join(missing))
        self._require(len([client for client in cohort.clients if client.name in present]), present)

    def _require(self, clients: int, present: frozenset[str]) -> None:
        """Raise before anything is asked of anyone, if those who are here could never end a round."""
        holders = len([holder for holder in self._task.cohort.holders if holder.name in present])
        hint = (
            f"start one node for each of the {len(self._task.cohort.members)} members (num-supernodes in a simulation)"
        )
        if clients < self._task.terms.min_survivors:
            raise TooFewSurvivors(f"{clients} clients are here, {self._task.terms.min_survivors} are needed; {hint}")
        if holders < self._task.sum_params.threshold:
            raise TooFewHolders(f"{holders} holders are here, {self._task.sum_params.threshold} are needed; {hint}")

    def configure_train(self, *_: object, **__: object) -> NoReturn:
        """Refuse: a round is driven by `start`."""
        raise _no_hooks()

    def aggregate_train(self, *_: object, **__: object) -> NoReturn:
        """Refuse: updates are folded as they come, sealed."""
        raise _no_hooks()

    def configure_evaluate(self, *_: object, **__: object) -> NoReturn:
        """Refuse: per-client evaluation would release numbers that no noise covers."""
        raise _no_hooks()

    def aggregate_evaluate(self, *_: object, **__: object) -> NoReturn:
        """Refuse: per-client evaluation would release numbers that no noise covers."""
        raise _no_hooks()


def _no_hooks() -> RuntimeError:
    return RuntimeError("FedNodeStrategy is run by start(); its hooks are not called one by one")


def _vector(task: Task, arrays: ArrayRecord) -> NDArray[np.float64]:
    """The trained arrays among the initial ones; frozen ones are the task's."""
    return task.layout.flatten({name: array.numpy() for name, array in arrays.items() if name not in task.frozen})


def build_server_app(main: Callable[[Grid, Context], None]) -> ServerApp:
    """A ServerApp around `main`."""
    built = ServerApp()
    built.main()(main)
    return built


def initial_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Named arrays as the record that `start` takes."""
    return to_arrays(arrays)


def named_arrays(record: ArrayRecord) -> dict[str, NDArray[np.generic]]:
    """The inverse of `initial_record`."""
    return {name: array.numpy() for name, array in record.items()}


def accuracy_record(value: float) -> MetricRecord:
    """What an evaluation function returns."""
    return MetricRecord({"accuracy": value})
