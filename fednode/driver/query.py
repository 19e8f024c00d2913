"""Ask members one question, wait, and read their answers: used by the key ceremony and around a round."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from fednode.driver.channel import Reply, Request
from fednode.driver.task import Node, PlannedTask
from fednode.errors import Interrupted, PeerFault, one_line
from fednode.protocol.envelope import Envelope
from fednode.reasons import Reason

log = logging.getLogger("fednode.driver")

NO_ANSWER = "no answer"
_MOST_REASON, _MOST_DETAIL = 80, 200
"""Most characters of a peer's own text in logs, on consoles and in reports."""

Answer = TypeVar("Answer")


def ask(
    node: Node, requests: Mapping[str, Request], seconds: float, step: str, read: Callable[[Reply], Answer]
) -> tuple[dict[str, Answer], dict[str, str]]:
    """Ask members and read what each answers, until all have answered or `seconds` have passed.

    Returns by member what `read` made of the answer, and the faults: why `read` raised `PeerFault`. Members that did
    not answer are in neither. `step` names the work for the operator.
    """
    answers: dict[str, Answer] = {}
    faults: dict[str, str] = {}
    for reply in _replies(node, requests, seconds, step):
        try:
            answers[reply.sender] = read(reply)
        except PeerFault as fault:
            faults[reply.sender] = describe(fault)
            log.warning("%s: %s: %s", step, reply.sender, fault)
    return answers, faults


def _replies(node: Node, requests: Mapping[str, Request], seconds: float, step: str) -> Iterator[Reply]:
    """The first reply of each member to this very request. Replies to other requests are logged and dropped."""
    tags = {member: request.tag for member, request in requests.items()}
    node.channel.send(requests)
    deadline = node.clock.now() + seconds
    while tags:
        replies = node.channel.receive()
        for reply in replies:
            if tags.get(reply.sender) == reply.tag:
                del tags[reply.sender]
                node.progress(step, len(requests) - len(tags), len(requests))
                yield reply
            else:
                log_unexpected(reply)
        if not replies and tags:
            if node.clock.now() >= deadline or node.stop():
                return
            node.clock.sleep(node.poll)


def log_unexpected(reply: Reply) -> None:
    """Note a reply that is late, a repeat, or was never asked for."""
    log.info("ignored a reply of %s to %s: it is late or unsolicited", reply.sender, reply.tag)


def raise_if_stopped(node: Node, when: str) -> None:
    """Raise `Interrupted` if the operator asked to stop: then the wait ended early, and no member is to blame."""
    if node.stop():
        raise Interrupted(
            f"stopped {when}; nothing was asked of a client since the last round and nothing more was charged"
        )


def read_answer(reply: Reply, kind: str, task: PlannedTask, max_body: int, max_attached: int = 0) -> Envelope:
    """The signed envelope of `kind` in a reply, verified: from the member that was asked, about this task.

    Raises `PeerFault`: `NO_ANSWER`, "refused: " with the member's own reason, or what reading and verifying raise. A
    member's own text is made short and printable.
    """
    try:
        return _read(reply, kind, task, (max_body, max_attached))
    except PeerFault as fault:
        raise PeerFault(_short(fault.reason, _MOST_REASON), _short(fault.detail, _MOST_DETAIL)) from fault


def describe(fault: PeerFault) -> str:
    """A fault as part of a sentence: the reason, then the detail, if any, in brackets."""
    detail = _short(fault.detail, _MOST_DETAIL)
    return _short(fault.reason, _MOST_REASON) + (f" ({detail})" if detail else "")


def _short(text: str, longest: int) -> str:
    line = one_line(text, longest + 1)
    return line if len(line) <= longest else line[: longest - 3] + "..."


def _read(reply: Reply, kind: str, task: PlannedTask, most: tuple[int, int]) -> Envelope:
    if reply.frame is None:
        raise PeerFault(Reason.NO_ANSWER, reply.error)
    envelope = Envelope.from_bytes(reply.frame, *most)
    member = envelope.signed.verified(task.cohort)
    if member.name != reply.sender:
        raise PeerFault(Reason.STRANGER, f"{member.name} answered for {reply.sender}")
    if envelope.head.task != task.name:
        raise PeerFault(Reason.ANOTHER_TASK, envelope.head.task)
    if envelope.head.kind == "refusal":
        raise PeerFault(f"refused: {envelope.about.text('reason', 64)}", envelope.about.text("detail", 512))
    if envelope.head.kind != kind:
        raise PeerFault(Reason.UNEXPECTED, f"{envelope.head.kind} where {kind} was asked")
    return envelope
