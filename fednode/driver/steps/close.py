"""Tell the holders that have not opened a round that it is over, so that they destroy its key."""

import logging
from collections.abc import Iterable

from fednode.driver.channel import Reply, Request
from fednode.driver.query import NO_ANSWER, ask, read_answer
from fednode.driver.task import Node, PlannedTask
from fednode.errors import PeerFault
from fednode.protocol.requests import close_request
from fednode.reasons import Reason

log = logging.getLogger("fednode.driver")

PATIENCE = 5.0
"""Seconds for which the node waits for holders after a failed round: the run may end after that."""


def close_round(node: Node, task: PlannedTask, number: int, holders: Iterable[str], seconds: float) -> None:
    """Tell these holders that they will not open round `number` any more.

    They then destroy its key. The log names those that do not confirm it; nothing else depends on the answers.
    """

    def read(reply: Reply) -> None:
        if read_answer(reply, "closed", task, 0).head.round != number:
            raise PeerFault(Reason.ANOTHER_REQUEST, "the answer is about another round")

    request = Request("query", f"{task.name}/close/{number}", close_request(task.name, number))
    requests = dict.fromkeys(holders, request)
    step = f"round {number}: telling holders that it is over"
    closed, faults = ask(node, requests, min(seconds, task.terms.deadline), step, read)
    for name in requests.keys() - closed.keys():
        log.info("round %d: %s may still hold its key of the round: %s", number, name, faults.get(name, NO_ANSWER))
