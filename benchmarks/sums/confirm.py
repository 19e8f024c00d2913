"""Row `confirm`: one holder signs the final roster of a round, the step between the last strike and the charge.

The round is a real one, with real members of which none is away, over few values: nothing in the step depends on how
many there are. It is timed in the middle of the round, and counts only if the round then opens.
"""

import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness.local_rounds import ShortWay, node_of, place_of
from benchmarks.harness.timing import Stopwatch
from benchmarks.sums.cases import HOLDERS, THRESHOLD, Case, Confirmed
from fednode.assemble.enrolment import enrol_simulation
from fednode.clock import SkippingClock, SystemClock
from fednode.driver import Driver, Request, Task
from fednode.optimiser import ServerOptimiser
from fednode.privacy import Budget, Ledger
from fednode.protocol.headroom import sum_room
from fednode.protocol.model import Layout
from fednode.protocol.requests import frame_kind
from fednode.protocol.spec import Terms
from fednode_clients.keyfolder.audit_log import RECORD_HEAD
from fednode_crypto import Demand, plan

_TASK: Final = "confirm"
_HOLDER: Final = "holder-1"


def work(asked: dict[str, Any]) -> dict[str, Any]:
    """Measure the case."""
    case = Case.from_dict(asked)
    return measure(case, Stopwatch(SystemClock(), case.repeats)).to_dict()


def measure(case: Case, watch: Stopwatch) -> Confirmed:
    """Run one round, and time a holder of it when it is asked to confirm.

    Raises `RuntimeError` where the round does not open.
    """
    with tempfile.TemporaryDirectory(prefix="fednode-bench-") as place:
        root = Path(place)
        task = _task(root, case)
        timed = _Timed(root / "keys", watch)
        with Ledger.open(root / "ledger.jsonl", Budget(1e9, 1e-5), SkippingClock(), _TASK) as ledger:
            driver = Driver(node_of(task, timed.way, ledger), task)
            driver.begin(np.zeros(case.dimension))
            outcome = driver.run_round(1)
    if outcome.cause or timed.found is None:
        raise RuntimeError(f"the round failed, so nothing was measured: {outcome.reason or 'nobody had to confirm'}")
    return timed.found


class _Timed:
    """Listens on the way to the members, and times the first holder when its request to confirm comes by."""

    def __init__(self, keys: Path, watch: Stopwatch) -> None:
        self.way = ShortWay(keys, self._heard)
        self.found: Confirmed | None = None
        self._record, self._watch = keys / _HOLDER / "record.jsonl", watch

    def _heard(self, name: str, request: Request) -> None:
        if name != _HOLDER or self.found is not None or frame_kind(request.frame) != "confirm":
            return
        holder = self.way.members.holder(place_of(name))
        before = self._record.read_bytes() if self._record.exists() else b""
        head = holder.folder.get(RECORD_HEAD)

        def unsaid() -> None:
            # what was signed once is only repeated: each time has to be the first
            self._record.write_bytes(before)
            if head is None:
                holder.folder.drop(RECORD_HEAD)
            else:
                holder.folder.put(RECORD_HEAD, head)

        answer = holder.handle(request.frame).to_bytes()
        taken = self._watch.time(lambda: holder.handle(request.frame).to_bytes(), before=unsaid)
        unsaid()
        self.found = Confirmed(len(request.frame), len(answer), taken)


def _task(root: Path, case: Case) -> Task:
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
    room = sum_room(terms, case.dimension, case.clients)
    return Task(
        name=_TASK,
        cohort=enrol_simulation(root / "keys", case.clients, HOLDERS),
        terms=terms,
        sum_params=plan("ring", Demand(case.dimension, case.clients, room, HOLDERS, THRESHOLD)),
        layout=Layout(("values",), ((case.dimension,),)),
        optimiser=ServerOptimiser(1),
        failure=1e-30,
    )
