"""Real rounds with real members in one process. Only the network between node and members is missing."""

import math
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fednode.assemble.enrolment import enrol_simulation
from fednode.cache import Limits, MemoryBackend, WhenFull
from fednode.clock import SkippingClock
from fednode.driver import Driver, Node, PlannedTask, Reply, Request, RoundOutcome
from fednode.optimiser import ServerOptimiser
from fednode.privacy import Budget, Ledger
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Signer
from fednode.protocol.headroom import sum_headroom
from fednode.protocol.model import Layout
from fednode.protocol.requests import read_spec
from fednode.protocol.signed_requests import SignedRequest, sign_request
from fednode.protocol.spec import Terms
from fednode.stores import ParameterStore, UpdateStore, parameter_limits
from fednode_clients.limits import MemberLimits
from fednode_clients.membership import MemberParts, Members, NodeContext
from fednode_crypto import Demand, plan, scheme

_TASK: Final = "bench"
_ANY: Final = MemberLimits(max_corrupt=0, max_epsilon=math.inf)
"""Members that take part whatever the rounds cost: nothing here has records."""


@dataclass(frozen=True, slots=True)
class LocalRounds:
    """So many rounds over a model of `values` trained and `frozen` further values; no member is ever away."""

    clients: int
    values: int
    holders: int
    threshold: int
    rounds: int = 1
    frozen: int = 0


def run_rounds(
    case: LocalRounds, heard: "Callable[[LocalChannel, str, Request], None]" = lambda *_: None
) -> list[RoundOutcome]:
    """Run the rounds in a folder of their own; `heard` sees each request before its member answers.

    Raises RuntimeError where a round does not open.
    """
    with tempfile.TemporaryDirectory(prefix="fednode-bench-") as place:
        root = Path(place)
        enrolled = enrol_simulation(root / "keys", case.clients, case.holders)
        task = _task(enrolled.cohort, case)
        with Ledger.open(root / "ledger.jsonl", Budget(1e9, 1e-5), SkippingClock(), _TASK) as ledger:
            driver = Driver(_node(task, LocalChannel(root / "keys", enrolled.signer, heard), ledger), task)
            driver.begin(np.zeros(case.values))
            outcomes = [driver.run_round(number) for number in range(1, case.rounds + 1)]
    failed = [outcome.reason for outcome in outcomes if outcome.cause]
    if failed:
        raise RuntimeError(f"a round failed, so nothing was measured: {failed[0]}")
    return outcomes


def _task(cohort: Cohort, case: LocalRounds) -> PlannedTask:
    terms = Terms(
        unit="record",
        clip=1.0,
        grid_bits=12,
        local_variance=1 << 26,
        max_records=10,
        divisor=10.0 * case.clients,
        min_survivors=case.clients,
        assumed_colluders=1,
        deadline=600.0,
    )
    room = sum_headroom(terms, case.values, case.clients)
    return PlannedTask(
        name=_TASK,
        cohort=cohort,
        terms=terms,
        sum_params=plan("ring", Demand(case.values, case.clients, room, case.holders, case.threshold)),
        layout=Layout(("values",), ((case.values,),)),
        optimiser=ServerOptimiser(case.rounds),
        failure=1e-30,
        frozen={"frozen": np.linspace(-1.0, 1.0, case.frozen, dtype=np.float32)} if case.frozen else {},
    )


def _node(task: PlannedTask, channel: "LocalChannel", ledger: Ledger) -> Node:
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
class _NoRecords:
    """The contribution of a client without records: its update is noise."""

    vector: NDArray[np.float64] = field(repr=False)
    clip: float = 1.0
    unit: str = "record"


class LocalChannel:
    """All members whose key folders are in `keys`, asked one after the other."""

    def __init__(self, keys: Path, signer: Signer, heard: "Callable[[LocalChannel, str, Request], None]") -> None:
        self.keys, self._signer = keys, signer
        self.members = Members(MemberParts(limits=_ANY, folder=lambda place: keys / str(place.node["name"])))
        self._heard = heard
        self._queue: deque[tuple[str, Request]] = deque()

    def send(self, requests: Mapping[str, Request]) -> None:
        """Queue requests by member."""
        self._queue.extend(requests.items())

    def receive(self) -> Sequence[Reply]:
        """Return the answer to the next request; nothing once all are answered."""
        if not self._queue:
            return ()
        name, request = self._queue.popleft()
        self._heard(self, name, request)
        if request.call == "query":
            asked = SignedRequest(request.frame, sign_request(self._signer, name, request.frame))
            frame = self.members.query(place_of(name), asked)
        else:
            frame = self._train(place_of(name), request)
        return (Reply(name, request.tag, frame),)

    def _train(self, place: NodeContext, request: Request) -> bytes:
        client = self.members.client(place)
        spec, parts = read_spec("round", request.frame)
        joined = client.join(spec, parts, request.chunks)
        if isinstance(joined, bytes):
            return joined
        return client.answer(spec, lambda: _NoRecords(np.zeros(spec.sum_params.dimension)))


def place_of(name: str) -> NodeContext:
    """Return where the member of this name stands."""
    return NodeContext(1, {"name": name}, {})
