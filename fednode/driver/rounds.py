"""One round, driven: the state machine says what to do, this file does it. One small method per effect."""

import hashlib
import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fednode.aggregate import Fold
from fednode.cache import StoreFull
from fednode.driver.asking import read_answer
from fednode.driver.boxes import BoxRequest, box_request, check_boxes, read_checked
from fednode.driver.channel import Reply, Request
from fednode.driver.confirming import ConfirmRequest, confirm_request, read_confirmed
from fednode.driver.downloads import Download
from fednode.driver.opening import Opening, OpenRequest, combine_answers, open_requests, read_opening
from fednode.driver.parts import Node, Release, RoundOutcome, Task
from fednode.driver.tally import BROKEN, Tally, ended_by
from fednode.errors import BudgetExhausted, OpeningRejected, PeerFault, TooFewHolders
from fednode.privacy import Receipt
from fednode.protocol.boxkeys import BoxKeys, box_name
from fednode.protocol.cohort import Member
from fednode.protocol.confirmations import Confirmations
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.model import BASIS, Basis
from fednode.round import (
    Answered,
    Arrived,
    AskAgain,
    AskLater,
    Charge,
    Charged,
    ChargeRefused,
    Check,
    Checked,
    Combine,
    Confirm,
    Confirmed,
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
    WaitOver,
)
from fednode.wire import join_parts, split_parts

log = logging.getLogger("fednode.driver")

_MISSING = "refused: missing-chunks"
_NO_ROOM = "no-room"
_BOXES = "/boxes"
"""After a client's name in the store: a name that no member can have."""


class RoundRun:
    """Drives one round from its spec to its outcome. Used once."""

    def __init__(
        self, node: Node, task: Task, download: Download, invited: frozenset[str], keys: BoxKeys | None = None
    ) -> None:
        self._node, self._task, self._download, self._keys = node, task, download, keys
        self._spec = spec = download.spec
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
        self._confirming: ConfirmRequest | None = None
        self._confirmed: dict[int, Signed] = {}
        self._request: OpenRequest | None = None
        self._answers: dict[int, Opening] = {}
        self._sum: NDArray[np.int64] | None = None
        self._release: Release | None = None
        self._tally = Tally()
        self._ask_at: dict[str, float] = {}
        self._deadline = math.inf
        self._started = node.clock.time()

    def run(self) -> RoundOutcome:
        """Invite, collect, charge, open, release; returns how it ended.

        A peer's fault never raises. Raises `StoreError` if the ledger or the cache cannot write: nothing is opened
        then. Whatever it raises, `outcome` says how far the round came.
        """
        try:
            self._invite()
            for state in (State.COLLECTING, State.CHECKING, State.CONFIRMING, State.OPENING):
                self._until(state)
        finally:
            self._node.updates.consume(self._spec.task, self._spec.round)
        return self.outcome()

    # --- waiting

    def _invite(self) -> None:
        self._send(self._download.requests(sorted(self._round.invited)))

    def _send(self, requests: Mapping[str, Request]) -> None:
        self._tally.bytes_down.update({client: request.size for client, request in requests.items()})
        self._node.channel.send(requests)

    def _until(self, state: State) -> None:
        """Take in what comes until the round has left `state`, or the time for it is over."""
        self._deadline = self._node.clock.now() + self._spec.terms.deadline
        while self._round.state is state:
            if state is not State.OPENING and self._node.stop():
                self._handle(StopAsked())
                return
            replies = self._node.channel.receive()
            for reply in replies:
                self._take(reply)
            self._end_waits()
            if not replies and self._round.state is state:
                self._wait()

    def _end_waits(self) -> None:
        """Clients whose update found no room are asked again when their time has come, if the round still collects."""
        now = self._node.clock.now()
        for client in [client for client, time in self._ask_at.items() if time <= now]:
            del self._ask_at[client]
            if self._round.state is State.COLLECTING:
                self._handle(WaitOver(client))

    def _wait(self) -> None:
        if self._node.clock.now() >= self._deadline:
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
        elif reply.tag == self._tag("confirm"):
            self._take_confirmed(reply)
        elif reply.tag == self._tag("open"):
            self._take_opening(reply)
        elif "/round/" in reply.tag:
            self._take_late(reply)
        else:
            log.info("discarded an answer of %s to %s: nobody waits for it", reply.sender, reply.tag)

    def _take_update(self, reply: Reply) -> None:
        self._tally.bytes_up[reply.sender] += len(reply.frame or b"")
        try:
            envelope = self._read_update(reply, self._spec.terms.staleness)
            if envelope.head.spec == self._digest:
                self._check_update(envelope)
            fold = self._tried(envelope)
        except PeerFault as fault:
            self._take_fault(reply.sender, fault)
            return
        self._waiting = (envelope, fold)
        self._handle(Arrived(reply.sender, envelope.head.spec, hashlib.sha256(envelope.head.to_bytes()).digest()))
        self._waiting = None

    def _read_update(self, reply: Reply, staleness: int) -> Envelope:
        params = self._spec.sum_params
        most = self._boxes_bytes() + (Basis.SIZE if staleness else 0)
        return read_answer(reply, "update", self._task, params.payload_bytes, most)

    def _boxes_bytes(self) -> int:
        return self._spec.sum_params.upload_bytes - self._spec.sum_params.payload_bytes

    def _check_update(self, envelope: Envelope) -> None:
        if not envelope.head.is_update(Topic(self._spec.task, self._spec.round, self._digest)):
            raise PeerFault("another-round", f"it is signed for round {envelope.head.round}")
        if self._keys is not None:
            check_boxes(envelope, self._keys, self._boxes_bytes() // self._spec.sum_params.holders)
        self._download.check(envelope)

    def _take_fault(self, client: str, fault: PeerFault) -> None:
        """Count it; but a client that lost its copy of the model gets the whole of it, once, and goes on."""
        waited_for = client in self._round.invited and client not in self._round.survivors
        if fault.reason == _MISSING and self._round.state is State.COLLECTING and waited_for:
            again = self._download.again(client)
            if again is not None:
                log.info("round %d: %s holds another model than it did, it is sent all of it", self._spec.round, client)
                self._send({client: again})
                return
        log.warning("round %d: %s: %s", self._spec.round, client, fault)
        self._tally.explain(fault)
        self._handle(Faulted(client, fault.reason))

    def _take_late(self, reply: Reply) -> None:
        """Too late for its round; that its sender has that round's model is still worth knowing."""
        with suppress(PeerFault):
            self._download.late(self._read_update(reply, self._task.terms.staleness))
        self._handle(Late(reply.sender))

    def _tried(self, envelope: Envelope) -> Fold:
        """The fold with this payload in it: that it can be added is what makes a payload valid, so this comes before
        storing."""
        sender = envelope.head.sender
        already = sender in self._fold.names or self._round.state is not State.COLLECTING
        return self._fold if already or envelope.head.spec != self._digest else self._fold.add(sender, envelope.body)

    def _holder(self, reply: Reply, state: State) -> Member | None:
        """The holder that a reply is from, if the round is waiting for it in this state: no other word counts.

        What comes too late, or from others, must not be held against a holder either: it may be at its next part.
        """
        for holder in self._task.cohort.holders if self._round.state is state else ():
            if holder.name == reply.sender and holder.point in self._round.holders:
                return holder
        log.info("discarded an answer of %s to %s: nobody waits for it", reply.sender, reply.tag)
        return None

    def _take_checked(self, reply: Reply) -> None:
        holder = self._holder(reply, State.CHECKING)
        if holder is None or self._boxes is None:
            return
        try:
            struck = read_checked(reply, self._boxes, self._task)
        except PeerFault as fault:
            self._silence(holder, fault)
            return
        if struck:
            log.warning(
                "round %d: %s could not open the boxes of %d clients", self._spec.round, reply.sender, len(struck)
            )
        self._tally.heard(holder.name)
        self._handle(Checked(holder.point, struck))

    def _silence(self, holder: Member, fault: PeerFault) -> None:
        """Count it, unless the holder has done its part already: a second copy that is damaged takes nothing away."""
        log.warning("round %d: %s: %s", self._spec.round, holder.name, fault)
        if holder.point not in self._done():
            self._tally.silence(holder.name, fault)
        self._handle(HolderSilent(holder.point, fault.reason))

    def _done(self) -> frozenset[int]:
        """The holders that have done what this state asks of them."""
        now = self._round
        done = {State.CHECKING: now.checked, State.CONFIRMING: now.confirmed, State.OPENING: now.answered}
        return done[now.state]

    def _take_confirmed(self, reply: Reply) -> None:
        holder = self._holder(reply, State.CONFIRMING)
        if holder is None or self._confirming is None:
            return
        try:
            signed = read_confirmed(reply, self._confirming, self._task)
        except PeerFault as fault:
            self._silence(holder, fault)
            return
        self._confirmed[holder.point] = signed
        self._tally.heard(holder.name)
        self._handle(Confirmed(holder.point))

    def _take_opening(self, reply: Reply) -> None:
        holder = self._holder(reply, State.OPENING)
        if holder is None or self._request is None:
            return
        try:
            opening = read_opening(reply, self._request, self._task, self._node.scheme)
        except PeerFault as fault:
            self._silence(holder, fault)
            return
        if holder.point not in self._answers:
            self._answers[holder.point] = opening
            self._tally.answered.add(holder.name)
            self._tally.heard(holder.name)
            self._handle(Answered(holder.point))

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
            case AskLater(client, wait):
                self._ask_at[client] = self._node.clock.now() + wait
            case AskAgain(client):
                self._ask_again(client)
            case Fail(cause, reason):
                self._tally.cause, self._tally.reason = cause, reason + self._why(cause)
            case _:
                self._go_on(effect)

    def _go_on(self, effect: Effect) -> None:
        """What leads from the updates to the release."""
        match effect:
            case Check(clients):
                self._hand_on_boxes(clients)
            case Strike(clients):
                self._strike(clients)
            case Confirm(clients):
                self._confirm(clients)
            case Charge(survivors):
                self._charge(survivors)
            case Open():
                self._open()
            case Combine(points):
                self._combine(points)
            case Publish(receipt):
                self._publish(receipt)

    def _why(self, cause: str) -> str:
        """What most of those said who are missing, where a round fails for want of them."""
        if cause == "too-few-holders":
            return self._tally.why(self._tally.silent.items())
        missing = self._round.invited - set(self._round.survivors)
        turned_away = (pair for pair in self._tally.discarded if pair[1].startswith(_NO_ROOM))
        noted = [*self._tally.rejected, *turned_away]
        return self._tally.why(pair for pair in noted if pair[0] in missing) if cause == "too-few-survivors" else ""

    def _keep(self, client: str) -> None:
        """Store, then add: an update that is in the sum is always in the store too."""
        if self._waiting is None:
            raise RuntimeError(f"nothing of {client} to keep")
        envelope, fold = self._waiting
        try:
            self._store(client, envelope)
        except StoreFull as full:
            self._turn_away(client, full)
            return
        self._fold, self._heads[client] = fold, envelope.signed
        self._handle(Kept(client))

    def _store(self, client: str, envelope: Envelope) -> None:
        """Store the payload and its boxes, both or none. Raises `StoreFull`."""
        updates, task, number = self._node.updates, self._spec.task, self._spec.round
        updates.put(task, number, client, envelope.body)
        if self._keys is None:
            return
        boxes = {name: data for name, data in envelope.attached.items() if name != BASIS}
        try:
            updates.put(task, number, client + _BOXES, join_parts(boxes))
        except StoreFull:
            updates.withdraw(task, number, client)
            raise

    def _turn_away(self, client: str, full: StoreFull) -> None:
        """There is no room: the client is asked again when the store says so, if that is before the deadline."""
        log.warning("round %d: no room for %s: %s", self._spec.round, client, full)
        for reason in (_NO_ROOM, f"{_NO_ROOM}-yet"):
            self._tally.explain(PeerFault(reason, str(full)))
        wait = full.retry_after
        in_time = wait is not None and self._node.clock.now() + wait < self._deadline
        self._handle(NotKept(client, _NO_ROOM, wait if in_time else None))

    def _ask_again(self, client: str) -> None:
        """The round's request once more: the client sends what it sealed for it, and holds the model that it is of."""
        log.info("round %d: %s is asked again for what it sealed", self._spec.round, client)
        self._tally.asked_again[client] += 1
        self._send(self._download.requests((client,)))

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

    def _confirm(self, clients: tuple[str, ...]) -> None:
        heads = [self._heads[name] for name in clients]
        self._confirming = confirm_request(self._task, self._spec, heads, self._round.holders)
        self._node.channel.send(self._confirming.messages)

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
        confirmed = None if self._keys is None else Confirmations(self._confirmed)
        self._request = open_requests(self._task, self._spec, heads, self._fold, confirmed)
        self._node.channel.send(self._request.messages)

    def _combine(self, points: tuple[int, ...]) -> None:
        answers = {point: self._answers[point].body for point in points}
        try:
            combined = combine_answers(self._node, self._task, self._fold, answers, self._digest)
        except (OpeningRejected, TooFewHolders) as error:
            if isinstance(error, OpeningRejected):
                self._name_liars(error.points)
            self._handle(OpeningFailed(str(error)))
            return
        self._sum = combined.values
        self._name_liars(combined.left_out)
        self._handle(Opened())

    def _name_liars(self, points: tuple[int, ...]) -> None:
        for name in [holder.name for holder in self._task.cohort.holders if holder.point in points]:
            self._tally.answered.discard(name)
            self._tally.silence(name, PeerFault("wrong-answer"))

    def _publish(self, receipt: Receipt) -> None:
        if self._sum is None:
            raise RuntimeError("published before it was opened")
        terms = self._spec.terms
        # the divisor is the public constant of the spec: dividing by who arrived would change the sensitivity
        mean = self._sum.astype(np.float64) * 2.0**-terms.grid_bits / terms.divisor
        self._release = Release(mean, receipt)
        self._download.certify({point: opening.signed for point, opening in self._answers.items()})

    def outcome(self, error: BaseException | None = None) -> RoundOutcome:
        """How the round stands; `error` is what broke the work on it off. A sum that was opened stays a release."""
        broken = "" if error is None else ended_by(error)
        cut = bool(broken) and not self._round.ended
        stands = self._tally.outcome(self._spec.round, self._round, {} if cut else self._unheard())
        if broken and not stands.cause and self._release is None:
            # nobody waited for those that had not answered yet
            lost = () if self._round.state is State.COLLECTING else stands.lost
            stands = replace(stands, cause=BROKEN, reason=f"broken off: {broken}", lost=lost)
        seconds = max(0.0, self._node.clock.time() - self._started)
        return replace(stands, seconds=seconds, release=self._release, broken=broken)

    def _unheard(self) -> dict[str, str]:
        """The holders that did not do their part, and why, as far as nothing is heard of them."""
        now = self._round
        quiet: frozenset[int] = frozenset()
        stopped = self._tally.cause == "stopped"
        if self._boxes is not None:
            quiet |= self._points - now.checked
        if self._confirming is not None:
            quiet |= now.checked - now.confirmed
        if self._request is not None:
            quiet |= now.holders - now.answered
        holders = {holder.name: holder.point for holder in self._task.cohort.holders}
        silent = {name: "no-key" for name, point in holders.items() if point not in self._points}
        return silent | {name: "no-answer" for name, point in holders.items() if point in quiet and not stopped}
