"""A model of which half is never trained, over whole rounds: bytes that come down, against sending all of it always.

The rounds are real ones, with real members, sealed updates and an opening each; only the way between them is short.
What is counted is what the record of a round counts: frames and chunks, without the carrier's own bytes.
"""

import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fednode.assemble.enrolment import enrol_simulation
from fednode.cache import Limits, MemoryBackend, ParameterStore, UpdateStore, WhenFull, parameter_limits
from fednode.clock import SkippingClock
from fednode.driver import Driver, Node, Reply, Request, Task
from fednode.optimiser import ServerOptimiser
from fednode.privacy import Budget, Ledger
from fednode.protocol.model import Layout
from fednode.protocol.requests import frame_kind, read_spec
from fednode.protocol.room import sum_room
from fednode.protocol.spec import Terms
from fednode_clients.membership import Members, Parts, Place
from fednode_crypto import Demand, plan, scheme

CLIENTS: Final = 3
HOLDERS: Final = 3
HALF: Final = 100_000
_TASK: Final = "frozen-half"


@dataclass(frozen=True, slots=True)
class Downloaded:
    """Bytes down of each round, a client's mean; the first round sends all there is."""

    rounds: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """All rounds' bytes over those of sending everything in each."""
        return sum(self.rounds) / (len(self.rounds) * self.rounds[0])


def work(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Answer the bytes of each round, and the ratio."""
    found = downloads(int(asked["rounds"]), int(asked.get("half", HALF)))
    return {"ratio": found.ratio, "rounds": list(found.rounds)}


def downloads(rounds: int, half: int = HALF) -> Downloaded:
    """Run so many rounds on a model of `half` trained and `half` frozen values; no client is ever away."""
    with tempfile.TemporaryDirectory(prefix="fednode-bench-") as place:
        root = Path(place)
        task = _task(root, rounds, half)
        with Ledger.open(root / "ledger.jsonl", Budget(1e9, 1e-5), SkippingClock(), _TASK) as ledger:
            driver = Driver(_node(task, ledger, root), task)
            driver.begin(np.zeros(half))
            outcomes = [driver.run_round(number) for number in range(1, rounds + 1)]
    failed = [outcome.reason for outcome in outcomes if outcome.cause]
    if failed:
        raise RuntimeError(f"a round failed, so nothing was measured: {failed[0]}")
    return Downloaded(tuple(outcome.bytes_down for outcome in outcomes))


def _task(root: Path, rounds: int, half: int) -> Task:
    terms = Terms(
        unit="record",
        clip=1.0,
        grid_bits=12,
        local_variance=1 << 26,
        max_records=10,
        divisor=10.0 * CLIENTS,
        min_survivors=CLIENTS,
        assumed_colluders=1,
        deadline=60.0,
    )
    params = plan("ring", Demand(half, CLIENTS, sum_room(terms, half, CLIENTS), HOLDERS, HOLDERS))
    return Task(
        name=_TASK,
        cohort=enrol_simulation(root / "keys", CLIENTS, HOLDERS),
        terms=terms,
        sum_params=params,
        layout=Layout(("trained",), ((half,),)),
        optimiser=ServerOptimiser(rounds),
        failure=1e-30,
        frozen={"frozen": np.linspace(-1.0, 1.0, half, dtype=np.float32)},
    )


def _node(task: Task, ledger: Ledger, root: Path) -> Node:
    clock = SkippingClock()
    most = task.sum_params.upload_bytes + 4_096
    updates = MemoryBackend(clock, Limits(2 * CLIENTS, CLIENTS * most, most), WhenFull.REFUSE)
    parameters = MemoryBackend(clock, parameter_limits(task.outline), WhenFull.REFUSE)
    return Node(
        channel=_Members(root / "keys"),
        scheme=scheme("ring"),
        ledger=ledger,
        updates=UpdateStore(updates, retry_after=1.0),
        parameters=ParameterStore(parameters, _TASK),
        clock=clock,
    )


@dataclass(frozen=True, slots=True)
class _Nothing:
    """What a client without records learned: its update is noise."""

    vector: NDArray[np.float64] = field(repr=False)
    records: int = 0
    clip: float = 1.0


class _Members:
    """All members of the cohort, asked one after the other."""

    def __init__(self, keys: Path) -> None:
        self._members = Members(Parts(folder=lambda place: keys / str(place.node["name"])))
        self._queue: deque[tuple[str, Request]] = deque()

    def send(self, requests: Mapping[str, Request]) -> None:
        self._queue.extend(requests.items())

    def receive(self) -> Sequence[Reply]:
        if not self._queue:
            return ()
        name, request = self._queue.popleft()
        place = Place(1, {"name": name}, {})
        if request.call == "query":
            return (Reply(name, request.tag, self._members.query(place, request.frame, frame_kind(request.frame))),)
        return (Reply(name, request.tag, self._train(place, request)),)

    def _train(self, place: Place, request: Request) -> bytes:
        client = self._members.client(place)
        spec, parts = read_spec("round", request.frame)
        joined = client.join(spec, parts, request.chunks)
        if isinstance(joined, bytes):
            return joined
        return client.answer(spec, _Nothing(np.zeros(spec.sum_params.dimension)))
