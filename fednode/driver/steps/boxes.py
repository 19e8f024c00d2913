"""Boxed shares, on the node's side: fresh keys of the holders before a round, and their boxes checked after it."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fednode.driver.channel import Reply, Request
from fednode.driver.query import NO_ANSWER, ask, raise_if_stopped, read_answer
from fednode.driver.task import Node, Task
from fednode.errors import PeerFault, TooFewHolders
from fednode.protocol.boxkeys import BOX_KEY, KEY_BYTES, BoxKeys, HolderKeys, box_name, client_indices
from fednode.protocol.cohort import Member
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.model import BASIS
from fednode.protocol.requests import key_request, roster_part, spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import digest, join_parts, parse

log = logging.getLogger("fednode.driver")

_MOST_EXCLUDED = 1 << 20
"""Bytes of a list of excluded clients."""


def gather_box_keys(node: Node, task: Task, number: int, refusals: Mapping[str, str] | None = None) -> BoxKeys:
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
class BoxRequest:
    """One holder's boxes, and what its answer must name: both digests, and no clients but these."""

    spec: bytes
    roster: bytes
    clients: frozenset[str]
    messages: Mapping[str, Request] = field(repr=False)


def box_request(
    task: Task, spec: RoundSpec, heads: Iterable[Signed], holder: Member, boxes: Mapping[str, bytes]
) -> BoxRequest:
    """Send one holder its boxes, by client, with the signed heads that name them."""
    roster = roster_part(heads)
    frame = spec_frame("boxes", spec, {"roster": roster, "boxes": join_parts(boxes)})
    message = Request("query", f"{task.name}/boxes/{spec.round}", frame)
    return BoxRequest(spec.digest(), digest("roster", roster), frozenset(boxes), {holder.name: message})


def read_checked(reply: Reply, request: BoxRequest, task: Task) -> tuple[str, ...]:
    """The clients whose box the holder could not open, as it signed.

    Raises `PeerFault`: what `read_answer` raises, `ANOTHER_REQUEST`, or `MALFORMED` unless the body lists clients that
    it got a box of, each once.
    """
    envelope = read_answer(reply, "checked", task, _MOST_EXCLUDED)
    about = envelope.about.only("roster")
    if (envelope.head.spec, about.octets("roster", 32)) != (request.spec, request.roster):
        raise PeerFault(Reason.ANOTHER_REQUEST, "the answer is about other boxes")
    names = parse(envelope.body, _MOST_EXCLUDED).only("struck").raw()["struck"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PeerFault(Reason.MALFORMED, "the excluded clients are not a list of names")
    strangers = len(set(names) - request.clients)
    if strangers or len(set(names)) < len(names):
        raise PeerFault(Reason.MALFORMED, f"{len(names)} clients excluded, {strangers} of them not in the request")
    return tuple(names)
