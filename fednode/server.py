"""Flower's server side: a channel over any `Grid`, and a `Strategy` whose `start` runs the driver.

A round of FedNode has more steps (invite, charge, open, release) than a strategy has hooks: `start` is overridden, and
the hooks raise. The signature of `start`, the records and the `Result` stay Flower's.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from fednode.driver import Channel, Driver, Node, PlannedTask, Reply, Request, RoundOutcome
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
from fednode.protocol.envelope import Envelope, Signer
from fednode.protocol.requests import NONCE_SIZE, hello_request
from fednode.protocol.signed_requests import sign_request
from fednode.reasons import Reason
from fednode.records import CHUNKS, SEAL, frame_of, seal_in, to_arrays, to_content

__all__ = [
    "ArrayRecord",
    "ConfigRecord",
    "Context",
    "DriverStrategy",
    "Grid",
    "GridChannel",
    "MetricRecord",
    "Result",
    "ServerApp",
    "Strategy",
    "to_arrays",
]
"""Includes Flower's types, so that callers need not import Flower: as few files as possible do."""

log = logging.getLogger("fednode.server")

_TWO_NODES = (
    "Two nodes answer as {name}: its key folder was copied, unless its node was restarted or somebody passes its "
    "hello on. A copy does not know what the other one signed; docs/threats.md says what that costs."
)

_CAUSES: Mapping[str, type[FednodeError]] = {
    "too-few-survivors": TooFewSurvivors,
    "too-few-holders": TooFewHolders,
    "opening-rejected": OpeningRejected,
    "budget": BudgetExhausted,
    "stopped": Interrupted,
}


class GridChannel:
    """Reaches a cohort's members over Flower's `Grid`, by name instead of node id.

    Flower's node ids say nothing about identity: a member is whoever answers "hello" with a signature of an enrolled
    key. How messages and replies interleave (all in one thread; `Grid` only pushes and pulls):

        1. `roll_call` pushes a hello to each new node and pulls answers; each valid one binds a member to its node.
        2. `send` pushes requests and remembers (member, tag) by message id; `receive` pulls whatever has arrived.
        3. An answer to hello may arrive during 2. `receive` pulls these too, and a late member joins the next request.
        4. A second node may answer as a bound member. If Flower no longer lists the first node (its SuperNode was
           restarted), the member moves to the second. Otherwise the first stays, and `noticed` is called once a member.
        5. A carrier may deliver a reply twice. Message ids are kept, so that the driver sees the repeat.
    """

    def __init__(
        self, grid: Grid, cohort: Cohort, signer: Signer, noticed: Callable[[str], None] = lambda _: None
    ) -> None:
        self._grid, self._cohort, self._signer, self._noticed = grid, cohort, signer, noticed
        self._nodes: dict[str, int] = {}
        self._greeted: dict[str, tuple[int, bytes]] = {}
        self._doubled: set[str] = set()
        self._asked: dict[str, tuple[str, str]] = {}
        self._open: set[str] = set()

    def roll_call(self, wait: Callable[[], bool], progress: Progress = lambda *_: None) -> frozenset[str]:
        """Ask every node for its name, until all members are found or `wait()` returns False.

        `wait` is called when nothing has arrived. Returns the names that were found.
        """
        asked = self._greeted
        known: set[int] = set()
        while len(self._nodes) < len(self._cohort.members):
            fresh = [node for node in self._grid.get_node_ids() if node not in known]
            known.update(fresh)
            hellos = [(node, secrets.token_bytes(NONCE_SIZE)) for node in fresh]
            messages = [
                Message(content=to_content(hello_request(nonce)), dst_node_id=node, message_type="query")
                for node, nonce in hellos
            ]
            asked.update(zip(self._grid.push_messages(messages), hellos, strict=False) if messages else ())
            replies = list(self._grid.pull_messages(list(asked)))
            for reply in replies:
                self._greet(reply)
                progress("calling the members", len(self._nodes), len(self._cohort.members))
            if not replies and not fresh and not wait():
                break
        return frozenset(self._nodes)

    def _greet(self, reply: Message) -> None:
        """Bind the member if this message answers a hello, late or not."""
        greeted = self._greeted.pop(reply.metadata.reply_to_message_id, None)
        if greeted is not None:
            self._bind(*greeted, reply)

    def _bind(self, node: int, nonce: bytes, reply: Message) -> None:
        try:
            if not reply.has_content():
                raise PeerFault(Reason.NO_ANSWER, reply.error.reason or "")
            envelope = Envelope.from_bytes(frame_of(reply.content), 0)
            member = envelope.signed.verified(self._cohort)
            if envelope.head.kind != "hello":
                raise PeerFault(Reason.UNEXPECTED, f"{member.name} sent {envelope.head.kind}")
            if envelope.about.octets("nonce", NONCE_SIZE) != nonce:
                raise PeerFault(Reason.ANOTHER_REQUEST, f"{member.name} answered another hello")
        except PeerFault as fault:
            log.warning("node %d is not a member: %s", node, fault)
            return
        first = self._nodes.setdefault(member.name, node)
        if first != node and first not in set(self._grid.get_node_ids()):
            log.info("%s answers from node %d now: node %d is gone", member.name, node, first)
            self._nodes[member.name] = node
        elif first != node:
            self._note_double(member.name, node)

    def _note_double(self, name: str, node: int) -> None:
        first = self._nodes[name]
        log.warning("nodes %d and %d answer as %s: its key folder was copied; the first is asked", first, node, name)
        if name not in self._doubled:
            self._doubled.add(name)
            self._noticed(_TWO_NODES.format(name=name))

    def send(self, requests: Mapping[str, Request]) -> None:
        """Push one message to each member. Members without a node are skipped and will not answer."""
        reached = [name for name in requests if name in self._nodes]
        for name in sorted(set(requests) - set(reached)):
            log.warning("%s cannot be reached", name)
        messages = [self._message(name, requests[name]) for name in reached]
        for name, message_id in zip(reached, self._grid.push_messages(messages), strict=True):
            self._asked[message_id] = (name, requests[name].tag)
            self._open.add(message_id)

    def _message(self, name: str, request: Request) -> Message:
        content = to_content(request.frame, request.chunks, CHUNKS)
        content[SEAL] = seal_in(sign_request(self._signer, name, request.frame))
        return Message(content=content, dst_node_id=self._nodes[name], message_type=request.call)

    def receive(self) -> Sequence[Reply]:
        """The replies that have arrived, each with its frame, or an error in place of one."""
        if not self._open:
            return ()
        messages = list(self._grid.pull_messages(self._open.union(self._greeted)))
        for message in messages:
            self._greet(message)
        return [self._read(message) for message in messages if self._known(message)]

    def _known(self, message: Message) -> bool:
        return message.metadata.reply_to_message_id in self._asked

    def _read(self, message: Message) -> Reply:
        self._open.discard(message.metadata.reply_to_message_id)
        name, tag = self._asked[message.metadata.reply_to_message_id]
        if not message.has_content():
            return Reply(name, tag, None, one_line(message.error.reason or "an error without a reason", 300))
        try:
            return Reply(name, tag, frame_of(message.content))
        except PeerFault as fault:
            return Reply(name, tag, b"", str(fault))


class DriverStrategy(Strategy):
    """Flower's strategy interface over the driver: only `start` works.

    `signer` has the node's own key, which the task's cohort names.
    `node` makes the node's parts around the channel that it gets. `seen` gets the outcome of each round that asked
    clients, also if it then raised, and the scores if the model was evaluated. `noticed` gets a sentence for each event
    that weakens the run's claims.
    """

    def __init__(
        self,
        task: PlannedTask,
        signer: Signer,
        node: Callable[[Channel], Node],
        seen: Callable[[RoundOutcome, MetricRecord | None], None] = lambda *_: None,
        noticed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._task, self._signer, self._make_node, self._seen, self._noticed = task, signer, node, seen, noticed

    def summary(self) -> None:
        """Log the task."""
        terms, params = self._task.terms, self._task.sum_params
        log.info("task %s: %d parameters, scheme %s", self._task.name, params.dimension, params.scheme)
        log.info("clip %g, noise multiplier at least %.4g in the first sum", terms.clip, terms.noise_multiplier())

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
        """Run `num_rounds` rounds and return Flower's result with the newest arrays.

        `timeout` is how long to wait for the next member to answer the roll call, in seconds; a round has the task's
        deadline. The configs must be empty: clients take parameters only from the round's spec, which they can check.
        Raises the `FednodeError` of the first round that failed; earlier rounds stay released and charged.
        """
        if train_config or evaluate_config:
            raise ValueError("FedNode sends no train or evaluate config: put it into the client's own configuration")
        self.summary()
        channel = GridChannel(grid, self._task.cohort, self._signer, self._noticed)
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
                # a charged round is reported even if its model cannot be saved
                self._seen(outcome, metrics)
            if metrics is not None:
                result.evaluate_metrics_serverapp[number] = metrics
            if outcome.cause:
                raise _CAUSES[outcome.cause](f"round {number} ended without a release: {outcome.reason}")
        return result

    def _driven(self, driver: Driver, number: int) -> RoundOutcome:
        """Run a round; if it raises after clients were asked, report how far it came and raise."""
        try:
            return driver.run_round(number)
        except BaseException:
            if driver.broken is not None:
                self._seen(driver.broken, None)
            raise

    def _await_members(self, channel: GridChannel, node: Node, timeout: float) -> None:
        """Call the roll; each member that answers starts the wait of `timeout` seconds anew."""
        found, deadline = 0, node.clock.now() + timeout

        def progress(step: str, done: int, total: int) -> None:
            nonlocal found, deadline
            if done > found:
                found, deadline = done, node.clock.now() + timeout
            node.progress(step, done, total)

        def wait() -> bool:
            if node.clock.now() >= deadline or node.stop():
                return False
            node.clock.sleep(node.poll)
            return True

        present = channel.roll_call(wait, progress)
        cohort = self._task.cohort
        missing = sorted(member.name for member in cohort.members if member.name not in present)
        if missing:
            log.warning("not here: %s", ", ".join(missing))
        self._require(len([client for client in cohort.clients if client.name in present]), present)

    def _require(self, clients: int, present: frozenset[str]) -> None:
        """Raise before anything is asked, if too few members are here to complete a round."""
        holders = len([holder for holder in self._task.cohort.holders if holder.name in present])
        hint = (
            f"start one node for each of the {len(self._task.cohort.members)} members (num-supernodes in a simulation)"
        )
        if clients < self._task.terms.min_survivors:
            raise TooFewSurvivors(f"{clients} clients are here, {self._task.terms.min_survivors} are needed; {hint}")
        if holders < self._task.sum_params.threshold:
            raise TooFewHolders(f"{holders} holders are here, {self._task.sum_params.threshold} are needed; {hint}")

    def configure_train(self, *_: object, **__: object) -> NoReturn:
        """Raise `RuntimeError`, as all hooks do: updates are folded sealed, and evaluation by clients has no noise."""
        raise RuntimeError("call DriverStrategy.start(); it does not use the hooks of a strategy")

    aggregate_train = configure_evaluate = aggregate_evaluate = configure_train


def _vector(task: PlannedTask, arrays: ArrayRecord) -> NDArray[np.float64]:
    """The trained arrays of the initial ones, as one vector; the frozen arrays are the task's."""
    return task.layout.flatten({name: array.numpy() for name, array in arrays.items() if name not in task.frozen})


def build_server_app(main: Callable[[Grid, Context], None]) -> ServerApp:
    """A ServerApp around `main`."""
    built = ServerApp()
    built.main()(main)
    return built


def named_arrays(record: ArrayRecord) -> dict[str, NDArray[np.generic]]:
    """The arrays of a record, by name."""
    return {name: array.numpy() for name, array in record.items()}


def accuracy_record(value: float) -> MetricRecord:
    """An accuracy, 0 to 1, as an evaluation function returns it."""
    return MetricRecord({"accuracy": value})
