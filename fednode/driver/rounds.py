"""One round, driven: the state machine says what to do, this file does it. One small method per effect."""

import hashlib
import logging
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fednode.aggregate import Fold
from fednode.cache import StoreFull
from fednode.driver.asking import read_answer
from fednode.driver.channel import Reply, Request
from fednode.driver.opening import OpenRequest, combine_answers, open_requests, read_opening
from fednode.driver.parts import Node, Release, RoundOutcome, Task
from fednode.errors import BudgetExhausted, OpeningRejected, PeerFault, TooFewHolders
from fednode.privacy import Receipt
from fednode.protocol.envelope import Envelope, Signed
from fednode.protocol.model import model_digest
from fednode.protocol.requests import spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.round import (
    Answered,
    Arrived,
    Charge,
    Charged,
    ChargeRefused,
    Combine,
    DeadlinePassed,
    Discard,
    Effect,
    Event,
    Fail,
    Faulted,
    HolderSilent,
    Keep,
    Kept,
    Late,
    NotKept,
    Open,
    Opened,
    OpeningFailed,
    Publish,
    Reject,
    Round,
    State,
    StopAsked,
)

log = logging.getLogger("fednode.driver")


@dataclass(slots=True)
class Tally:
    """What happened in a round, for the record: names, reasons and bytes, never a payload."""

    rejected: list[tuple[str, str]] = field(default_factory=list)
    discarded: list[tuple[str, str]] = field(default_factory=list)
    silent: list[tuple[str, str]] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    bytes_up: list[int] = field(default_factory=list)
    bytes_down: list[int] = field(default_factory=list)
    cause: str = ""
    reason: str = ""


class RoundRun:
    """Drives one round from its spec to its outcome. Used once."""

    def __init__(self, node: Node, task: Task, spec: RoundSpec, invited: frozenset[str]) -> None:
        self._node, self._task, self._spec = node, task, spec
        self._digest = spec.digest()
        self._round = Round(
            spec_digest=self._digest,
            invited=invited,
            min_survivors=spec.terms.min_survivors,
            holders=frozenset(holder.point for holder in task.cohort.holders),
            threshold=spec.sum_params.threshold,
        )
        self._fold = Fold(node.scheme.zero(spec.sum_params))
        self._heads: dict[str, Signed] = {}
        self._waiting: tuple[Envelope, Fold] | None = None
        self._request: OpenRequest | None = None
        self._answers: dict[int, bytes] = {}
        self._sum: NDArray[np.int64] | None = None
        self._release: Release | None = None
        self._tally = Tally()
        self._started = node.clock.time()

    def run(self) -> RoundOutcome:
        """Invite, collect, charge, open, release; returns how it ended.

        A peer's fault never raises. Raises `StoreError` if the ledger or the cache cannot write: nothing is opened
        then.
        """
        try:
            self._invite()
            self._until(State.COLLECTING)
            self._until(State.OPENING)
        finally:
            self._node.updates.consume(self._spec.task, self._spec.round)
        return self._outcome()

    # --- waiting

    def _invite(self) -> None:
        snapshot = self._node.parameters.read(self._spec.model_version)
        arrays = self._task.layout.unflatten(snapshot.vector)
        if model_digest(arrays) != self._spec.model_digest:
            raise RuntimeError("the spec names another model than the one that is sent")
        request = Request("train", self._tag("round"), spec_frame("round", self._spec), arrays)
        self._tally.bytes_down += [request.size] * len(self._round.invited)
        self._node.channel.send(dict.fromkeys(sorted(self._round.invited), request))

    def _until(self, state: State) -> None:
        """Take in what comes until the round has left `state`, or the time for it is over."""
        deadline = self._node.clock.now() + self._spec.terms.deadline
        while self._round.state is state:
            if state is State.COLLECTING and self._node.stop():
                self._handle(StopAsked())
                return
            replies = self._node.channel.receive()
            for reply in replies:
                self._take(reply)
            if not replies and self._round.state is state:
                self._wait(deadline)

    def _wait(self, deadline: float) -> None:
        if self._node.clock.now() >= deadline:
            self._handle(DeadlinePassed())
        else:
            self._node.clock.sleep(self._node.poll)

    def _tag(self, kind: str) -> str:
        return f"{self._spec.task}/{kind}/{self._spec.round}"

    # --- what comes in

    def _take(self, reply: Reply) -> None:
        if reply.tag == self._tag("round"):
            self._take_update(reply)
        elif reply.tag == self._tag("open"):
            self._take_opening(reply)
        elif "/round/" in reply.tag:
            self._handle(Late(reply.sender))
        else:
            log.info("discarded an answer of %s to %s: nobody waits for it", reply.sender, reply.tag)

    def _take_update(self, reply: Reply) -> None:
        self._tally.bytes_up.append(len(reply.frame or b""))
        try:
            envelope = read_answer(reply, "update", self._task, self._spec.sum_params.payload_bytes)
            fold = self._tried(envelope)
        except PeerFault as fault:
            log.warning("round %d: %s: %s", self._spec.round, reply.sender, fault)
            self._handle(Faulted(reply.sender, fault.reason))
            return
        self._waiting = (envelope, fold)
        self._handle(Arrived(reply.sender, envelope.head.spec, hashlib.sha256(envelope.body).digest()))
        self._waiting = None

    def _tried(self, envelope: Envelope) -> Fold:
        """The fold with this payload in it: that it can be added is what makes a payload valid, so this comes before
        storing."""
        sender = envelope.head.sender
        already = sender in self._fold.names or self._round.state is not State.COLLECTING
        return self._fold if already or envelope.head.spec != self._digest else self._fold.add(sender, envelope.body)

    def _take_opening(self, reply: Reply) -> None:
        point = self._task.cohort.member(reply.sender).point
        if self._request is None:
            raise RuntimeError("an answer to an opening that was never asked for")
        try:
            opening = read_opening(reply, self._request, self._task)
        except PeerFault as fault:
            log.warning("round %d: %s: %s", self._spec.round, reply.sender, fault)
            self._tally.silent.append((reply.sender, fault.reason))
            self._handle(HolderSilent(point, fault.reason))
            return
        if point not in self._answers:
            self._answers[point] = opening.body
            self._tally.answered.append(reply.sender)
            self._handle(Answered(point))

    # --- effects

    def _handle(self, event: Event) -> None:
        self._round, effects = self._round.handle(event)
        for effect in effects:
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Keep(client):
                self._keep(client)
            case Reject(client, reason):
                self._tally.rejected.append((client, reason))
            case Discard(client, reason):
                self._tally.discarded.append((client, reason))
            case Charge(survivors):
                self._charge(survivors)
            case Open():
                self._open()
            case Combine(points):
                self._combine(points)
            case Publish(receipt):
                self._publish(receipt)
            case Fail(cause, reason):
                self._tally.cause, self._tally.reason = cause, reason

    def _keep(self, client: str) -> None:
        """Store, then add: an update that is in the sum is always in the store too."""
        if self._waiting is None:
            raise RuntimeError(f"nothing of {client} to keep")
        envelope, fold = self._waiting
        try:
            self._node.updates.put(self._spec.task, self._spec.round, client, envelope.body)
        except StoreFull as full:
            log.warning("round %d: no room for %s: %s", self._spec.round, client, full)
            self._handle(NotKept(client, "no-room"))
            return
        self._fold, self._heads[client] = fold, envelope.signed
        self._handle(Kept(client))

    def _charge(self, survivors: tuple[str, ...]) -> None:
        event = self._task.event(len(survivors))
        try:
            receipt = self._node.ledger.charge(event, self._spec.round, survivors)
        except BudgetExhausted as refusal:
            self._handle(ChargeRefused(str(refusal)))
            return
        self._handle(Charged(receipt))

    def _open(self) -> None:
        heads = [self._heads[name] for name in self._round.survivors]
        self._request = open_requests(self._task, self._spec, heads, self._fold)
        self._node.channel.send(self._request.messages)

    def _combine(self, points: tuple[int, ...]) -> None:
        answers = {point: self._answers[point] for point in points}
        try:
            combined = combine_answers(self._node, self._task, self._fold, answers)
        except (OpeningRejected, TooFewHolders) as error:
            self._handle(OpeningFailed(str(error)))
            return
        self._sum = combined.values
        self._name_liars(combined.left_out)
        self._handle(Opened())

    def _name_liars(self, points: tuple[int, ...]) -> None:
        for name in [holder.name for holder in self._task.cohort.holders if holder.point in points]:
            self._tally.answered.remove(name)
            self._tally.silent.append((name, "wrong-answer"))

    def _publish(self, receipt: Receipt) -> None:
        if self._sum is None:
            raise RuntimeError("published before it was opened")
        terms = self._spec.terms
        # the divisor is the public constant of the spec: dividing by who arrived would change the sensitivity
        mean = self._sum.astype(np.float64) * 2.0**-terms.grid_bits / terms.divisor
        self._release = Release(mean, receipt)

    def _outcome(self) -> RoundOutcome:
        tally, now = self._tally, self._round
        # a stopped round did not wait for them: they are not lost
        expected = now.invited if tally.cause != "stopped" else frozenset[str]()
        heard = set(now.survivors) | {name for name, _ in tally.rejected + tally.discarded}
        missing = [holder for holder in self._task.cohort.holders if holder.point in now.silent]
        named = {name for name, _ in tally.silent}
        return RoundOutcome(
            round=self._spec.round,
            cause=tally.cause,
            reason=tally.reason,
            invited=len(now.invited),
            survivors=now.survivors,
            rejected=tuple(tally.rejected),
            discarded=tuple(tally.discarded),
            lost=tuple(sorted(expected - heard)),
            answered=tuple(sorted(tally.answered)),
            silent=(*tally.silent, *((holder.name, "no-answer") for holder in missing if holder.name not in named)),
            opened=self._request is not None,
            bytes_up=float(np.mean(tally.bytes_up or [0])),
            bytes_down=float(np.mean(tally.bytes_down or [0])),
            seconds=self._node.clock.time() - self._started,
            release=self._release,
        )
