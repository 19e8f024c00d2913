"""One run from the side of the node: the same for every engine, given a `Grid` and a cohort."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fednode.allocation import allocate
from fednode.assemble.enrolment import HOW_ENROLLED, Enrolled
from fednode.assemble.planning import Plan
from fednode.assemble.rounds import Notes, Spending, round_record
from fednode.assemble.stores import Stores, open_stores
from fednode.assemble.study import Arrays, Evaluator
from fednode.clock import Clock, SkippingClock, SystemClock
from fednode.driver import Channel, Node, PlannedTask, RoundOutcome
from fednode.errors import FednodeError
from fednode.live import SOCKET_NAME, LiveView, RunNumbers, Tuned, metrics_served
from fednode.observer import Observer, RoundProgress, StopFlag
from fednode.privacy import Ledger, epsilon, rounds_left
from fednode.privacy.population import open_population
from fednode.protocol.envelope import Signer
from fednode.protocol.model import model_digest
from fednode.reports import LabelScore, RoundRecord
from fednode.stores import UpdateStore
from fednode_crypto import Rng, SumScheme, SystemRng, scheme

if TYPE_CHECKING:
    from fednode.server import ArrayRecord, Grid, MetricRecord

log = logging.getLogger("fednode.run")

_ASKS_FIT = 8
"""A client that found no room is asked again after this part of a round: three times within less than half of it."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a run takes from outside. Tests replace parts of it; no flag does.

    In one process, waiting takes no time; over a network, pass a `SystemClock`. `poll` is in seconds.
    """

    schemes: Callable[[str], SumScheme] = scheme
    rng: Callable[[], Rng] = SystemRng
    clock: Clock = field(default_factory=SkippingClock)
    poll: float = 0.5


@dataclass(slots=True)
class Session:
    """A run: what was planned, where it is written, and what has happened so far."""

    plan: Plan
    folder: Path
    observer: Observer
    stop: StopFlag
    load_evaluator: Callable[[], Evaluator]
    environment: Environment = field(default_factory=Environment)
    members: Enrolled | None = None
    enrolled: str = HOW_ENROLLED
    """How the members came by their keys, in the words of the report."""
    started: float = 0.0
    rounds: list[RoundRecord] = field(default_factory=list)
    broken: dict[int, str] = field(default_factory=dict)
    """For each round that did not go to its end, what broke it off."""
    ledger: Ledger | None = None
    """Closed once the run is over; what it holds can still be read."""
    model_digest: str = ""
    released: int = 0
    """The newest round that was released, as far as there was time to note it."""
    saved: int = 0
    """The round whose model is in the folder."""
    tested: int = 0
    """The newest round whose model went through the evaluator."""
    labels: tuple[LabelScore, ...] = ()
    """What that model got right."""
    tuned: list[Tuned] = field(default_factory=list)
    """What somebody changed during the run."""
    noticed: list[str] = field(default_factory=list)
    """Sentences about what weakens the claims of the run, as the node found it."""
    opened: Callable[[RoundOutcome], None] = lambda _: None
    """Gets the outcome of each round: an audit looks at the opened sums."""

    @property
    def run_id(self) -> str:
        """The name of the run, which is that of its folder and of its task."""
        return self.folder.name

    def announce(self) -> None:
        """Tell the observer where the run is written, how long it is, and what it was warned of."""
        self.observer.writing_to(self.folder)
        self.observer.started(self.plan.settings.rounds)
        for warning in self.plan.warnings:
            self.observer.phase(f"warning: {warning}")

    def execute(self, grid: "Grid", members: Enrolled) -> FednodeError | None:
        """Run all rounds; returns what ended the run early, or None.

        The model of the last release is written in any case. Whatever this raises, the other fields say what had
        happened by then.
        """
        # imported here: the facts are collected from a session
        from fednode.assemble.report_facts import planned_notes

        self.members = members
        self.observer.phase("making features")
        try:
            planned_notes(self).begin(self.folder)
            with (
                self._stores() as stores,
                self._ledger() as ledger,
            ):
                self.ledger = ledger
                # after the stores and the ledger, which may refuse: features take time
                evaluator = self.load_evaluator()
                self._train(grid, lambda channel: self._node(channel, ledger, stores), ledger, evaluator)
        except FednodeError as error:
            log.error("%s", error)
            return error
        return None

    def _ledger(self) -> Ledger:
        """The run's own, each charge of which the population's ledger holds first."""
        clock, budget = self.environment.clock, self.plan.budget
        population = open_population(self.plan.population.path, budget, clock, self.run_id)
        return Ledger.open(self.folder / "ledger.jsonl", budget, clock, self.run_id, population)

    def spending(self) -> Spending:
        """What the ledger holds."""
        return Spending.of(self.ledger, self.folder / "ledger.jsonl", self.plan.budget.delta)

    def numbers(self) -> RunNumbers:
        """What the run has spent and done so far."""
        budget, planned, rounds = self.plan.budget, self.plan.settings.rounds, self.rounds
        events = () if self.ledger is None else self.ledger.dearest()
        return RunNumbers(
            privacy_epsilon_spent=epsilon(events, budget.delta),
            privacy_epsilon_limit=budget.epsilon,
            privacy_rounds_left=rounds_left(events, events[-1], budget.epsilon, budget.delta) if events else planned,
            rounds_done=len(rounds),
            round_survivors=len(rounds[-1].survivors) if rounds else 0,
        )

    @contextmanager
    def _stores(self) -> Iterator[Stores]:
        """The stores of updates and model, which the live view shows as long as they are open."""
        with ExitStack() as stack:
            stores = stack.enter_context(open_stores(self.plan, self.run_id, self.folder, self.environment.clock))
            views, metrics = stores.views(), self.plan.settings.metrics
            # the machine's clock: changes are dated
            stack.enter_context(LiveView(self.folder / SOCKET_NAME, views, SystemClock(), self.tuned.append))
            if metrics is not None:
                port = stack.enter_context(metrics_served(metrics, self.run_id, views, self.numbers))
                log.info("metrics are served at http://%s:%d/metrics", metrics.rpartition(":")[0], port)
            yield stores

    def _train(self, grid: "Grid", node: Callable[[Channel], Node], ledger: Ledger, evaluator: Evaluator) -> None:
        from fednode.server import DriverStrategy, accuracy_record, named_arrays, to_arrays

        def seen(outcome: RoundOutcome, metrics: "MetricRecord | None") -> None:
            accuracy = None if metrics is None else float(str(metrics["accuracy"]))
            self._note_round(outcome, accuracy, (ledger.spent, ledger.renyi_spent))

        def evaluate(number: int, arrays: "ArrayRecord") -> "MetricRecord | None":
            self.released = number
            named = named_arrays(arrays)
            self._save(number, named, evaluator)
            scores = [LabelScore(label, *found) for label, found in evaluator.hits(named).items()]
            self.tested, self.labels = number, tuple(scores)
            total = sum(score.total for score in scores)
            return accuracy_record(sum(score.right for score in scores) / total) if total else None

        initial = self.plan.workload.initial
        if initial is None:
            initial = np.zeros(self.plan.layout.dimension)
        self.observer.phase("calling the members")
        DriverStrategy(self._task(), self._signer(), node, seen, self._notice).start(
            grid,
            to_arrays(self.plan.layout.unflatten(initial)),
            num_rounds=self.plan.settings.rounds,
            timeout=self.plan.settings.deadline,
            evaluate_fn=evaluate,
        )

    def _save(self, number: int, arrays: Arrays, evaluator: Evaluator) -> None:
        floats = {name: np.asarray(array, dtype=np.float32) for name, array in arrays.items()}
        digest = model_digest(floats).hex()
        evaluator.save(self.folder, floats, self.run_id)
        self.model_digest, self.saved = digest, number

    def _task(self) -> PlannedTask:
        if self.members is None:
            raise RuntimeError("a task without a cohort")
        plan, cohort = self.plan, self.members.cohort
        each, names = plan.settings.rounds_per_client, [client.name for client in cohort.clients]
        drawn = () if each is None else allocate(names, plan.settings.rounds, each, self.environment.rng())
        return PlannedTask(
            self.run_id,
            cohort,
            plan.terms,
            plan.sum_params,
            plan.layout,
            plan.optimiser,
            plan.noise.failure,
            noise=plan.noise,
            allocation=drawn,
            clipping=plan.clipping,
        )

    def _signer(self) -> Signer:
        if self.members is None:
            raise RuntimeError("a task without a cohort")
        return self.members.signer

    def _node(self, channel: Channel, ledger: Ledger, stores: Stores) -> Node:
        plan = self.plan
        return Node(
            channel=channel,
            scheme=self.environment.schemes(plan.sum_params.scheme),
            ledger=ledger,
            updates=UpdateStore(stores.updates.cache, retry_after=plan.settings.deadline / _ASKS_FIT),
            parameters=stores.parameter_store(self.run_id, plan.settings.deadline),
            clock=self.environment.clock,
            stop=lambda: self.stop.raised,
            poll=self.environment.poll,
            staleness=lambda: stores.coherence.staleness,
            invalidated=stores.coherence.invalidated,
            progress=self.observer.progress,
        )

    def _notice(self, sentence: str) -> None:
        self.noticed.append(sentence)
        self.observer.phase(f"warning: {sentence}")

    def _note_round(self, outcome: RoundOutcome, accuracy: float | None, spent: tuple[float, float]) -> None:
        record = round_record(self.plan, outcome, accuracy, spent)
        if self.saved == record.round:
            record = replace(record, model_digest=self.model_digest)
        self.rounds.append(record)
        Notes.add(self.folder, record)
        self.opened(outcome)
        if outcome.broken:
            self.broken[outcome.round] = outcome.broken
        self.observer.round_done(
            RoundProgress(
                round=record.round,
                rounds=self.plan.settings.rounds,
                survivors=len(record.survivors),
                invited=record.invited,
                accuracy=accuracy,
                epsilon=record.epsilon_after,
                budget=self.plan.settings.epsilon,
                bytes_up=record.bytes_up,
                seconds=record.seconds,
                reason=record.reason,
            )
        )
