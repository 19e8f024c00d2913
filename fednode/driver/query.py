"""Ask, wait, and take each answer as it comes: shared by the key ceremony and the delivery of tasks."""

import logging
from collections.abc import Iterator, Mapping

from fednode.driver.channel import Reply, Request
from fednode.driver.task import Node, Task
from fednode.errors import Interrupted, PeerFault, one_line
from fednode.protocol.envelope import Envelope
from fednode.reasons import Reason

log = logging.getLogger("fednode.driver")

_MOST_REASON, _MOST_DETAIL = 80, 200
"""Characters of a peer's own words that are passed on to logs, consoles and reports."""


def ask(node: Node, requests: Mapping[str, Request], seconds: float, step: str) -> Iterator[Reply]:
    """Send, then yield each member's answer to this very request until all have come or `seconds` have passed.

    `step` says to the operator what is being done.
    """
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
                log.info("discarded an answer of %s to %s: nobody waits for it", reply.sender, reply.tag)
        if not replies and tags:
            if node.clock.now() >= deadline or node.stop():
                return
            node.clock.sleep(node.poll)


def raise_if_stopped(node: Node, when: str) -> None:
    """Raise `Interrupted` if the operator asked to stop: that ended the waiting, and who had not answered is not to
    blame."""
    if node.stop():
        raise Interrupted(
            f"stopped {when}; nothing was asked of a client since the last round and nothing more was charged"
        )


def read_answer(reply: Reply, kind: str, task: Task, max_body: int, max_attached: int = 0) -> Envelope:
    """The signed envelope of `kind` in a reply, by the member that was asked, about this task.

    Raises `PeerFault`: "no-answer", "refused" with the member's own reason, or what reading and verifying raise. Its
    words are short and printable, whoever chose them.
    """
    try:
        return _read(reply, kind, task, (max_body, max_attached))
    except PeerFault as fault:
        raise PeerFault(_short(fault.reason, _MOST_REASON), _short(fault.detail, _MOST_DETAIL)) from fault


def describe(fault: PeerFault) -> str:
    """A fault as a part of a sentence: its reason, and its detail in brackets where there is one."""
    detail = _short(fault.detail, _MOST_DETAIL)
    return _short(fault.reason, _MOST_REASON) + (f" ({detail})" if detail else "")


def _short(text: str, longest: int) -> str:
    line = one_line(text, longest + 1)
    return line if len(line) <= longest else line[: longest - 3] + "..."


def _read(reply: Reply, kind: str, task: Task, most: tuple[int, int]) -> Envelope:
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
