"""A Flower `Grid` in one process: no Ray, no SuperLink, no ports. Every message is serialised as Flower does it.

All in one thread: `push_messages` only queues; each `pull_messages` runs one client and returns its reply, so that
replies are never collected in a list. Faults are injected here, on the serialised messages, so that node and members
run their ordinary code:

    slow    the reply is held until after the next push, so it arrives in a later step or round
    repeat  the reply is returned now and once more at the next pull
    dead, lost-before-upload    the client never runs
"""

import logging
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fednode.errors import FednodeError
from fednode.protocol.requests import frame_kind, read_round_request, read_spec
from fednode.records import frame_of, has_frame, to_content
from fednode.settings import Fault

log = logging.getLogger("fednode.inproc")
_RUN_ID = 1
_CLIENT_CRASHED = 2
_SILENT = frozenset({"lost-before-upload", "dead"})
_WITHOUT_SPEC = ("box-key", "close")
"""Requests about a round that do not carry its spec."""
Config = Mapping[str, int | float | str | bool]


@dataclass(slots=True)
class _Delivery:
    """A queued message, the number of its push, and the faults to inject."""

    message_id: str
    node: int
    message: Message = field(repr=False)
    push: int
    faults: frozenset[str] = frozenset()


class InProcGrid(Grid):
    """Delivers to one ClientApp in this process; node 100 + i belongs to the member names[i]."""

    def __init__(
        self, client_app: ClientApp, names: Sequence[str], run_config: Config, faults: Iterable[Fault] = ()
    ) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, _RUN_ID, 1
        self._run = Run.create_empty(_RUN_ID)
        self._app, self._names, self._faults = client_app, tuple(names), tuple(faults)
        self._contexts = {
            100 + index: Context(
                run_id=_RUN_ID,
                node_id=100 + index,
                node_config={"partition-id": index, "num-partitions": len(self._names)},
                state=RecordDict(),
                run_config=dict(run_config),
            )
            for index in range(len(self._names))
        }
        self._queue: deque[_Delivery] = deque()
        self._held: deque[tuple[int, Message]] = deque()
        self._last_update: dict[int, RecordDict] = {}
        self._pushes = 0

    def set_run(self, run: Run) -> None:
        """Take Flower's description of the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """Flower's description of the run."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Make a message. Flower deprecates this, but its interface requires it."""
        return Message(content=content, dst_node_id=dst_node_id, message_type=message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Every node, dead ones included: a carrier cannot tell."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Serialise and queue the messages; return the id of each."""
        self._pushes += 1
        ids = []
        for message in messages:
            message_id = str(uuid4())
            message.metadata.__dict__["_message_id"] = message_id
            node = message.metadata.dst_node_id
            faults = self._faults_of(node, message.content)
            self._queue.append(_Delivery(message_id, node, message, self._pushes, faults))
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Run the node of the next queued message and return its reply; empty if none is queued."""
        wanted = message_ids if isinstance(message_ids, AbstractSet) else set(message_ids)
        if self._held and self._held[0][0] < self._pushes:
            return [self._held.popleft()[1]]
        while self._queue:
            delivery = self._queue.popleft()
            if delivery.message_id in wanted:
                reply = self._deliver(delivery)
                if reply is not None:
                    return [reply]
        return []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push, then pull until nothing is queued. `timeout` is ignored: no message has a way to travel."""
        del timeout
        ids = list(self.push_messages(messages))
        replies: list[Message] = []
        while batch := list(self.pull_messages(ids)):
            replies += batch
        return replies

    # --- delivery and faults

    def _faults_of(self, node: int, content: RecordDict) -> frozenset[str]:
        frame = frame_of(content) if has_frame(content) else b""
        kind = frame_kind(frame)
        if kind not in ("round", "boxes", "confirm", "open", *_WITHOUT_SPEC):
            return frozenset()
        number = read_round_request(kind, frame)[1] if kind in _WITHOUT_SPEC else read_spec(kind, frame)[0].round
        name = self._names[node - 100]
        return frozenset(fault.kind for fault in self._faults if fault.member == name and fault.covers(number))

    def _deliver(self, delivery: _Delivery) -> Message | None:
        if delivery.faults & _SILENT:
            return None
        # not when it is queued: many messages share one frame, and as bytes each would hold a copy of it
        wire = message_to_proto(delivery.message).SerializeToString()
        message = message_from_proto(ProtoMessage.FromString(wire))
        reply = self._spoil(delivery, self._answer(delivery, message))
        carried = message_from_proto(ProtoMessage.FromString(message_to_proto(reply).SerializeToString()))
        if "slow" in delivery.faults:
            self._held.append((delivery.push, carried))
            return None
        if "repeat" in delivery.faults:
            self._held.appendleft((-1, carried))
        return carried

    def _answer(self, delivery: _Delivery, message: Message) -> Message:
        try:
            return self._app(message, self._contexts[delivery.node])
        except Exception as error:  # noqa: BLE001 - as in a SuperNode, an error of the client is its answer
            # other errors than FedNode's by type only: their text may quote training data
            text = type(error).__name__ + (f": {error}"[:300] if isinstance(error, FednodeError) else "")
            log.warning("%s ended with %s", self._names[delivery.node - 100], text)
            return Message(Error(code=_CLIENT_CRASHED, reason=text), reply_to=message)

    def _spoil(self, delivery: _Delivery, reply: Message) -> Message:
        """Put garbage, or the update of the round before, in place of this reply, if that fault is to be injected."""
        if not reply.has_content():
            return reply
        honest = reply.content
        if "garbage" in delivery.faults:
            reply.content = to_content(os.urandom(len(frame_of(honest))))
        elif "lie" in delivery.faults:
            reply.content = self._last_update.get(delivery.node, to_content(b""))
        self._last_update[delivery.node] = honest
        return reply


def run_in_process(server_app: ServerApp, grid: InProcGrid, run_config: Config) -> None:
    """Run a ServerApp over a grid in this process. Raises what the app raises."""
    context = Context(run_id=_RUN_ID, node_id=1, node_config={}, state=RecordDict(), run_config=dict(run_config))
    server_app(grid, context)
