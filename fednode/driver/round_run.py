"""Drive one round: pass events to the state machine, execute the effects that it returns.

`Collecting` works with the clients, `Holders` with the key holders. The charge between them and the release at the end
are here. `docs/walk.md` follows one update through all three.
"""

import logging
import math
from dataclasses import replace

import numpy as np

from fednode.driver.channel import Reply
from fednode.driver.collecting import Collecting
from fednode.driver.downloads import Download
from fednode.driver.holders import Holders
from fednode.driver.outcome import Release, RoundOutcome
from fednode.driver.query import log_unexpected
from fednode.driver.round_log import BROKEN, RoundLog, describe_error
from fednode.driver.task import Node, PlannedTask
from fednode.errors import BudgetExhausted
from fednode.privacy import Receipt
from fednode.protocol.boxkeys import BoxKeys
from fednode.protocol.headroom import unrotate
from fednode.round import effects, events
from fednode.round.machine import Round, State

log = logging.getLogger("fednode.driver")

_ASKED = {"round": State.COLLECTING, "boxes": State.CHECKING, "confirm": State.CONFIRMING, "open": State.OPENING}
"""By kind of request, the state in which answers count."""


class RoundRun:
    """Drives one round from its spec to its outcome; used once."""

    def __init__(
        self, node: Node, task: PlannedTask, download: Download, invited: frozenset[str], keys: BoxKeys | None = None
    ) -> None:
        self._node, self._task, self._download = node, task, download
        self._spec = spec = download.spec
        self._states = {f"{spec.task}/{kind}/{spec.round}": state for kind, state in _ASKED.items()}
        self._log = RoundLog()
        self._collecting = Collecting(node, task, download, keys, self._log)
        self._holders = Holders(node, task, spec, keys, self._log)
        self._round = Round(
            spec_digest=spec.digest(),
            invited=invited,
            min_survivors=spec.terms.min_survivors,
            holders=self._holders.points,
            threshold=spec.sum_params.threshold,
            boxed=keys is not None,
        )
        self._release: Release | None = None
        self._deadline = math.inf
        self._started = node.clock.time()

    def run(self) -> RoundOutcome:
        """Invite, collect, charge, open, release; return the outcome.

        A peer's fault never raises. Raises `StoreError` if a store fails before the charge, or the ledger cannot write
        it: nothing is opened then. At the end the round's updates are deleted, however it ended; that may raise after
        the opening. If it raises, `outcome` tells how far the round came.
        """
        try:
            self._collecting.invite(self._round.invited)
            for state in (State.COLLECTING, State.CHECKING, State.CONFIRMING, State.OPENING):
                self._until(state)
        finally:
            self._node.updates.consume(self._spec.task, self._spec.round)
        return self.outcome()

    # --- waiting

    def _until(self, state: State) -> None:
        """Handle replies until the round leaves `state`; at the deadline, or if the operator asks, tell the round.

        Once the charge is written (OPENING), a wish to stop waits for the end of the round.
        """
        self._deadline = self._node.clock.now() + self._spec.terms.deadline
        while self._round.state is state:
            if state is not State.OPENING and self._node.stop():
                self._handle(events.StopAsked())
                return
            replies = self._node.channel.receive()
            for reply in replies:
                self._take(reply)
            self._end_waits()
            self._node.progress(*self._how_far())
            if not replies and self._round.state is state:
                self._wait()

    def _how_far(self) -> tuple[str, int, int]:
        """What the round is waiting for, how many of it have come, of how many."""
        now, number = self._round, self._spec.round
        match now.state:
            case State.CHECKING:
                return f"round {number}: holders check their boxes", len(now.checked), len(now.holders)
            case State.CONFIRMING:
                return f"round {number}: holders sign the roster", len(now.confirmed), len(now.holders)
            case State.OPENING:
                return f"round {number}: holders open the sum", len(now.answered), len(now.holders)
            case _:
                return f"round {number}: updates", len(now.survivors), len(now.invited)

    def _take(self, reply: Reply) -> None:
        state = self._states.get(reply.tag)
        if state is State.COLLECTING:
            self._handle(self._collecting.update(reply, self._round))
            self._collecting.let_go()
        elif state is not None:
            self._handle(self._holders.answer(reply, state, self._round))
        elif "/round/" in reply.tag:
            self._handle(self._collecting.late(reply))
        else:
            log_unexpected(reply)

    def _end_waits(self) -> None:
        """Ask clients again whose update found no room, when it is time, if the round still collects."""
        for client in self._collecting.due(self._node.clock.now()):
            if self._round.state is State.COLLECTING:
                self._handle(events.WaitOver(client))

    def _wait(self) -> None:
        if self._node.clock.now() >= self._deadline:
            self._handle(events.DeadlinePassed())
        else:
            self._node.clock.sleep(self._node.poll)

    # --- events and effects

    def _handle(self, event: events.Event | None) -> None:
        """Pass an event to the round and execute its effects, passing back the event of each before the next."""
        if event is None:
            return
        self._round, effects = self._round.handle(event)
        for effect in effects:
            self._handle(self._do(effect))

    def _do(self, effect: effects.Effect) -> events.Event | None:
        match effect:
            case effects.Keep(client):
                return self._collecting.keep(client, self._deadline)
            case effects.Reject(client, reason):
                self._log.rejected.append((client, reason))
            case effects.Discard(client, reason):
                self._log.discarded.append((client, reason))
            case effects.AskLater(client, wait):
                self._collecting.ask_later(client, wait)
            case effects.AskAgain(client):
                self._collecting.ask_again(client)
            case effects.Fail(cause, reason):
                self._log.cause, self._log.reason = cause, reason + self._why(cause)
            case _:
                return self._go_on(effect)
        return None

    def _go_on(self, effect: effects.Effect) -> events.Event | None:
        """Execute the effects of the steps after collecting."""
        updates, holders = self._collecting, self._holders
        match effect:
            case effects.CheckBoxes(clients):
                holders.send_boxes(updates.heads_of(clients), updates.boxes_of)
            case effects.Exclude(clients):
                updates.exclude(holders.faults_of(clients))
            case effects.Confirm(clients):
                holders.confirm(updates.heads_of(clients), self._round.holders)
            case effects.ChargeBudget(survivors):
                return self._charge(survivors)
            case effects.Open():
                holders.open(updates.heads_of(self._round.survivors), updates.fold)
            case effects.Combine(points):
                return holders.combine(points, updates.fold)
            case effects.Publish(receipt):
                self._publish(receipt)
        return None

    def _charge(self, survivors: tuple[str, ...]) -> events.Event:
        event = self._task.event(self._spec.terms, len(survivors))
        try:
            receipt = self._node.ledger.charge(event, self._spec.round, survivors)
        except BudgetExhausted as refusal:
            return events.ChargeRefused(str(refusal))
        return events.Charged(receipt)

    def _publish(self, receipt: Receipt) -> None:
        total, terms = self._holders.total, self._spec.terms
        if total is None:
            raise RuntimeError("there is no opened sum to publish")
        # divide by the public constant of the spec: dividing by the number of arrivals would change the sensitivity
        values = total.astype(np.float64)
        values = unrotate(values, self._spec.digest()) if terms.rotated else values
        values, clip = values * 2.0**-terms.grid_bits, None
        if self._task.clipping is not None:
            values, clip = self._task.clipping.read(values, terms, len(self._round.survivors))
        self._release = Release(values / terms.divisor, receipt, clip)
        self._download.certify(self._holders.signed())

    # --- how it ended

    def _why(self, cause: str) -> str:
        """Why most of the missing members are missing, if the round fails for too few of them."""
        if cause == "too-few-holders":
            return self._log.why(self._log.silent.items())
        return self._collecting.why(self._round) if cause == "too-few-survivors" else ""

    def outcome(self, error: BaseException | None = None) -> RoundOutcome:
        """The outcome so far; `error` is what ended the round early. A sum that was opened stays a release."""
        broken = "" if error is None else describe_error(error)
        cut = bool(broken) and not self._round.ended
        stands = self._log.outcome(self._spec.round, self._round, {} if cut else self._holders.unanswered(self._round))
        if broken and not stands.cause and self._release is None:
            # clients that had not answered yet are not lost: the node stopped waiting
            lost = () if self._round.state is State.COLLECTING else stands.lost
            stands = replace(stands, cause=BROKEN, reason=f"broken off: {broken}", lost=lost)
        seconds = max(0.0, self._node.clock.time() - self._started)
        variance, clip = self._spec.terms.local_variance, self._spec.terms.adaptive_clip
        stands = replace(stands, seconds=seconds, local_variance=variance, clip=clip)
        return replace(stands, release=self._release, broken=broken)
