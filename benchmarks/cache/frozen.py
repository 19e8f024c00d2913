"""A model of which half is never trained, over whole rounds: bytes that come down, against sending all of it always.

The rounds are real ones, with real members, sealed updates and an opening each; only the way between them is short.
What is counted is what the record of a round counts: frames and chunks, without the carrier's own bytes.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness.local_rounds import ShortWay, node_of
from fednode.assemble.enrolment import enrol_simulation
from fednode.clock import SkippingClock
from fednode.driver import Driver, Task
from fednode.optimiser import ServerOptimiser
from fednode.privacy import Budget, Ledger
from fednode.protocol.headroom import sum_room
from fednode.protocol.model import Layout
from fednode.protocol.spec import Terms
from fednode_crypto import Demand, plan

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
            driver = Driver(node_of(task, ShortWay(root / "keys"), ledger), task)
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
