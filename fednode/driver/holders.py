"""One round's work with the key holders: check boxes, sign the roster, open the sum; and who did not answer.

Each step sends one request to every holder and then takes the answers in any order, all in the driver's one thread.
An answer counts only in its own step: a holder that answers too late, twice, or unasked is ignored, not blamed, since
it may already be working on its next part.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fednode.aggregate import Fold
from fednode.driver.channel import Reply
from fednode.driver.query import log_unexpected
from fednode.driver.round_log import RoundLog
from fednode.driver.steps.boxes import BoxRequest, Hearing, Upheld, box_request, read_checked
from fednode.driver.steps.confirm import ConfirmRequest, confirm_request, read_confirmed
from fednode.driver.steps.open import Opening, OpenRequest, check_norm, combine_answers, open_requests, read_opening
from fednode.driver.task import Node, PlannedTask
from fednode.errors import OpeningRejected, PeerFault, TooFewHolders
from fednode.protocol.boxkeys import BoxKeys, box_name
from fednode.protocol.cohort import Member
from fednode.protocol.complaints import Court, complaint_parts
from fednode.protocol.confirmations import Confirmations
from fednode.protocol.envelope import Signed
from fednode.protocol.requests import roster_part
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.round import events
from fednode.round.machine import Round, State

log = logging.getLogger("fednode.driver")


class Holders:
    """What the holders were asked in one round and what they answered.

    `points` are the holders that can open this round; `total` is the opened sum, int64 [d], once it passed its check.
    """

    def __init__(
        self, node: Node, task: PlannedTask, spec: RoundSpec, keys: BoxKeys | None, round_log: RoundLog
    ) -> None:
        self._node, self._task, self._spec, self._keys, self._log = node, task, spec, keys, round_log
        self.points = frozenset(holder.point for holder in task.cohort.holders) if keys is None else keys.points
        self.total: NDArray[np.int64] | None = None
        self._readers: dict[State, Callable[[Reply, int], events.Event | None]] = {}
        """By state in which the holders were asked: how to read an answer."""
        self._signed: dict[int, Signed] = {}
        self._answers: dict[int, Opening] = {}
        self._upheld: dict[str, Upheld] = {}
        """By struck client, the first complaint that was found right."""

    # --- out

    def send_boxes(self, heads: Mapping[str, Signed], boxes_of: Callable[[str], Mapping[str, bytes]]) -> None:
        """Send each holder its boxes of the clients in `heads`, and these signed heads.

        The boxes are read from the store for one holder at a time, so that only one holder's boxes are in memory.
        """
        hearing = self._hearing(heads, boxes_of)
        for holder in self._task.cohort.holders:
            if holder.point in self.points:
                mine = {name: boxes_of(name)[box_name(holder.point)] for name in heads}
                request = box_request(self._task, self._spec, heads.values(), holder, mine)
                self._readers[State.CHECKING] = partial(self._checked, request, hearing)
                self._node.channel.send(request.messages)

    def confirm(self, heads: Mapping[str, Signed], points: frozenset[int]) -> None:
        """Ask the holders at `points` to sign the roster of these heads, and show them every complaint upheld."""
        names = [holder.name for holder in self._task.cohort.holders if holder.point in points]
        heads_of_keys = {} if self._keys is None else self._keys.heads
        complaints = complaint_parts(heads_of_keys, (upheld.complaint for upheld in self._upheld.values()))
        shown = (self._node.ledger.mark, complaints)
        request = confirm_request(self._task, self._spec, roster_part(heads.values()), names, shown)
        self._readers[State.CONFIRMING] = partial(self._confirmed, request)
        self._node.channel.send(request.messages)

    def open(self, heads: Mapping[str, Signed], fold: Fold) -> None:
        """Ask the holders to open the sum `fold` over the roster of these heads, with the signatures under it."""
        confirmed = None if self._keys is None else Confirmations(self._signed)
        shown = (self._node.ledger.mark, confirmed)
        request = open_requests(self._task, self._spec, roster_part(heads.values()), fold, shown)
        self._readers[State.OPENING] = partial(self._answered, request)
        self._node.channel.send(request.messages)

    # --- in

    def answer(self, reply: Reply, state: State, now: Round) -> events.Event | None:
        """Read an answer to the request of `state`; None for a late or unsolicited one."""
        holder = self._awaited(reply, state, now)
        if holder is None:
            return None
        try:
            event = self._readers[state](reply, holder.point)
        except PeerFault as fault:
            return self._silence(holder, fault, now)
        if event is not None:
            self._log.heard(holder.name)
        return event

    def _awaited(self, reply: Reply, state: State, now: Round) -> Member | None:
        """The holder that sent this reply, if the round is waiting for it in this state; else None."""
        for holder in self._task.cohort.holders if now.state is state else ():
            if holder.name == reply.sender and holder.point in now.holders:
                return holder
        log_unexpected(reply)
        return None

    def _hearing(self, heads: Mapping[str, Signed], boxes_of: Callable[[str], Mapping[str, bytes]]) -> Hearing:
        keys, scheme = self._keys, self._node.scheme
        if keys is None or not scheme.boxed:
            raise RuntimeError("a scheme without boxes has no boxes to check")
        court = Court(self._spec, self._task.cohort, scheme, keys.heads, keys.indices)
        return Hearing(court, keys, heads, boxes_of)

    def _checked(self, request: BoxRequest, hearing: Hearing, reply: Reply, point: int) -> events.Event:
        """Judge the complaints of a holder: one that is false ends its part in the round."""
        upheld = hearing.upheld(point, read_checked(reply, request, self._task))
        for name, found in upheld.items():
            log.warning("round %d: %s shows of %s: %s", self._spec.round, reply.sender, name, found.reason)
        self._upheld = upheld | self._upheld
        return events.Checked(point, tuple(upheld))

    def faults_of(self, clients: Iterable[str]) -> dict[str, Reason]:
        """What each of these clients did wrong, as a holder's complaint showed."""
        return {name: self._upheld[name].reason for name in clients}

    def _confirmed(self, request: ConfirmRequest, reply: Reply, point: int) -> events.Event:
        self._signed[point] = read_confirmed(reply, request, self._task)
        return events.Confirmed(point)

    def _answered(self, request: OpenRequest, reply: Reply, point: int) -> events.Event | None:
        opening = read_opening(reply, request, self._task, self._node.scheme)
        if point in self._answers:
            return None
        self._answers[point] = opening
        self._log.answered.add(reply.sender)
        return events.Answered(point)

    def _silence(self, holder: Member, fault: PeerFault, now: Round) -> events.Event:
        """Count a fault. Of a holder that has done its part only a false complaint counts, and no damaged copy."""
        log.warning("round %d: %s: %s", self._spec.round, holder.name, fault)
        done = {State.CHECKING: now.checked, State.CONFIRMING: now.confirmed, State.OPENING: now.answered}
        if holder.point not in done[now.state] or fault.reason == Reason.FALSE_COMPLAINT:
            self._log.silence(holder.name, fault)
        return events.HolderSilent(holder.point, fault.reason)

    # --- the sum

    def combine(self, points: tuple[int, ...], fold: Fold) -> events.Event:
        """Combine the answers of these holders and check the sum's length; an answer that contradicts the others is
        named as silent."""
        answers = {point: self._answers[point].body for point in points}
        try:
            combined = combine_answers(self._node, self._task, fold, answers, self._spec.digest())
            self._name_wrong(combined.left_out)
            check_norm(combined.values, self._spec.terms, fold.names)
        except (OpeningRejected, TooFewHolders) as error:
            if isinstance(error, OpeningRejected):
                self._name_wrong(error.points)
            return events.OpeningFailed(str(error))
        self.total = combined.values
        return events.Opened()

    def _name_wrong(self, points: tuple[int, ...]) -> None:
        for name in [holder.name for holder in self._task.cohort.holders if holder.point in points]:
            self._log.answered.discard(name)
            self._log.silence(name, PeerFault(Reason.WRONG_ANSWER))

    def signed(self) -> dict[int, Signed]:
        """The signed heads of the answers, by point: they prove that this round was opened."""
        return {point: opening.signed for point, opening in self._answers.items()}

    def unanswered(self, now: Round) -> dict[str, str]:
        """The holders that never answered a request of this round, each with its reason."""
        parts = {
            State.CHECKING: self.points - now.checked,
            State.CONFIRMING: now.checked - now.confirmed,
            State.OPENING: now.holders - now.answered,
        }
        asked = self._readers if self._log.cause != "stopped" else ()
        quiet = frozenset[int]().union(*(parts[state] for state in asked))
        holders = {holder.name: holder.point for holder in self._task.cohort.holders}
        silent = {name: Reason.NO_KEY for name, point in holders.items() if point not in self.points}
        return silent | {name: "no-answer" for name, point in holders.items() if point in quiet}
