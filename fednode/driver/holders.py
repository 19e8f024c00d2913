"""One round's work with the key holders: boxes handed on, the roster signed, the sum opened, and who did not answer."""

import logging
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fednode.aggregate import Fold
from fednode.driver.channel import Reply
from fednode.driver.round_log import RoundLog
from fednode.driver.steps.boxes import BoxRequest, box_request, read_checked
from fednode.driver.steps.confirm import ConfirmRequest, confirm_request, read_confirmed
from fednode.driver.steps.open import Opening, OpenRequest, combine_answers, open_requests, read_opening
from fednode.driver.task import Node, Task
from fednode.errors import OpeningRejected, PeerFault, TooFewHolders
from fednode.protocol.boxkeys import BoxKeys, box_name
from fednode.protocol.cohort import Member
from fednode.protocol.confirmations import Confirmations
from fednode.protocol.envelope import Signed
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.round import events
from fednode.round.machine import Round, State

log = logging.getLogger("fednode.driver")


class Holders:
    """What the holders were asked in one round and what they answered. Used by the round alone.

    `points` are those that can open this round, `total` the opened sum, int64 [d], once it passed its check.
    """

    def __init__(self, node: Node, task: Task, spec: RoundSpec, keys: BoxKeys | None, round_log: RoundLog) -> None:
        self._node, self._task, self._spec, self._keys, self._log = node, task, spec, keys, round_log
        self.points = frozenset(holder.point for holder in task.cohort.holders) if keys is None else keys.points
        self.total: NDArray[np.int64] | None = None
        self._readers: dict[State, Callable[[Reply, int], events.Event | None]] = {}
        """How an answer is read, for each state in which the holders were asked."""
        self._signed: dict[int, Signed] = {}
        self._answers: dict[int, Opening] = {}

    # --- out

    def hand_on(self, heads: Mapping[str, Signed], boxes_of: Callable[[str], Mapping[str, bytes]]) -> None:
        """Send each holder its boxes of the clients in `heads`, and these signed heads.

        One holder at a time, from the store: no more than one holder's boxes are in memory.
        """
        for holder in self._task.cohort.holders:
            if holder.point in self.points:
                mine = {name: boxes_of(name)[box_name(holder.point)] for name in heads}
                request = box_request(self._task, self._spec, heads.values(), holder, mine)
                self._readers[State.CHECKING] = partial(self._checked, request)
                self._node.channel.send(request.messages)

    def confirm(self, heads: Mapping[str, Signed], points: frozenset[int]) -> None:
        """Ask the holders at `points` to sign the roster of these heads."""
        request = confirm_request(self._task, self._spec, heads.values(), points)
        self._readers[State.CONFIRMING] = partial(self._confirmed, request)
        self._node.channel.send(request.messages)

    def open(self, heads: Mapping[str, Signed], fold: Fold) -> None:
        """Ask for the parts of the sum `fold`, whose updates have these heads; with the signatures under the roster."""
        confirmed = None if self._keys is None else Confirmations(self._signed)
        request = open_requests(self._task, self._spec, heads.values(), fold, confirmed)
        self._readers[State.OPENING] = partial(self._answered, request)
        self._node.channel.send(request.messages)

    # --- in

    def answer(self, reply: Reply, state: State, now: Round) -> events.Event | None:
        """An answer to what was asked in `state`; None for one that nobody waits for."""
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
        """The holder that a reply is from, if the round is waiting for it in this state: no other word counts.

        What comes too late, or from others, must not be held against a holder either: it may be at its next part.
        """
        for holder in self._task.cohort.holders if now.state is state else ():
            if holder.name == reply.sender and holder.point in now.holders:
                return holder
        log.info("discarded an answer of %s to %s: nobody waits for it", reply.sender, reply.tag)
        return None

    def _checked(self, request: BoxRequest, reply: Reply, point: int) -> events.Event:
        struck = read_checked(reply, request, self._task)
        if struck:
            number, count = self._spec.round, len(struck)
            log.warning("round %d: %s could not open the boxes of %d clients", number, reply.sender, count)
        return events.Checked(point, struck)

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
        """Count it, unless the holder has done its part already: a second copy that is damaged takes nothing away."""
        log.warning("round %d: %s: %s", self._spec.round, holder.name, fault)
        done = {State.CHECKING: now.checked, State.CONFIRMING: now.confirmed, State.OPENING: now.answered}
        if holder.point not in done[now.state]:
            self._log.silence(holder.name, fault)
        return events.HolderSilent(holder.point, fault.reason)

    # --- the sum

    def combine(self, points: tuple[int, ...], fold: Fold) -> events.Event:
        """Put the answers of these holders together; who contradicts the others is named."""
        answers = {point: self._answers[point].body for point in points}
        try:
            combined = combine_answers(self._node, self._task, fold, answers, self._spec.digest())
        except (OpeningRejected, TooFewHolders) as error:
            if isinstance(error, OpeningRejected):
                self._name_liars(error.points)
            return events.OpeningFailed(str(error))
        self.total = combined.values
        self._name_liars(combined.left_out)
        return events.Opened()

    def _name_liars(self, points: tuple[int, ...]) -> None:
        for name in [holder.name for holder in self._task.cohort.holders if holder.point in points]:
            self._log.answered.discard(name)
            self._log.silence(name, PeerFault(Reason.WRONG_ANSWER))

    def signed(self) -> dict[int, Signed]:
        """The signed heads of the answers, by point: the holders' word that this round was opened."""
        return {point: opening.signed for point, opening in self._answers.items()}

    def unheard(self, now: Round) -> dict[str, str]:
        """The holders that did not do their part, and why, as far as nothing is heard of them."""
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
