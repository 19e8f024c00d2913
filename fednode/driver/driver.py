"""A task from its joint key to its last model."""

import logging
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fednode.driver.channel import Request
from fednode.driver.downloads import Downloads
from fednode.driver.outcome import RoundOutcome
from fednode.driver.query import ask, describe, raise_if_stopped, read_answer
from fednode.driver.round_log import describe_error
from fednode.driver.round_run import RoundRun
from fednode.driver.steps.boxes import gather_box_keys
from fednode.driver.steps.ceremony import AgreedKey, agree_on_key
from fednode.driver.steps.close import PATIENCE, close_round
from fednode.driver.task import Node, Task
from fednode.errors import PeerFault
from fednode.protocol.boxkeys import BoxKeys
from fednode.protocol.requests import TaskCard, ask_frame
from fednode.protocol.spec import RoundSpec, Terms
from fednode.reasons import Reason

log = logging.getLogger("fednode.driver")


class Driver:
    """Runs the rounds of one task over one channel; the model lives in the parameter store, the budget in the
    ledger."""

    def __init__(self, node: Node, task: Task) -> None:
        self._node, self._task = node, task
        self._key: AgreedKey | None = None
        self._uninformed = {client.name for client in task.cohort.clients}
        if node.scheme.boxed:
            self._uninformed |= {holder.name for holder in task.cohort.holders}
        self._momentum = task.optimiser.init(task.layout.dimension)
        self._untold: dict[str, str] = {}
        self._downloads = Downloads(node.parameters, task, node.clock, node.invalidated)
        self.broken: RoundOutcome | None = None
        """How far the last round came, if `run_round` raised after clients were asked: it may have been charged."""

    @property
    def downloads(self) -> Downloads:
        """Who is known to hold what of the model, and what new versions made stale; to look at."""
        return self._downloads

    def begin(self, parameters: NDArray[np.float64]) -> None:
        """Agree on a joint key, where the scheme has one, and write version 1 of the model.

        Raises `TooFewHolders` or `OpeningRejected`: nothing was sent to a client then, and nothing was charged.
        """
        if not self._node.scheme.boxed:
            self._key = agree_on_key(self._node, self._task)
        self._downloads.publish(parameters, 0)

    def run_round(self, number: int) -> RoundOutcome:
        """One round. A release changes the model; anything else leaves it as it was.

        Raises `BudgetExhausted` before any client is asked, if even the smallest cohort's charge would not fit. After
        that, whatever it raises, `broken` says how far the round came.
        """
        self.broken = None
        raise_if_stopped(self._node, f"before round {number}")
        self._node.ledger.check([self._task.event(self._task.terms.min_survivors)])
        self._inform()
        keys = gather_box_keys(self._node, self._task, number, self._untold) if self._node.scheme.boxed else None
        key_digest = self._agreed().key.digest() if keys is None else keys.digest()
        download = self._downloads.of_round(self._spec(number, key_digest), {} if keys is None else keys.parts())
        run = RoundRun(self._node, self._task, download, self._invited(), keys)
        try:
            outcome = self._run(run, number, keys)
        except BaseException as error:
            self.broken = run.outcome(error)
            raise
        if outcome.cause == "too-few-survivors":
            outcome = replace(outcome, reason=outcome.reason + self._why_untold())
        for name, reason in outcome.rejected:
            if reason == f"refused: {Reason.UNKNOWN_TASK}":
                self._uninformed.add(name)
        log.info("round %d: %s", number, outcome.cause or f"released over {len(outcome.survivors)} updates")
        return outcome

    def _run(self, run: RoundRun, number: int, keys: BoxKeys | None) -> RoundOutcome:
        """The round to its end, and the next version of the model if it was released."""
        try:
            outcome = run.run()
            if outcome.release is not None:
                self._apply(number, outcome.release.mean)
        except Exception:
            self._close(number, keys, (), PATIENCE)
            raise
        # after a release the next key destroys this one; after the last round the word is still on its way
        self._close(number, keys, outcome.answered, PATIENCE if outcome.cause else 0.0)
        return outcome

    def _close(self, number: int, keys: BoxKeys | None, answered: Collection[str], seconds: float) -> None:
        """Tell the holders that have a key of this round and did not open it that it is over, if they can be told."""
        points = frozenset[int]() if keys is None else keys.points
        left = [one.name for one in self._task.cohort.holders if one.point in points and one.name not in answered]
        if not left:
            return
        try:
            close_round(self._node, self._task, number, left, seconds)
        except Exception as error:  # noqa: BLE001 - how the round ended is what counts
            log.warning("round %d: %s may not know that it is over: %s", number, ", ".join(left), describe_error(error))

    def parameters(self) -> NDArray[np.float64]:
        """The newest model, float64 [d], read-only."""
        return self._downloads.vector()

    def _apply(self, number: int, mean: NDArray[np.float64]) -> None:
        self._momentum, vector = self._task.optimiser.apply(self._momentum, self.parameters(), mean)
        self._downloads.publish(vector, number)

    def _agreed(self) -> AgreedKey:
        if self._key is None:
            raise RuntimeError("a round before `begin`: there is no joint key yet")
        return self._key

    def _invited(self) -> frozenset[str]:
        return frozenset(client.name for client in self._task.cohort.clients)

    def _inform(self) -> None:
        """Give the task and the joint key to clients that do not have them: all at first, later those that forgot."""
        if not self._uninformed:
            return
        card = TaskCard(self._task.name, self._task.cohort, self._task.sum_params)
        published = {} if self._node.scheme.boxed else self._agreed().published.parts()
        frame = ask_frame("task", self._task.name, card.parts() | published)
        request = Request("query", f"{self._task.name}/task", frame)
        requests = dict.fromkeys(sorted(self._uninformed), request)
        for reply in ask(self._node, requests, self._task.terms.deadline, "giving members the task"):
            try:
                read_answer(reply, "ready", self._task, 0)
                self._uninformed.discard(reply.sender)
                self._untold.pop(reply.sender, None)
            except PeerFault as fault:
                self._untold[reply.sender] = describe(fault)
                log.warning("%s did not take the task: %s", reply.sender, fault)

    def _why_untold(self) -> str:
        """A client that could not take the task says in the round that it does not know it; here is why."""
        clients = self._invited() & set(self._untold)
        return f"; {len(clients)} did not take the task: {self._untold[min(clients)]}" if clients else ""

    def _terms(self) -> Terms:
        """This round's terms: the task's, but for a staleness that was lowered since."""
        terms, wanted = self._task.terms, self._node.staleness
        return terms if wanted is None else replace(terms, staleness=max(0, min(terms.staleness, wanted())))

    def _spec(self, number: int, key_digest: bytes) -> RoundSpec:
        newest = self._downloads.newest
        return RoundSpec(
            task=self._task.name,
            round=number,
            model_version=newest.version,
            model_digest=newest.digest,
            cohort_digest=self._task.cohort.digest(),
            key_digest=key_digest,
            terms=self._terms(),
            sum_params=self._task.sum_params,
        )
