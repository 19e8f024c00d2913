"""Opening one sum: the request to the holders, how answers are read, and how they combine."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fednode.aggregate import Fold
from fednode.driver.channel import Reply, Request
from fednode.driver.query import read_answer
from fednode.driver.task import Node, PlannedTask
from fednode.errors import OpeningRejected, PeerFault, TooFewHolders
from fednode.protocol.confirmations import Confirmations
from fednode.protocol.envelope import Signed
from fednode.protocol.headroom import norm_headroom
from fednode.protocol.ledger_mark import LEDGER, LedgerMark
from fednode.protocol.requests import spec_frame
from fednode.protocol.spec import RoundSpec, Terms
from fednode.reasons import Reason
from fednode.wire import digest
from fednode_crypto import NotEnoughShares, SumScheme, Tampered, WrongAnswer

log = logging.getLogger("fednode.driver")

_SHOWN = 20
"""Most names in one sentence."""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """One request to each holder, and the digests that their answers must name."""

    spec: bytes
    roster: bytes
    request: bytes
    ledger: LedgerMark
    messages: Mapping[str, Request] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Opening:
    """A holder's answer: its point, its part of the sum, and the head that it signed."""

    point: int
    body: bytes = field(repr=False)
    signed: Signed = field(repr=False)


def open_requests(
    task: PlannedTask,
    spec: RoundSpec,
    roster: bytes,
    fold: Fold,
    shown: tuple[LedgerMark, Confirmations | None],
) -> OpenRequest:
    """Ask to open `fold`, the sum over this roster, and show how far the ledger is: the holders that confirmed the
    roster, or all of them under a scheme without confirmations."""
    (ledger, confirmed), wanted = shown, fold.total.request()
    parts = {"roster": roster, "request": wanted, **ledger.parts(), **(confirmed.parts() if confirmed else {})}
    frame = spec_frame("open", spec, parts)
    request = Request("query", f"{task.name}/open/{spec.round}", frame)
    asked = [holder for holder in task.cohort.holders if confirmed is None or holder.point in confirmed.heads]
    messages = {holder.name: request for holder in asked}
    return OpenRequest(spec.digest(), digest("roster", roster), digest("open-request", wanted), ledger, messages)


def read_opening(reply: Reply, request: OpenRequest, task: PlannedTask, scheme: SumScheme) -> Opening:
    """A holder's part of the opening, signed for this spec, roster and request.

    Raises `PeerFault`: what `read_answer` raises, `ANOTHER_REQUEST`, `ANOTHER_POINT`, or `BAD_ANSWER` for bytes that no
    honest holder sends, whatever is opened.
    """
    envelope = read_answer(reply, "answer", task, task.sum_params.answer_bytes)
    about = envelope.about.only("point", "roster", "request", LEDGER)
    request.ledger.require_signed(about)
    named = (envelope.head.spec, about.octets("roster", 32), about.octets("request", 32))
    if named != (request.spec, request.roster, request.request):
        raise PeerFault(Reason.ANOTHER_REQUEST, "the answer is for something else")
    point = about.integer("point", 1, 255)
    if point != task.cohort.member(reply.sender).point:
        raise PeerFault(Reason.ANOTHER_POINT, f"{reply.sender} answered for point {point}")
    try:
        scheme.check_answer(task.sum_params, envelope.body)
    except Tampered as error:
        raise PeerFault(Reason.BAD_ANSWER, str(error)) from error
    return Opening(point, envelope.body, envelope.signed)


@dataclass(frozen=True, slots=True)
class Combined:
    """The exact integer sum, int64 [d], and the points whose answers contradicted the others and were left out."""

    values: NDArray[np.int64] = field(repr=False)
    left_out: tuple[int, ...] = ()


def combine_answers(
    node: Node, task: PlannedTask, fold: Fold, answers: Mapping[int, bytes], spec_digest: bytes
) -> Combined:
    """Combine the answers; one that contradicts the others is left out if enough remain.

    Raises `TooFewHolders`, or `OpeningRejected` if the result is not small where it must be. The error names the points
    whose answers were found wrong, whether enough others remained or not.
    """
    left_out: tuple[int, ...] = ()
    while True:
        rest = {point: answer for point, answer in answers.items() if point not in left_out}
        try:
            return Combined(node.scheme.combine(task.sum_params, fold.total, rest, spec_digest), left_out)
        except NotEnoughShares as error:
            raise TooFewHolders(str(error)) from error
        except Tampered as error:
            wrong = tuple(point for point in error.points if point in rest) if isinstance(error, WrongAnswer) else ()
            left_out += wrong
            if not wrong or len(rest) - len(wrong) < task.sum_params.threshold:
                raise _rejected(error, left_out) from error
            log.warning("the answers of points %s are wrong and left out", wrong)


def check_norm(values: NDArray[np.int64], terms: Terms, clients: Collection[str]) -> None:
    """Raise `OpeningRejected`, naming the clients, if a sum is longer than that many honest updates can be."""
    found, most = float(np.linalg.norm(values)), norm_headroom(terms, len(values), len(clients))
    if found > most:
        step = 2.0**-terms.grid_bits
        raise OpeningRejected(
            f"the opened sum is {found * step:.4g} long, {len(clients)} honest updates give {most * step:.4g} at the "
            f"most; nothing is published. One or more of these sent more than the clip allows: {_some(clients)}"
        )


def _some(clients: Collection[str]) -> str:
    shown = sorted(clients)[:_SHOWN]
    return ", ".join(shown) + (f" and {len(clients) - _SHOWN} more" if len(clients) > _SHOWN else "")


def _rejected(error: Tampered, left_out: tuple[int, ...]) -> OpeningRejected:
    return OpeningRejected(f"the opened sum failed its check and is not published: {error}", left_out)
