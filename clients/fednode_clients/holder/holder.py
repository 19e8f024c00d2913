"""A key holder: opens one sum a round, once, over one roster, which enough holders have signed before.

What it refuses and what it did lie in its key folder: the record is fsynced before an answer leaves, and a restart
forgets nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fednode.errors import PeerFault
from fednode.protocol.confirmations import CONFIRMED, Confirmations, about_roster
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.requests import (
    frame_kind,
    read_ask,
    read_roster,
    read_round_request,
    read_spec,
)
from fednode.protocol.spec import KEY_CHECK_ROUND, RoundSpec
from fednode.reasons import Reason
from fednode.wire import canonical, digest, split_parts
from fednode_clients.holder.box_store import BoxStore
from fednode_clients.holder.ceremony import KeyCeremony, keyed
from fednode_clients.holder.roster import check_roster
from fednode_clients.keyfolder.audit_log import damaged
from fednode_clients.keyfolder.exclusive import exclusive
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.tasks import KnownTask, Schemes, recalled_task, verified_task
from fednode_clients.limits import MemberLimits
from fednode_crypto import Rng, Tampered


@dataclass(frozen=True, slots=True)
class _Opening:
    """What a round was opened for: answering the same again is harmless, anything else is a second opening."""

    task: str
    round: int
    spec: bytes
    roster: bytes
    request: bytes

    def entry(self) -> dict[str, object]:
        return {
            "opened": self.task,
            "round": self.round,
            "spec": self.spec.hex(),
            "roster": self.roster.hex(),
            "request": self.request.hex(),
        }


class Holder:
    """One holder on one machine, with its own limits."""

    def __init__(self, folder: KeyFolder, limits: MemberLimits, schemes: Schemes, rng: Rng) -> None:
        self.folder, self._limits, self._schemes, self._rng = folder, limits, schemes, rng
        self._keys = KeyCeremony(folder, schemes, rng, limits.max_tasks)
        self._room = BoxStore(folder)
        self._known: dict[str, KnownTask] = {}

    def handle(self, frame: bytes) -> Envelope:
        """The answer to any request that a holder knows. Raises `PeerFault` with the reason to refuse."""
        steps: Mapping[str, Callable[[bytes], Envelope]] = {
            **self._keys.steps(),
            "task": self.take_task,
            "box-key": self.box_key,
            "boxes": self.take_boxes,
            "confirm": self.confirm,
            "open": self.open,
            "close": self.close_round,
        }
        kind = frame_kind(frame)
        if kind not in steps:
            raise PeerFault(Reason.UNEXPECTED, f"a holder does not know {kind[:32]!r}")
        # whoever asks two things at once is answered as if one had come after the other
        with exclusive(self.folder):
            if kind != "close":
                # a record that was lost must not be found out at the last step only; destroying a key is always right
                self.folder.audit_log.settle()
            return steps[kind](frame)

    # --- boxed shares

    def take_task(self, frame: bytes) -> Envelope:
        """Check a task, keep it, say "ready": a boxed scheme has no ceremony. Raises `PeerFault`."""
        task, parts = read_ask("task", frame)
        known = verified_task(self.folder, self._schemes, task, parts, self._limits.max_tasks)
        if known.me.role != "holder":
            raise PeerFault(Reason.NOT_A_HOLDER, f"{self.folder.name} holds no keys")
        self._known[task] = known
        return self.folder.signer.write("ready", Topic(task))

    def box_key(self, frame: bytes) -> Envelope:
        """This round's fresh public key, signed.

        Raises `PeerFault`: "past-round", "already-opened", "round-closed", "round-cap".
        """
        task, number = read_round_request("box-key", frame)
        # else whoever reaches a holder could put every round of a task into the past
        self._require_boxes(task, number)
        if any(entry.get("round") == number for entry in self._opened(task)):
            raise PeerFault(Reason.ALREADY_OPENED, f"round {number} of {task} was opened before")
        self._heed_cap(task)
        key = self._room.key(task, number)
        return self.folder.signer.write("box-key", Topic(task, number), key.public.raw)

    def close_round(self, frame: bytes) -> Envelope:
        """Destroy the key and the boxes of a round that was not opened, and say so; the round is never opened here.

        Nobody signs this request, and nobody has to: whoever lies with it has one holder less to open the round with,
        and could have asked for the key of a later round to the same end. Raises `PeerFault`: "unexpected" under a
        scheme without boxes, "round-cap".
        """
        task, number = read_round_request("close", frame)
        self._require_boxes(task, number)
        self._room.close(task, number)
        return self.folder.signer.write("closed", Topic(task, number))

    def _require_boxes(self, task: str, number: int) -> None:
        if not self._task(task).scheme.boxed:
            raise PeerFault(Reason.UNEXPECTED, "this scheme has no boxes")
        if number > self._limits.max_rounds:
            raise PeerFault(Reason.ROUND_CAP, f"round {number} of {task}, {self._limits.max_rounds} are my most")

    def take_boxes(self, frame: bytes) -> Envelope:
        """Keep this round's boxes, and name the clients whose box is no good. Raises `PeerFault` as `open` does."""
        spec, parts = read_spec("boxes", frame)
        known, heads = self._believed(spec, parts)
        boxes = split_parts(parts.get("boxes", b""), known.card.sum_params.summands)
        struck = self._room.take(known, spec, heads, boxes)
        topic = Topic(spec.task, spec.round, spec.digest())
        about = {"roster": digest("roster", parts["roster"]).hex()}
        return self.folder.signer.write("checked", topic, canonical({"struck": sorted(struck)}), about)

    def confirm(self, frame: bytes) -> Envelope:
        """This holder's signature under the final roster of a round, one roster a round and no other ever after.

        Raises `PeerFault` as `open` does, "already-confirmed", and "bad-request" for a roster with a client of whom
        there is no good box here. The record is on disk before the answer leaves.
        """
        spec, parts = read_spec("confirm", frame)
        known, heads = self._believed(spec, parts)
        if not known.scheme.boxed:
            raise PeerFault(Reason.UNEXPECTED, "this scheme's rosters are not confirmed")
        roster = digest("roster", parts["roster"])
        if any(entry.get("round") == spec.round for entry in self._opened(spec.task)):
            raise PeerFault(Reason.ALREADY_OPENED, f"round {spec.round} of {spec.task} was opened before")
        entry = {"confirmed": spec.task, "round": spec.round, "spec": spec.digest().hex(), "roster": roster.hex()}
        earlier = self._confirmed(spec)
        if earlier not in (None, entry):
            raise PeerFault(
                Reason.ALREADY_CONFIRMED, f"another roster of round {spec.round} of {spec.task} was confirmed"
            )
        if earlier is None:
            self._heed_cap(spec.task)
            # who could not open it must not let the round be charged
            self._room.require(spec, [signed.head.sender for signed in heads])
            self.folder.audit_log.append(entry)
        return self.folder.signer.write(
            CONFIRMED, Topic(spec.task, spec.round, spec.digest()), b"", about_roster(roster)
        )

    # --- opening

    def open(self, frame: bytes) -> Envelope:
        """This holder's part of the sum over one roster, the same bytes if the very same is asked again.

        Under a boxed scheme the confirmations of enough holders come with the request. Raises `PeerFault`: what
        `MemberLimits.check`, `check_roster` and `Confirmations.verified` raise, "another-task", "not-confirmed",
        "already-confirmed", "already-opened", "round-cap" or "bad-request". The record is on disk before the answer
        leaves.
        """
        spec, parts = read_spec("open", frame)
        known, heads = self._believed(spec, parts)
        roster, request = parts["roster"], parts.get("request", b"")
        if len(request) != spec.sum_params.request_bytes:
            raise PeerFault(
                Reason.BAD_REQUEST, f"{len(request)} bytes to open, {spec.sum_params.request_bytes} are a sum"
            )
        opening = _Opening(
            spec.task, spec.round, spec.digest(), digest("roster", roster), digest("open-request", request)
        )
        body = self._earlier(opening)
        if body is None and known.scheme.boxed:
            self._require_confirmed(known, spec, parts, opening.roster)
        if body is None:
            body = self._answer(known, spec, heads, request)
            self.folder.audit_log.append(opening.entry())
            self.folder.state.put(f"answer/{spec.task}", _label(spec.round) + opening.request + opening.roster + body)
        if known.scheme.boxed:
            # also for an answer that is given again: a crash may have come before
            self._room.close(spec.task, spec.round)
        about = {"point": known.me.point, "roster": opening.roster.hex(), "request": opening.request.hex()}
        return self.folder.signer.write("answer", Topic(spec.task, spec.round, opening.spec), body, about)

    def _believed(self, spec: RoundSpec, parts: Mapping[str, bytes]) -> tuple[KnownTask, tuple[Signed, ...]]:
        known = self._task(spec.task)
        known.check(spec)
        if "roster" not in parts:
            raise PeerFault(Reason.BAD_REQUEST, "there is no roster")
        heads = read_roster(parts["roster"], known.card.sum_params.summands)
        check_roster(known, self._limits, spec, heads)
        return known, heads

    def _require_confirmed(self, known: KnownTask, spec: RoundSpec, parts: Mapping[str, bytes], roster: bytes) -> None:
        cohort, needed = known.card.cohort, known.card.sum_params.threshold
        topic = Topic(spec.task, spec.round, spec.digest())
        there = len(Confirmations.from_parts(parts, cohort).verified(cohort, topic, roster))
        if there < needed:
            raise PeerFault(Reason.NOT_CONFIRMED, f"{there} holders have confirmed this roster, {needed} have to")
        earlier = self._confirmed(spec)
        mine = (roster.hex(), spec.digest().hex())
        if earlier is not None and (earlier.get("roster"), earlier.get("spec")) != mine:
            raise PeerFault(
                Reason.ALREADY_CONFIRMED, f"another roster of round {spec.round} of {spec.task} was confirmed"
            )

    def _confirmed(self, spec: RoundSpec) -> dict[str, object] | None:
        """What this holder confirmed in that round, or None."""
        mine = [entry for entry in self.folder.audit_log.entries() if entry.get("confirmed") == spec.task]
        return next((entry for entry in mine if entry.get("round") == spec.round), None)

    def _answer(self, known: KnownTask, spec: RoundSpec, heads: tuple[Signed, ...], request: bytes) -> bytes:
        if known.scheme.boxed:
            return self._room.answer(known, spec, [signed.head.sender for signed in heads])
        try:
            _, share = self._keys.share(spec.task)
            return keyed(known.card, self._schemes).answer(spec.sum_params, share, request, self._rng)
        except Tampered as error:
            raise PeerFault(Reason.BAD_REQUEST, str(error)) from error

    def _earlier(self, opening: _Opening) -> bytes | None:
        """The bytes of the same answer given before, or None if the round was never opened."""
        kept = self.folder.state.get(f"answer/{opening.task}") or b""
        opened = self._opened(opening.task)
        if kept and int.from_bytes(kept[:8], "little") not in [entry.get("round") for entry in opened]:
            raise damaged(self.folder.path, "the record does not hold what was answered")
        for entry in opened:
            if entry.get("round") == opening.round:
                if entry == opening.entry() and kept[:72] == _label(opening.round) + opening.request + opening.roster:
                    return kept[72:]
                raise PeerFault(
                    Reason.ALREADY_OPENED,
                    f"round {opening.round} of {opening.task} was opened before, once is all there is",
                )
        self._heed_cap(opening.task)
        return None

    def _opened(self, task: str) -> list[dict[str, object]]:
        return [entry for entry in self.folder.audit_log.entries() if entry.get("opened") == task]

    def _heed_cap(self, task: str) -> None:
        opened = [entry for entry in self._opened(task) if entry.get("round") != KEY_CHECK_ROUND]
        if len(opened) >= self._limits.max_rounds:
            raise PeerFault(
                Reason.ROUND_CAP, f"{len(opened)} rounds of {task} opened, {self._limits.max_rounds} are my most"
            )

    def _task(self, task: str) -> KnownTask:
        self.folder.tasks.require_open(task)
        if task not in self._known:
            self._known[task] = recalled_task(self.folder, self._schemes, task)
        return self._known[task]


def _label(round_number: int) -> bytes:
    return round_number.to_bytes(8, "little")
