"""`Driver` runs the rounds of one task, from the joint key to the last model."""

import logging
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fednode.driver.channel import Request
from fednode.driver.downloads import Downloads
from fednode.driver.outcome import RoundOutcome
from fednode.driver.query import ask, raise_if_stopped, read_answer
from fednode.driver.round_log import describe_error
from fednode.driver.round_run import RoundRun
from fednode.driver.steps.boxes import gather_box_keys
from fednode.driver.steps.ceremony import AgreedKey, agree_on_key
from fednode.driver.steps.close import PATIENCE, close_round
from fednode.driver.task import Node, PlannedTask
from fednode.protocol.boxkeys import BoxKeys
from fednode.protocol.requests import TaskCard, ask_frame
from fednode.protocol.spec import RoundSpec, Terms
from fednode.reasons import Reason

log = logging.getLogger("fednode.driver")


class Driver:
    """Runs the rounds of one task. The model is in the parameter store, the budget in the ledger."""

    def __init__(self, node: Node, task: PlannedTask) -> None:
        self._node, self._task = node, task
        self._key: AgreedKey | None = None
        self._uninformed = {client.name for client in task.cohort.clients}
        if node.scheme.boxed:
            self._uninformed |= {holder.name for holder in task.cohort.holders}
        self._momentum = task.optimiser.init(task.layout.dimension)
        self._clip = task.terms.adaptive_clip
        self._refusals: dict[str, str] = {}
        """By member, why it did not take the task."""
        self._downloads = Downloads(node.parameters, task, node.clock, node.invalidated)
        self.broken: RoundOutcome | None = None
        """The state of the last round, if `run_round` raised after clients were asked: it may have been charged."""

    @property
    def downloads(self) -> Downloads:
        """Which parts of the model each client holds; read-only."""
        return self._downloads

    def begin(self, parameters: NDArray[np.float64]) -> None:
        """Agree on a joint key, if the scheme has one, and write version 1 of the model (float64 [d]).

        Raises `TooFewHolders` or `OpeningRejected`. Until then no client was asked and nothing was charged.
        """
        if not self._node.scheme.boxed:
            self._key = agree_on_key(self._node, self._task)
        self._downloads.publish(parameters, 0)

    def run_round(self, number: int) -> RoundOutcome:
        """Run one round. A release writes the next version of the model; any other outcome leaves the model as it is.

        Raises `BudgetExhausted` before any client is asked, if the budget is too small for the smallest allowed cohort.
        If it raises later, `broken` holds how far the round came.
        """
        self.broken = None
        raise_if_stopped(self._node, f"before round {number}")
        invited = self._task.invited(number)
        terms = self._terms(number, invited)
        self._node.ledger.check([self._task.event(terms, terms.min_survivors)], invited)
        self._inform()
        keys = gather_box_keys(self._node, self._task, number, self._refusals) if self._node.scheme.boxed else None
        key_digest = self._agreed().key.digest() if keys is None else keys.digest()
        download = self._downloads.of_round(
            self._spec(number, key_digest, terms), _no_parts if keys is None else keys.parts_of
        )
        run = RoundRun(self._node, self._task, download, invited, keys)
        try:
            outcome = self._run(run, number, keys)
        except BaseException as error:
            self.broken = run.outcome(error)
            raise
        if outcome.cause == "too-few-survivors":
            outcome = replace(outcome, reason=outcome.reason + self._why_uninformed())
        for name, reason in outcome.rejected:
            if reason == f"refused: {Reason.UNKNOWN_TASK}":
                self._uninformed.add(name)
        log.info("round %d: %s", number, outcome.cause or f"released over {len(outcome.survivors)} updates")
        return outcome

    def _run(self, run: RoundRun, number: int, keys: BoxKeys | None) -> RoundOutcome:
        """Run the round to its end, and write the next version of the model if it was released."""
        try:
            outcome = run.run()
            if outcome.release is not None:
                self._apply(number, outcome.release.mean)
                self._clip = outcome.release.next_clip
        except Exception:
            self._close(number, keys, (), PATIENCE)
            raise
        # After a release nobody waits for the holders: each destroys this key when the next round's key replaces it.
        # After a failure this may be the last message of the run, so the node waits for the answers.
        self._close(number, keys, outcome.answered, PATIENCE if outcome.cause else 0.0)
        return outcome

    def _close(self, number: int, keys: BoxKeys | None, answered: Collection[str], seconds: float) -> None:
        """Tell the holders that still have a key of this round that it is over; errors are only logged."""
        points = frozenset[int]() if keys is None else keys.points
        left = [one.name for one in self._task.cohort.holders if one.point in points and one.name not in answered]
        if not left:
            return
        try:
            close_round(self._node, self._task, number, left, seconds)
        except Exception as error:  # noqa: BLE001 - the outcome of the round stands
            log.warning("round %d: %s may not know that it is over: %s", number, ", ".join(left), describe_error(error))

    def parameters(self) -> NDArray[np.float64]:
        """The newest model, float64 [d], read-only."""
        return self._downloads.vector()

    def _apply(self, number: int, mean: NDArray[np.float64]) -> None:
        self._momentum, vector = self._task.optimiser.apply(self._momentum, self.parameters(), mean)
        self._downloads.publish(vector, number)

    def _agreed(self) -> AgreedKey:
        if self._key is None:
            raise RuntimeError("there is no joint key yet: call `begin` before `run_round`")
        return self._key

    def _inform(self) -> None:
        """Send the task to members that lack it: to all at first, later to those that answered UNKNOWN_TASK."""
        if not self._uninformed:
            return
        card = TaskCard(self._task.name, self._task.cohort, self._task.sum_params)
        published = {} if self._node.scheme.boxed else self._agreed().published.parts()
        frame = ask_frame("task", self._task.name, card.parts() | published)
        request = Request("query", f"{self._task.name}/task", frame)
        requests = dict.fromkeys(sorted(self._uninformed), request)
        ready, faults = ask(
            self._node,
            requests,
            self._task.terms.deadline,
            "giving members the task",
            lambda reply: read_answer(reply, "ready", self._task, 0),
        )
        self._uninformed -= ready.keys()
        self._refusals = {name: why for name, why in (self._refusals | faults).items() if name not in ready}

    def _why_uninformed(self) -> str:
        """Why clients did not take the task: in the round itself they only answer UNKNOWN_TASK."""
        clients = {client.name for client in self._task.cohort.clients} & set(self._refusals)
        return f"; {len(clients)} did not take the task: {self._refusals[min(clients)]}" if clients else ""

    def _terms(self, number: int, invited: frozenset[str]) -> Terms:
        """The round's terms, with a staleness that the operator may have lowered since."""
        terms = self._task.round_terms(number, self._momentum.step, self._node.ledger.dearest(invited))
        terms, wanted = replace(terms, adaptive_clip=self._clip), self._node.staleness
        return terms if wanted is None else replace(terms, staleness=max(0, min(terms.staleness, wanted())))

    def _spec(self, number: int, key_digest: bytes, terms: Terms) -> RoundSpec:
        newest = self._downloads.newest
        return RoundSpec(
            task=self._task.name,
            round=number,
            model_version=newest.version,
            model_digest=newest.digest,
            cohort_digest=self._task.cohort.digest(),
            key_digest=key_digest,
            terms=terms,
            sum_params=self._task.sum_params,
        )


def _no_parts(_: str) -> dict[str, bytes]:
    """What a scheme without boxes sends to one client alone."""
    return {}
