"""Boxed shares, on the node's side: fresh keys before a round, boxes handed on after it, and who was struck."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fednode.driver.channel import Reply, Request
from fednode.driver.query import ask, describe, raise_if_stopped, read_answer
from fednode.driver.task import Node, Task
from fednode.errors import PeerFault, TooFewHolders
from fednode.protocol.boxkeys import BoxKeys, box_name
from fednode.protocol.cohort import Member
from fednode.protocol.envelope import Envelope, Signed
from fednode.protocol.model import BASIS
from fednode.protocol.requests import key_request, roster_part, spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import Fields, digest, join_parts, parse

log = logging.getLogger("fednode.driver")

_MOST_STRUCK = 1 << 20


def gather_box_keys(node: Node, task: Task, number: int, untold: Mapping[str, str] | None = None) -> BoxKeys:
    """A fresh key of every holder that is there, for this round. `untold` says why a holder did not take the task.

    Raises `TooFewHolders` naming who is missing if fewer than it takes to open have one: no client is asked then.
    """
    request = Request("query", f"{task.name}/box-key/{number}", key_request(task.name, number))
    holders = {holder.name: holder.point for holder in task.cohort.holders}
    keys: dict[int, Envelope] = {}
    faults: dict[str, str] = {}
    step = f"round {number}: asking holders for keys"
    for reply in ask(node, dict.fromkeys(holders, request), task.terms.deadline, step):
        try:
            envelope = read_answer(reply, "box-key", task, 32)
            BoxKeys({holders[reply.sender]: envelope}).verified(task.cohort, task.name, number)
            keys[holders[reply.sender]] = envelope
        except PeerFault as fault:
            faults[reply.sender] = describe(fault)
            log.warning("round %d: %s gave no key: %s", number, reply.sender, fault)
    if len(keys) < task.sum_params.threshold:
        raise_if_stopped(node, f"before round {number}")
        said = {name: faults.get(name, "no answer") for name, point in holders.items() if point not in keys}
        reasons = {name: f"; the task: {why}" for name, why in (untold or {}).items()}
        missing = [f"{name}: {why}{reasons.get(name, '')}" for name, why in said.items()]
        raise TooFewHolders(
            f"{len(keys)} of {len(holders)} holders gave a key for round {number} and {task.sum_params.threshold} are "
            f"needed to open ({'; '.join(missing)}); nothing was asked of the clients and nothing was charged"
        )
    return BoxKeys(keys)


def check_boxes(envelope: Envelope, keys: BoxKeys, box_bytes: int) -> None:
    """Return if an update has exactly one box of the right size for each key. Raises `PeerFault("bad-boxes")`."""
    sizes = {name: len(data) for name, data in envelope.attached.items() if name != BASIS}
    if sizes != {box_name(point): box_bytes for point in keys.envelopes}:
        raise PeerFault(Reason.BAD_BOXES, "not one box of the right size for each holder")


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """The boxes on their way to a holder, and what its answer must name: two digests, and none but these clients."""

    spec: bytes
    roster: bytes
    clients: frozenset[str]
    messages: Mapping[str, Request] = field(repr=False)


def box_request(
    task: Task, spec: RoundSpec, heads: Iterable[Signed], holder: Member, boxes: Mapping[str, bytes]
) -> BoxRequest:
    """One holder's boxes, by client, with the signed heads that name them."""
    roster = roster_part(heads)
    frame = spec_frame("boxes", spec, {"roster": roster, "boxes": join_parts(boxes)})
    message = Request("query", f"{task.name}/boxes/{spec.round}", frame)
    return BoxRequest(spec.digest(), digest("roster", roster), frozenset(boxes), {holder.name: message})


def read_checked(reply: Reply, request: BoxRequest, task: Task) -> tuple[str, ...]:
    """The clients whose box a holder could not open, by its signed word.

    Raises `PeerFault`: what `read_answer` raises, "another-request", "malformed" for anything but a list of clients
    that it got a box of, each once.
    """
    envelope = read_answer(reply, "checked", task, _MOST_STRUCK)
    about = envelope.about.only("roster")
    if (envelope.head.spec, about.octets("roster", 32)) != (request.spec, request.roster):
        raise PeerFault(Reason.ANOTHER_REQUEST, "the answer is about other boxes")
    struck: Fields = parse(envelope.body, _MOST_STRUCK).only("struck")
    names = struck.raw()["struck"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PeerFault(Reason.MALFORMED, "the struck clients are not a list of names")
    strangers = len(set(names) - request.clients)
    if strangers or len(set(names)) < len(names):
        raise PeerFault(
            Reason.MALFORMED, f"{len(names)} clients struck, {strangers} of them not among those it got boxes of"
        )
    return tuple(names)
