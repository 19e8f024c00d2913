"""The updates of one round: invite clients; check, store and add each update; remove those of excluded clients.

How messages interleave, for one client and round (all in the driver's one thread):

    request -> update               it is checked, waits in `_waiting` for `keep` or `let_go`, and is stored, then added
    request -> update, update       a carrier delivered twice: the round discards the repeat, or counts another update
    request -> missing-chunks       once a round the client is sent the whole model, and may still answer in time
    request -> update -> no room    after `retry_after` seconds the client is asked again and sends the same bytes
    request -> ... next round ...   a late update is discarded; it still proves which version the client holds
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress

from fednode.aggregate import Fold
from fednode.cache import StoreFull
from fednode.driver.channel import Reply, Request
from fednode.driver.downloads import Download
from fednode.driver.query import read_answer
from fednode.driver.round_log import RoundLog
from fednode.driver.steps.boxes import check_boxes
from fednode.driver.task import Node, PlannedTask
from fednode.errors import PeerFault
from fednode.protocol.boxkeys import BoxKeys
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.model import BASIS, Basis
from fednode.reasons import Reason
from fednode.round import events
from fednode.round.machine import Round, State
from fednode.stores import UpdateId, UpdateLost
from fednode.wire import join_parts, split_parts

log = logging.getLogger("fednode.driver")

_MISSING = f"refused: {Reason.MISSING_CHUNKS}"
_BOXES = "/boxes"
"""Follows a client's name in the store; no member's name holds a slash."""


class Collecting:
    """The running sum of one round, and the signed heads of the updates in it.

    Methods return the event for the round, or None if there is none.
    """

    def __init__(
        self, node: Node, task: PlannedTask, download: Download, keys: BoxKeys | None, round_log: RoundLog
    ) -> None:
        self._node, self._task, self._download, self._keys, self._log = node, task, download, keys, round_log
        self._spec = download.spec
        self._digest = self._spec.digest()
        self._fold = Fold(node.scheme.zero(self._spec.sum_params))
        self._heads: dict[str, Signed] = {}
        self._waiting: tuple[Envelope, Fold] | None = None
        self._ask_at: dict[str, float] = {}

    @property
    def fold(self) -> Fold:
        """The sum of all updates that were kept and not excluded."""
        return self._fold

    def heads_of(self, clients: Iterable[str]) -> dict[str, Signed]:
        """The signed heads of these clients, whose updates are in the sum."""
        return {name: self._heads[name] for name in clients}

    def boxes_of(self, client: str) -> dict[str, bytes]:
        """All boxes of a client, by name, as it signed them. Raises `UpdateLost` if the store lost or changed them."""
        data, signed = self._stored(client + _BOXES), self._heads[client].head.attached()
        with suppress(PeerFault):
            boxes = split_parts(data, self._spec.sum_params.holders)
            if boxes.keys() == signed.keys() - {BASIS} and all(map(_is, boxes.values(), map(signed.get, boxes))):
                return boxes
        raise self._changed(client + _BOXES)

    # --- out

    def invite(self, clients: Iterable[str]) -> None:
        """Send each client the spec, and the chunks of the model that it does not hold."""
        self._send(self._download.requests(sorted(clients)))

    def _send(self, requests: Mapping[str, Request]) -> None:
        self._log.bytes_down.update({client: request.size for client, request in requests.items()})
        self._node.channel.send(requests)

    def ask_later(self, client: str, wait: float) -> None:
        """Let `due` return this client in `wait` seconds."""
        self._ask_at[client] = self._node.clock.now() + wait

    def due(self, now: float) -> tuple[str, ...]:
        """The clients that are to be asked again by now, each once."""
        due = tuple(client for client, time in self._ask_at.items() if time <= now)
        for client in due:
            del self._ask_at[client]
        return due

    def ask_again(self, client: str) -> None:
        """Repeat the round's request: the client answers with the bytes that it sealed before."""
        log.info("round %d: %s is asked again for its sealed update", self._spec.round, client)
        self._log.asked_again[client] += 1
        self._send(self._download.requests((client,)))

    # --- in

    def update(self, reply: Reply, now: Round) -> events.Event | None:
        """Check an answer to this round's request. An update then waits for `keep` or `let_go`."""
        self._log.bytes_up[reply.sender] += len(reply.frame or b"")
        try:
            envelope = self._read(reply, self._spec.terms.staleness)
            if envelope.head.spec == self._digest:
                self._check(envelope)
            fold = self._tried(envelope, now)
        except PeerFault as fault:
            return self._fault(reply.sender, fault, now)
        self._waiting = (envelope, fold)
        return events.Arrived(reply.sender, envelope.head.spec, hashlib.sha256(envelope.head.to_bytes()).digest())

    def let_go(self) -> None:
        """Drop the waiting update, if the round did not keep it."""
        self._waiting = None

    def late(self, reply: Reply) -> events.Event:
        """Note which version of the model the sender of a late update holds."""
        with suppress(PeerFault):
            self._download.late(self._read(reply, self._task.terms.staleness))
        return events.Late(reply.sender)

    def _read(self, reply: Reply, staleness: int) -> Envelope:
        most = self._boxes_bytes() + (Basis.SIZE if staleness else 0)
        return read_answer(reply, "update", self._task, self._spec.sum_params.payload_bytes, most)

    def _boxes_bytes(self) -> int:
        return self._spec.sum_params.upload_bytes - self._spec.sum_params.payload_bytes

    def _check(self, envelope: Envelope) -> None:
        if not envelope.head.is_update(Topic(self._spec.task, self._spec.round, self._digest)):
            raise PeerFault(Reason.ANOTHER_ROUND, f"it is signed for round {envelope.head.round}")
        if self._keys is not None:
            check_boxes(envelope, self._keys, self._boxes_bytes() // self._spec.sum_params.holders)
        if len(envelope.head.check()) != self._spec.sum_params.check_bytes:
            raise PeerFault(Reason.BAD_BOXES, "no check of the right size for the boxed shares")
        self._download.check(envelope)

    def _tried(self, envelope: Envelope, now: Round) -> Fold:
        """The sum with this payload. This comes before storing: a payload is valid if it can be added."""
        sender = envelope.head.sender
        already = sender in self._fold.names or now.state is not State.COLLECTING
        return self._fold if already or envelope.head.spec != self._digest else self._fold.add(sender, envelope.body)

    def _fault(self, client: str, fault: PeerFault, now: Round) -> events.Event | None:
        """Count a fault. A client that lost its copy of the model is instead sent the whole model, once a round."""
        waited_for = client in now.invited and client not in now.survivors
        if fault.reason == _MISSING and now.state is State.COLLECTING and waited_for:
            again = self._download.again(client)
            if again is not None:
                log.info("round %d: %s lost its copy of the model and is sent all of it", self._spec.round, client)
                self._send({client: again})
                return None
        log.warning("round %d: %s: %s", self._spec.round, client, fault)
        self._log.explain(fault)
        return events.Faulted(client, fault.reason)

    # --- in the store and in the sum

    def keep(self, client: str, deadline: float) -> events.Event:
        """Store the waiting update, then add it, so that every update in the sum is in the store too."""
        if self._waiting is None:
            raise RuntimeError(f"no update of {client} is waiting")
        envelope, fold = self._waiting
        try:
            self._store(client, envelope)
        except StoreFull as full:
            return self._turn_away(client, full, deadline)
        self._fold, self._heads[client] = fold, envelope.signed
        return events.Kept(client)

    def _store(self, client: str, envelope: Envelope) -> None:
        """Store the payload and its boxes, both or neither. Raises `StoreFull`."""
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

    def _turn_away(self, client: str, full: StoreFull, deadline: float) -> events.Event:
        """Have the client asked again after the store's `retry_after`, if that is before the deadline."""
        log.warning("round %d: no room for %s: %s", self._spec.round, client, full)
        for reason in (Reason.NO_ROOM, Reason.NO_ROOM_YET):
            self._log.explain(PeerFault(reason, str(full)))
        wait = full.retry_after
        in_time = wait is not None and self._node.clock.now() + wait < deadline
        return events.NotKept(client, Reason.NO_ROOM, wait if in_time else None)

    def exclude(self, faults: Mapping[str, Reason]) -> None:
        """Remove clients from the sum, each with what a holder showed that it did wrong.

        Raises `UpdateLost` if the store lost or changed the update of one.
        """
        for name, reason in faults.items():
            log.warning("round %d: %s is excluded: %s", self._spec.round, name, reason)
            payload = self._stored(name)
            if not _is(payload, self._heads[name].head.sha256):
                raise self._changed(name)
            self._fold = self._fold.remove(name, payload)
            self._log.rejected.append((name, reason))
            del self._heads[name]

    def _stored(self, name: str) -> bytes:
        data = self._node.updates.get(self._spec.task, self._spec.round, name)
        if not isinstance(data, bytes):
            raise RuntimeError(f"the update of {name} in round {self._spec.round} was kept, but is not in the store")
        return data

    def _changed(self, name: str) -> UpdateLost:
        what = "not what its client signed: another value is under its key; check what else writes to the cache"
        return UpdateLost(UpdateId(self._spec.task, self._spec.round, name), what)

    def why(self, now: Round) -> str:
        """The commonest reason of the clients whose update is missing; "" for none."""
        missing = now.invited - set(now.survivors)
        turned_away = (pair for pair in self._log.discarded if pair[1].startswith(Reason.NO_ROOM))
        noted = [*self._log.rejected, *turned_away]
        return self._log.why(pair for pair in noted if pair[0] in missing)


def _is(data: bytes, sha256: bytes | None) -> bool:
    return hashlib.sha256(data).digest() == sha256
