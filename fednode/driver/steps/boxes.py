"""Boxed shares, on the node's side: fresh keys of the holders before a round, and their boxes checked after it."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fednode.driver.channel import Reply, Request
from fednode.driver.query import NO_ANSWER, ask, raise_if_stopped, read_answer
from fednode.driver.task import Node, PlannedTask
from fednode.errors import PeerFault, TooFewHolders
from fednode.protocol.boxkeys import BOX_KEY, KEY_BYTES, BoxKeys, HolderKeys, box_name, client_indices
from fednode.protocol.cohort import Member
from fednode.protocol.complaints import Complaint, Court
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.model import BASIS
from fednode.protocol.requests import key_request, roster_part, spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import digest, join_parts, parse

log = logging.getLogger("fednode.driver")

_STRUCK = 160
"""Bytes of one struck client in an answer: a name, a key in hexadecimal, punctuation."""


def gather_box_keys(node: Node, task: PlannedTask, number: int, refusals: Mapping[str, str] | None = None) -> BoxKeys:
    """Ask every holder for fresh keys of this round, one for each client.

    `refusals` gives by member why it did not take the task.
    Raises `TooFewHolders`, naming the missing, if fewer than the threshold gave them: no client is asked then.
    """

    def read(reply: Reply) -> HolderKeys:
        envelope = read_answer(reply, BOX_KEY, task, KEY_BYTES * len(clients))
        return HolderKeys.verified(envelope, task.cohort, holders[reply.sender], Topic(task.name, number))

    request = Request("query", f"{task.name}/{BOX_KEY}/{number}", key_request(task.name, number))
    holders = {holder.name: holder.point for holder in task.cohort.holders}
    clients = client_indices(task.cohort)
    step = f"round {number}: asking holders for keys"
    keys, faults = ask(node, dict.fromkeys(holders, request), task.terms.deadline, step, read)
    if len(keys) < task.sum_params.threshold:
        raise_if_stopped(node, f"before round {number}")
        reasons = {name: f"; the task: {why}" for name, why in (refusals or {}).items()}
        missing = [
            f"{name}: {faults.get(name, NO_ANSWER)}{reasons.get(name, '')}" for name in holders if name not in keys
        ]
        raise TooFewHolders(
            f"{len(keys)} of {len(holders)} holders gave keys for round {number} and {task.sum_params.threshold} are "
            f"needed to open ({'; '.join(missing)}); nothing was asked of the clients and nothing was charged"
        )
    return BoxKeys({holders[name]: given for name, given in keys.items()}, clients)


def check_boxes(envelope: Envelope, keys: BoxKeys, box_bytes: int) -> None:
    """Raise `PeerFault(BAD_BOXES)` unless an update has exactly one box of the right size for each key."""
    sizes = {name: len(data) for name, data in envelope.attached.items() if name != BASIS}
    if sizes != {box_name(point): box_bytes for point in keys.points}:
        raise PeerFault(Reason.BAD_BOXES, "not one box of the right size for each holder")


@dataclass(frozen=True, slots=True)
class Upheld:
    """A complaint that was found right, and what the client did wrong."""

    complaint: Complaint
    reason: Reason


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """One holder's boxes, and what its answer must name: both digests, and no clients but these."""

    spec: bytes
    roster: bytes
    clients: frozenset[str]
    messages: Mapping[str, Request] = field(repr=False)


def box_request(
    task: PlannedTask, spec: RoundSpec, heads: Iterable[Signed], holder: Member, boxes: Mapping[str, bytes]
) -> BoxRequest:
    """Send one holder its boxes, by client, with the signed heads that name them."""
    roster = roster_part(heads)
    frame = spec_frame("boxes", spec, {"roster": roster, "boxes": join_parts(boxes)})
    message = Request("query", f"{task.name}/boxes/{spec.round}", frame)
    return BoxRequest(spec.digest(), digest("roster", roster), frozenset(boxes), {holder.name: message})


def read_checked(reply: Reply, request: BoxRequest, task: PlannedTask) -> dict[str, bytes]:
    """The clients that the holder struck, as it signed, each with the secret key of its box.

    Raises `PeerFault`: what `read_answer` raises, `ANOTHER_REQUEST`, or `MALFORMED` unless the body names clients that
    it got a box of.
    """
    most = _STRUCK * (1 + len(request.clients))
    envelope = read_answer(reply, "checked", task, most)
    about = envelope.about.only("roster")
    if (envelope.head.spec, about.octets("roster", 32)) != (request.spec, request.roster):
        raise PeerFault(Reason.ANOTHER_REQUEST, "the answer is about other boxes")
    struck = parse(envelope.body, most).only("struck").fields("struck")
    strangers = len(set(struck.raw()) - request.clients)
    if strangers:
        raise PeerFault(Reason.MALFORMED, f"{len(struck.raw())} clients struck, {strangers} of them not in the request")
    return {name: struck.octets(name, 32) for name in struck.raw()}


@dataclass(frozen=True, slots=True)
class Hearing:
    """What the node judges complaints by: the holders' keys, and what the clients sent."""

    court: Court
    keys: BoxKeys
    heads: Mapping[str, Signed] = field(repr=False)
    boxes_of: Callable[[str], Mapping[str, bytes]]

    def upheld(self, point: int, struck: Mapping[str, bytes]) -> dict[str, Upheld]:
        """Judge what the holder at `point` shows of each client; return what each client did wrong.

        Raises `PeerFault(FALSE_COMPLAINT)` for the first client of which the holder is wrong.
        """
        found = {}
        for client, secret in struck.items():
            key, box = self.keys.holders[point].of(self.keys.indices[client]), self.boxes_of(client)[box_name(point)]
            complaint = Complaint(self.heads[client], box, key, secret)
            verdict = self.court.judge(complaint)
            if verdict.member != client:
                raise PeerFault(verdict.reason, f"it struck {client} without cause")
            found[client] = Upheld(complaint, verdict.reason)
        return found
