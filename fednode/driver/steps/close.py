"""The end of a round for the holders that have not opened it: they are told, so that they destroy its key."""

import logging
from collections.abc import Iterable

from fednode.driver.channel import Request
from fednode.driver.query import ask, describe, read_answer
from fednode.driver.task import Node, Task
from fednode.errors import PeerFault
from fednode.protocol.requests import close_request
from fednode.reasons import Reason

log = logging.getLogger("fednode.driver")

PATIENCE = 5.0
"""Seconds for which holders are listened to after a round that has failed: it may be the last that they hear."""


def close_round(node: Node, task: Task, number: int, holders: Iterable[str], seconds: float) -> None:
    """Tell these holders that round `number` is over and will not be opened by them any more.

    At best they destroy what could open it; who does not is named in the log, and nothing else depends on it.
    """
    request = Request("query", f"{task.name}/close/{number}", close_request(task.name, number))
    left = dict.fromkeys(holders, "no answer")
    step = f"round {number}: telling holders that it is over"
    for reply in ask(node, dict.fromkeys(left, request), min(seconds, task.terms.deadline), step):
        try:
            if read_answer(reply, "closed", task, 0).head.round != number:
                raise PeerFault(Reason.ANOTHER_REQUEST, "the answer is about another round")
            del left[reply.sender]
        except PeerFault as fault:
            left[reply.sender] = describe(fault)
    for name, why in left.items():
        log.info("round %d: %s may still hold its key of the round: %s", number, name, why)
