"""One round, driven: the state machine says what to do, this file does it. One small method per effect."""

import hashlib
import logging

import numpy as np
from numpy.typing import NDArray

from fednode.aggregate import Fold
from fednode.cache import StoreFull
from fednode.driver.asking import read_answer
from fednode.driver.boxes import BoxRequest, box_request, check_boxes, read_checked
from fednode.driver.channel import Reply, Request
from fednode.driver.opening import OpenRequest, combine_answers, open_requests, read_opening
from fednode.driver.parts import Node, Release, RoundOutcome, Task
from fednode.driver.tally import Tally
from fednode.errors import BudgetExhausted, OpeningRejected, PeerFault, TooFewHolders
from fednode.privacy import Receipt
from fednode.protocol.boxkeys import BoxKeys, box_name
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.model import model_digest
from fednode.protocol.requests import spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.round import (
    Answered,
    Arrived,
    Charge,
    Charged,
    ChargeRefused,
    Check,
    Checked,
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
    Strike,
)
from fednode.wire import join_parts, split_parts

log = logging.getLogger("fednode.driver")

_BOXES = "/boxes"
"""After a client's name in the store: a name that no member can have."""


class RoundRun:
    """Drives one round from its spec to its outcome. Used once."""

    def __init__(
        self, node: Node, task: Task, spec: RoundSpec, invited: frozenset[str], keys: BoxKeys | None = None
    ) -> None:
        self._node, self._task, self._spec, self._keys = node, task, spec, keys
        self._digest = spec.digest()
        self._points = frozenset(holder.point for holder in task.cohort.holders) if keys is None else keys.points
        self._round = Round(
            spec_digest=self._digest,
            invited=invited,
            min_survivors=spec.terms.min_survivors,
            holders=self._points,
            threshold=spec.sum_params.threshold,
            boxed=keys is not None,
        )
        self._fold = Fold(node.scheme.zero(spec.sum_params))
        self._heads: dict[str, Signed] = {}
        self._waiting: tuple[Envelope, Fold] | None = None
        self._boxes: BoxRequest | None = None
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
            for state in (State.COLLECTING, State.CHECKING, State.OPENING):
                self._until(state)
        finally:
            self._node.updates.consume(self._spec.task, self._spec.round)
        return self._outcome()

    # --- waiting

    def _invite(self) -> None:
        snapshot = self._node.parameters.read(self._spec.model_version)
        arrays = self._task.layout.unflatten(snapshot.vector)
        if model_digest(arrays) != self._spec.model_digest:
            raise RuntimeError("the spec names another model than the one that is sent")
        parts = {} if self._keys is None else self._keys.parts()
        request = Request("train", self._tag("round"), spec_frame("round", self._spec, parts), arrays)
        self._tally.bytes_down += [request.size] * len(self._round.invited)
        self._node.channel.send(dict.fromkeys(sorted(self._round.invited), request))

    def _until(self, state: State) -> None:
        """Take in what comes until the round has left `state`, or the time for it is over."""
        deadline = self._node.clock.now() + self._spec.terms.deadline
        while self._round.state is state:
            if state is not State.OPENING and self._node.stop():
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
        elif reply.tag == self._tag("boxes"):
            self._take_checked(reply)
        elif reply.tag == self._tag("open"):
            self._take_opening(reply)
        elif "/round/" in reply.tag:
            self._handle(Late(reply.sender))
        else:
            log.info("discarded an answer of %s to %s: nobody waits for it", reply.sender, reply.tag)

    def _take_update(self, reply: Reply) -> None:
        self._tally.bytes_up.append(len(reply.frame or b""))
        try:
            params = self._spec.sum_params
            most = params.upload_bytes - params.payload_bytes
            envelope = read_answer(reply, "update", self._task, params.payload_bytes, most)
            topic = Topic(self._spec.task, self._spec.round, self._digest)
            if envelope.head.spec == self._digest and not envelope.head.is_update(topic):
                raise PeerFault("another-round", f"it is signed for round {envelope.head.round}")
            if self._keys is not None and envelope.head.spec == self._digest:
                check_boxes(envelope, self._keys, most // params.holders)
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

    def _take_checked(self, reply: Reply) -> None:
        point = self._task.cohort.member(reply.sender).point
        if self._boxes is None:
            raise RuntimeError("an answer about boxes that were never handed on")
        try:
            struck = read_checked(reply, self._boxes, self._task)
        except PeerFault as fault:
            self._silence(reply.sender, point, fault)
            return
        if struck:
            log.warning(
                "round %d: %s could not open the boxes of %d clients", self._spec.round, reply.sender, len(struck)
            )
        self._handle(Checked(point, struck))

    def _silence(self, holder: str, point: int, fault: PeerFault) -> None:
        log.warning("round %d: %s: %s", self._spec.round, holder, fault)
        self._tally.silent.append((holder, fault.reason))
        self._handle(HolderSilent(point, fault.reason))

    def _take_opening(self, reply: Reply) -> None:
        point = self._task.cohort.member(reply.sender).point
        if self._request is None:
            raise RuntimeError("an answer to an opening that was never asked for")
        try:
            opening = read_opening(reply, self._request, self._task)
        except PeerFault as fault:
            self._silence(reply.sender, point, fault)
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
            case Check(clients):
                self._hand_on_boxes(clients)
            case Strike(clients):
                self._strike(clients)
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
            if envelope.attached:
                boxes = join_parts(envelope.attached)
                self._node.updates.put(self._spec.task, self._spec.round, client + _BOXES, boxes)
        except StoreFull as full:
            log.warning("round %d: no room for %s: %s", self._spec.round, client, full)
            self._handle(NotKept(client, "no-room"))
            return
        self._fold, self._heads[client] = fold, envelope.signed
        self._handle(Kept(client))

    def _stored(self, name: str) -> bytes:
        data = self._node.updates.get(self._spec.task, self._spec.round, name)
        if not isinstance(data, bytes):
            raise RuntimeError(f"{name} of round {self._spec.round} was kept and is not in the store")
        return data

    def _hand_on_boxes(self, clients: tuple[str, ...]) -> None:
        """One holder at a time, from the store: no more than one holder's boxes are in memory."""
        heads = [self._heads[name] for name in clients]
        for holder in self._task.cohort.holders:
            if holder.point in self._points:
                mine = {
                    name: split_parts(self._stored(name + _BOXES), len(self._points))[box_name(holder.point)]
                    for name in clients
                }
                self._boxes = box_request(self._task, self._spec, heads, holder, mine)
                self._node.channel.send(self._boxes.messages)

    def _strike(self, clients: tuple[str, ...]) -> None:
        for name in clients:
            log.warning("round %d: the box of %s does not open, it is struck", self._spec.round, name)
            self._fold = self._fold.strike(name, self._stored(name))
            self._tally.rejected.append((name, "bad-box"))
            del self._heads[name]

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
        self._request = open_requests(self._task, self._spec, heads, self._fold, self._round.holders)
        self._node.channel.send(self._request.messages)

    def _combine(self, points: tuple[int, ...]) -> None:
        answers = {point: self._answers[point] for point in points}
        try:
            combined = combine_answers(self._node, self._task, self._fold, answers, self._digest)
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
        now = self._round
        quiet: frozenset[int] = frozenset()
        if self._boxes is not None:
            quiet |= self._points - now.checked
        if self._request is not None:
            quiet |= now.holders - now.answered
        holders = {holder.name: holder.point for holder in self._task.cohort.holders}
        silent = {name: "no-key" for name, point in holders.items() if point not in self._points}
        silent |= {name: "no-answer" for name, point in holders.items() if point in quiet}
        return RoundOutcome(
            round=self._spec.round,
            cause=self._tally.cause,
            reason=self._tally.reason,
            invited=len(now.invited),
            survivors=now.survivors,
            rejected=tuple(self._tally.rejected),
            discarded=tuple(self._tally.discarded),
            lost=self._tally.lost(now.invited, now.survivors),
            answered=tuple(sorted(self._tally.answered)),
            silent=self._tally.silences(silent),
            opened=self._request is not None,
            bytes_up=float(np.mean(self._tally.bytes_up or [0])),
            bytes_down=float(np.mean(self._tally.bytes_down or [0])),
            seconds=max(0.0, self._node.clock.time() - self._started),
            release=self._release,
        )
