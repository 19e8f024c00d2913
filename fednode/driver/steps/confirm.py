"""The holders sign the final roster before anything is charged: the request, and how answers are read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fednode.driver.channel import Reply, Request
from fednode.driver.query import read_answer
from fednode.driver.task import PlannedTask
from fednode.protocol.confirmations import CONFIRMED, check_confirmation
from fednode.protocol.envelope import Signed, Topic
from fednode.protocol.ledger_mark import LedgerMark
from fednode.protocol.requests import spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.wire import digest


@dataclass(frozen=True, slots=True)
class ConfirmRequest:
    """One request to each holder, and the topic, roster and ledger that the signatures must name."""

    topic: Topic
    roster: bytes
    ledger: LedgerMark
    messages: Mapping[str, Request] = field(repr=False)


def confirm_request(
    task: PlannedTask,
    spec: RoundSpec,
    roster: bytes,
    holders: Iterable[str],
    shown: tuple[LedgerMark, Mapping[str, bytes]],
) -> ConfirmRequest:
    """Ask these holders to sign this roster and how far the ledger is, and show them why others were excluded."""
    ledger, complaints = shown
    frame = spec_frame("confirm", spec, {"roster": roster, **ledger.parts(), **complaints})
    messages = dict.fromkeys(holders, Request("query", f"{task.name}/confirm/{spec.round}", frame))
    return ConfirmRequest(Topic(spec.task, spec.round, spec.digest()), digest("roster", roster), ledger, messages)


def read_confirmed(reply: Reply, request: ConfirmRequest, task: PlannedTask) -> Signed:
    """A holder's signature under this roster and this head of the ledger. Raises `PeerFault`."""
    envelope = read_answer(reply, CONFIRMED, task, 0)
    check_confirmation(envelope.signed, request.topic, request.roster)
    request.ledger.require_signed(envelope.about)
    return envelope.signed
