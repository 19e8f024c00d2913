"""One run from the side of the node: the same for every engine, given a `Grid` and a cohort."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fednode.assemble.enrolment import HOW_ENROLLED
from fednode.assemble.planning import Plan
from fednode.assemble.stores import Stores, open_stores
from fednode.clock import Clock, SystemClock
from fednode.driver import Channel, Node, RoundOutcome, Task
from fednode.errors import FednodeError, StoreError
from fednode.live import SOCKET_NAME, LiveView, Tuned
from fednode.observer import Observer, RoundProgress, StopFlag
from fednode.privacy import ChargeRecord, DiscreteGaussianSum, Ledger, epsilon, gaussian_epsilon
from fednode.privacy.chain import History, replay
from fednode.protocol.cohort import Cohort
from fednode.protocol.model import model_digest
from fednode.stores import ParameterStore, UpdateStore
from fednode_crypto import SumScheme
from fednode_study.experiment import Experiment, load_experiment
from fednode_study.model_file import accuracy, write_model

if TYPE_CHECKING:
    from fednode.server import ArrayRecord, Grid, MetricRecord

log = logging.getLogger("fednode.run")

_ASKS_FIT = 8
"""A client that found no room is asked again after this part of a round: three times within less than half of it."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a run is given from outside: time, the secure sum, the wish to stop."""

    clock: Clock
    schemes: Callable[[str], SumScheme]
    stop: StopFlag
    poll: float = 0.5


@dataclass(frozen=True, slots=True)
class Watched:
    """A round as it ended, or how far it came, with what the ledger held then and how the model scored."""

    outcome: RoundOutcome
    accuracy: float | None
    epsilon: float
    gaussian: float


@dataclass(frozen=True, slots=True)
class Account:
    """What the ledger holds: each of its rounds was charged, whatever is known of its end. `head` is that of the
    ledger, or ""."""

    charges: tuple[ChargeRecord, ...]
    head: str
    delta: float

    @property
    def epsilon(self) -> float:
        """THE number after these charges."""
        return epsilon(self._events(), self.delta)

    @property
    def gaussian(self) -> float:
        """That of the Gaussian reference."""
        return gaussian_epsilon(self._events(), self.delta)

    def after(self, number: int) -> "Account":
        """What was spent by the end of this round."""
        return replace(self, charges=tuple(charge for charge in self.charges if charge.round_number <= number))

    def _events(self) -> list[DiscreteGaussianSum]:
        return [charge.event for charge in self.charges]


@dataclass(slots=True)
class Session:
    """A run on its way: what was planned, where it is written, and what has happened so far."""

    plan: Plan
    run_id: str
    folder: Path
    observer: Observer
    tools: Tools
    cohort: Cohort | None = None
    enrolled: str = HOW_ENROLLED
    """How the members came by their keys, in the words of the report."""
    started: float = 0.0
    rounds: list[Watched] = field(default_factory=list)
    ledger: Ledger | None = None
    """Closed once the run is over; what it holds can still be read."""
    model_digest: str = ""
    released: int = 0
    """The newest round that came to a release, as far as there was time to note it."""
    saved: int = 0
    """The round whose model is in the folder."""
    tuned: list[Tuned] = field(default_factory=list)
    """What somebody changed while the run was on its way."""
    noticed: list[str] = field(default_factory=list)
    """Sentences about what weakens the claims of the run, as the node came to see it."""

    def execute(self, grid: "Grid", cohort: Cohort) -> FednodeError | None:
        """Run all rounds; returns what ended it early, or None. The model of the last release is written in any
        case. Whatever it raises, `rounds` and `account` say what had happened by then."""
        self.cohort = cohort
        self.observer.phase("making features")
        try:
            # first what somebody else may refuse: features take time
            with (
                self._stores() as stores,
                Ledger.open(self.folder / "ledger.jsonl", self.plan.budget, self.tools.clock, self.run_id) as ledger,
            ):
                self.ledger = ledger
                experiment = load_experiment(self.plan.experiment)
                self._train(grid, lambda channel: self._node(channel, ledger, stores), ledger, experiment)
        except FednodeError as error:
            log.error("%s", error)
            return error
        return None

    @contextmanager
    def _stores(self) -> Iterator[Stores]:
        """Where updates and model are kept, open to be looked at from outside as long as they are there."""
        with (
            open_stores(self.plan, self.run_id, self.folder, self.tools.clock) as stores,
            # on a clock that skips, whoever looks would be too late at once
            LiveView(self.folder / SOCKET_NAME, stores.views(), SystemClock(), self.tuned.append),
        ):
            yield stores

    def account(self) -> Account:
        """What was spent: by the file where that says more, since an abort may come just after the line."""
        if self.ledger is None:
            return Account((), "", self.plan.budget.delta)
        found = History()
        path = self.folder / "ledger.jsonl"
        if path.is_file():
            with suppress(OSError, StoreError):
                found = replay(path.read_bytes(), str(path)).history
        entries, head = self.ledger.entries, self.ledger.head
        if len(found.entries) > len(entries):
            entries, head = found.entries, found.head
        return Account(tuple(entry.charge for entry in entries), head, self.plan.budget.delta)

    def _train(self, grid: "Grid", node: Callable[[Channel], Node], ledger: Ledger, experiment: Experiment) -> None:
        from fednode.server import FedNodeStrategy, Seen, accuracy_record, initial_record, named_arrays

        def seen(event: Seen) -> None:
            score = None if event.metrics is None else float(str(event.metrics["accuracy"]))
            self._saw(Watched(event.outcome, score, ledger.spent, ledger.gaussian_spent))

        def evaluate(number: int, arrays: "ArrayRecord") -> "MetricRecord":
            self.released = number
            named = named_arrays(arrays)
            self._save(named, experiment)
            self.saved = number
            return accuracy_record(accuracy(named, experiment))

        initial = self.plan.layout.unflatten(np.zeros(self.plan.layout.dimension))
        self.observer.phase("calling the members")
        FedNodeStrategy(self._task(), node, seen, self._notice).start(
            grid,
            initial_record(initial),
            num_rounds=self.plan.settings.rounds,
            timeout=self.plan.settings.deadline,
            evaluate_fn=evaluate,
        )

    def _save(self, arrays: Mapping[str, NDArray[np.generic]], experiment: Experiment) -> None:
        floats = {name: np.asarray(array, dtype=np.float32) for name, array in arrays.items()}
        digest = model_digest(floats).hex()
        write_model(self.folder, floats, experiment, self.run_id)
        self.model_digest = digest

    def _task(self) -> Task:
        if self.cohort is None:
            raise RuntimeError("a task without a cohort")
        plan = self.plan
        return Task(self.run_id, self.cohort, plan.terms, plan.sum_params, plan.layout, plan.optimiser, plan.failure)

    def _node(self, channel: Channel, ledger: Ledger, stores: Stores) -> Node:
        plan = self.plan
        return Node(
            channel=channel,
            scheme=self.tools.schemes(plan.sum_params.scheme),
            ledger=ledger,
            updates=UpdateStore(stores.updates, retry_after=plan.settings.deadline / _ASKS_FIT),
            parameters=ParameterStore(stores.parameters.cache, self.run_id),
            clock=self.tools.clock,
            stop=lambda: self.tools.stop.raised,
            poll=self.tools.poll,
            staleness=lambda: stores.coherence.staleness,
            invalidated=stores.coherence.invalidated,
            progress=self.observer.progress,
        )

    def _notice(self, told: str) -> None:
        self.noticed.append(told)
        self.observer.phase(f"warning: {told}")

    def _saw(self, watched: Watched) -> None:
        self.rounds.append(watched)
        outcome = watched.outcome
        self.observer.round_done(
            RoundProgress(
                round=outcome.round,
                rounds=self.plan.settings.rounds,
                survivors=len(outcome.survivors),
                invited=outcome.invited,
                accuracy=watched.accuracy,
                epsilon=watched.epsilon,
                budget=self.plan.settings.epsilon,
                bytes_up=round(outcome.bytes_up),
                seconds=outcome.seconds,
                reason=outcome.reason or None,
            )
        )
