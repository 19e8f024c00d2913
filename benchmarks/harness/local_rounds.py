"""Real rounds with real members in one process: only the way between node and members is short."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fednode.cache import Limits, MemoryBackend, WhenFull
from fednode.clock import SkippingClock
from fednode.driver import Node, Reply, Request, Task
from fednode.privacy import Ledger
from fednode.protocol.requests import frame_kind, read_spec
from fednode.stores import ParameterStore, UpdateStore, parameter_limits
from fednode_clients.membership import Members, Parts, Place
from fednode_crypto import scheme


def node_of(task: Task, channel: "ShortWay", ledger: Ledger) -> Node:
    """A node that keeps everything in memory, with room for one round."""
    clock = SkippingClock()
    clients, most = task.sum_params.summands, task.sum_params.upload_bytes + 4_096
    updates = MemoryBackend(clock, Limits(2 * clients, clients * most, most), WhenFull.REFUSE)
    parameters = MemoryBackend(clock, parameter_limits(task.outline), WhenFull.REFUSE)
    return Node(
        channel=channel,
        scheme=scheme(task.sum_params.scheme),
        ledger=ledger,
        updates=UpdateStore(updates, retry_after=1.0),
        parameters=ParameterStore(parameters, task.name),
        clock=clock,
    )


@dataclass(frozen=True, slots=True)
class _Nothing:
    """What a client without records learned: its update is noise."""

    vector: NDArray[np.float64] = field(repr=False)
    clip: float = 1.0


def _unheard(name: str, request: Request) -> None:
    """Nobody listens."""


class ShortWay:
    """All members of the cohort whose key folders are in `keys`, asked one after the other.

    `heard` is called with each request and the name of who will answer it, before it is answered.
    """

    def __init__(self, keys: Path, heard: Callable[[str, Request], None] = _unheard) -> None:
        self.members = Members(Parts(folder=lambda place: keys / str(place.node["name"])))
        self._heard = heard
        self._queue: deque[tuple[str, Request]] = deque()

    def send(self, requests: Mapping[str, Request]) -> None:
        """Take requests by the name of who is asked."""
        self._queue.extend(requests.items())

    def receive(self) -> Sequence[Reply]:
        """The answer to the next request; nothing once all are answered."""
        if not self._queue:
            return ()
        name, request = self._queue.popleft()
        self._heard(name, request)
        place = place_of(name)
        if request.call == "query":
            answer = self.members.query(place, request.frame, frame_kind(request.frame))
            return (Reply(name, request.tag, answer),)
        return (Reply(name, request.tag, self._train(place, request)),)

    def _train(self, place: Place, request: Request) -> bytes:
        client = self.members.client(place)
        spec, parts = read_spec("round", request.frame)
        joined = client.join(spec, parts, request.chunks)
        if isinstance(joined, bytes):
            return joined
        return client.answer(spec, _Nothing(np.zeros(spec.sum_params.dimension)))


def place_of(name: str) -> Place:
    """Where the member of this name stands."""
    return Place(1, {"name": name}, {})
