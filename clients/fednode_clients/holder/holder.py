"""A key holder: opens one sum a round, once, over one roster that enough holders signed before.

Its record is in its key folder, so a restart forgets nothing.
"""

from collections.abc import Callable, Collection, Mapping

from fednode.errors import PeerFault
from fednode.protocol.boxkeys import BOX_KEY, about_keys, key_tree
from fednode.protocol.complaints import Court, read_complaints
from fednode.protocol.confirmations import CONFIRMED, Confirmations, about_roster
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.ledger_mark import LEDGER, LedgerMark
from fednode.protocol.requests import frame_kind, read_ask, read_roster, read_round_request, read_spec
from fednode.protocol.spec import KEY_CHECK_ROUND, RoundSpec
from fednode.reasons import Reason
from fednode.wire import canonical, digest, split_parts
from fednode_clients.holder.box_store import BoxStore, boxed_scheme
from fednode_clients.holder.ceremony import KeyCeremony, keyed
from fednode_clients.holder.roster import check_roster
from fednode_clients.keyfolder.audit_log import damaged
from fednode_clients.keyfolder.exclusive import exclusive
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.tasks import KnownTask, Schemes, recalled_task, topic, verified_task
from fednode_clients.limits import MemberLimits
from fednode_crypto import Rng, Tampered


class Holder:
    """One holder on one machine, with its own limits."""

    def __init__(self, folder: KeyFolder, limits: MemberLimits, schemes: Schemes, rng: Rng) -> None:
        self.folder, self._limits, self._schemes, self._rng = folder, limits, schemes, rng
        self._ceremony = KeyCeremony(folder, limits, schemes, rng)
        self._boxes = BoxStore(folder)
        self._known: dict[str, KnownTask] = {}

    def handle(self, frame: bytes) -> Envelope:
        """The answer to any request that a holder knows. Raises `PeerFault` with the reason to refuse."""
        steps: Mapping[str, Callable[[bytes], Envelope]] = {
            **self._ceremony.steps(),
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
        # two requests at once are answered one after the other
        with exclusive(self.folder):
            if kind != "close":
                # a lost record must show before a round depends on this holder; destroying a key is always right
                self.folder.audit_log.settle()
            return steps[kind](frame)

    # --- boxed shares

    def take_task(self, frame: bytes) -> Envelope:
        """Check a task of a boxed scheme, keep it, answer "ready". Raises `PeerFault`."""
        task, parts = read_ask("task", frame)
        known = verified_task(self.folder, self._schemes, self._limits, task, parts)
        if known.me.role != "holder":
            raise PeerFault(Reason.NOT_A_HOLDER, f"{self.folder.name} holds no keys")
        self._known[task] = known
        return self.folder.signer.write("ready", Topic(task))

    def box_key(self, frame: bytes) -> Envelope:
        """This round's fresh public keys, one for each client, under one signed root.

        Raises `PeerFault`: PAST_ROUND, ALREADY_OPENED, ROUND_CLOSED, ROUND_CAP.
        """
        task, number = read_round_request("box-key", frame)
        self._require_boxes(task, number)
        self._require_unopened(task, number)
        self._require_below_cap(task)
        seed, count = self._boxes.seed(task, number), len(self._task(task).card.cohort.clients)
        keys = [seed.key(index).public.raw for index in range(count)]
        return self.folder.signer.write(BOX_KEY, Topic(task, number), b"".join(keys), about_keys(key_tree(keys)))

    def close_round(self, frame: bytes) -> Envelope:
        """Destroy the key and the boxes of an unopened round: it is never opened here.

        Raises `PeerFault`: UNEXPECTED under a scheme without boxes, ROUND_CAP.
        """
        task, number = read_round_request("close", frame)
        self._require_boxes(task, number)
        self._boxes.close(task, number)
        return self.folder.signer.write("closed", Topic(task, number))

    def take_boxes(self, frame: bytes) -> Envelope:
        """Keep this round's boxes, and strike the clients whose box is wrong, each with the secret key of that box.

        Raises `PeerFault` as `open` does.
        """
        spec, parts = read_spec("boxes", frame)
        known, heads = self._checked_roster(spec, parts)
        boxes = split_parts(parts.get("boxes", b""), known.card.sum_params.summands)
        struck = {name: key.hex() for name, key in self._boxes.take(known, spec, heads, boxes).items()}
        about = {"roster": digest("roster", parts["roster"]).hex()}
        return self.folder.signer.write("checked", topic(spec), canonical({"struck": struck}), about)

    def confirm(self, frame: bytes) -> Envelope:
        """Sign the final roster of a round: one a round, recorded before the answer leaves.

        The complaints of other holders come with it, and this holder judges each. Raises `PeerFault` as `open` does,
        ALREADY_CONFIRMED, BAD_REQUEST if the box of a client is missing here or a complaint shows nothing against its
        client, and the reason against a client that the roster still holds.
        """
        spec, parts = read_spec("confirm", frame)
        known, heads = self._checked_roster(spec, parts)
        if not known.scheme.boxed:
            raise PeerFault(Reason.UNEXPECTED, "this scheme's rosters are not confirmed")
        self._hear(known, spec, parts, {signed.head.sender for signed in heads})
        roster = digest("roster", parts["roster"])
        self._require_unopened(spec.task, spec.round)
        entry = self._require_not_another(spec, roster)
        if entry is None:
            self._require_below_cap(spec.task)
            # a holder that could not open the roster must not let the round be charged
            self._boxes.require(spec, [signed.head.sender for signed in heads])
            entry = {"confirmed": spec.task, "round": spec.round, "spec": spec.digest().hex(), "roster": roster.hex()}
            entry[LEDGER] = self._ledger_in(parts)
            self.folder.audit_log.append(entry)
        return self.folder.signer.write(CONFIRMED, topic(spec), b"", about_roster(roster, entry[LEDGER]))

    def _ledger_in(self, parts: Mapping[str, bytes]) -> list[object]:
        """How far the node's ledger is, if it is still the one of this record. Raises `PeerFault` ANOTHER_LEDGER."""
        mark = LedgerMark.from_parts(parts)
        mark.require_among(self.folder.audit_log.entries())
        return mark.entry()

    def _hear(self, known: KnownTask, spec: RoundSpec, parts: Mapping[str, bytes], roster: Collection[str]) -> None:
        """Judge the complaints that come with a roster. Raises `PeerFault`."""
        court = Court.from_parts(spec, known.card.cohort, boxed_scheme(known), parts)
        for complaint in read_complaints(parts, len(court.indices)):
            client, verdict = complaint.head.head.sender, court.judge(complaint)
            if verdict.member != client:
                # no holder is named: it signs its complaints for the node, which may have made this one up
                raise PeerFault(Reason.BAD_REQUEST, f"a complaint shows nothing against {client}")
            if client in roster:
                raise PeerFault(verdict.reason, f"the roster still holds {client}")

    # --- opening

    def open(self, frame: bytes) -> Envelope:
        """This holder's part of the sum over one roster; the same request gets the same bytes again.

        Under a boxed scheme the request brings the confirmations of enough holders. The record is on disk before the
        answer leaves. Raises `PeerFault`: what `MemberLimits.check`, `check_roster` and `Confirmations.verified` raise,
        ANOTHER_TASK, NOT_CONFIRMED, ALREADY_CONFIRMED, ALREADY_OPENED, ROUND_CAP or BAD_REQUEST.
        """
        spec, parts = read_spec("open", frame)
        known, heads = self._checked_roster(spec, parts)
        request, wanted = parts.get("request", b""), spec.sum_params.request_bytes
        if len(request) != wanted:
            raise PeerFault(Reason.BAD_REQUEST, f"{len(request)} bytes to open, expected {wanted}")
        named = (digest("open-request", request), digest("roster", parts["roster"]))
        body, ledger = self._earlier(spec, *named)
        if body is None:
            if known.scheme.boxed:
                self._require_confirmed(known, spec, parts, named[1])
            ledger = self._ledger_in(parts)
            body = self._answer(known, spec, heads, request)
            self.folder.audit_log.append(_opened_entry(spec, *named) | {LEDGER: ledger})
            self.folder.state.put(f"answer/{spec.task}", _answer_head(spec, *named) + body)
        if known.scheme.boxed:
            # also when the answer is repeated: the process may have died between the record and this
            self._boxes.close(spec.task, spec.round)
        about = {"point": known.me.point, "roster": named[1].hex(), "request": named[0].hex(), LEDGER: ledger}
        return self.folder.signer.write("answer", topic(spec), body, about)

    def _checked_roster(self, spec: RoundSpec, parts: Mapping[str, bytes]) -> tuple[KnownTask, tuple[Signed, ...]]:
        known = self._task(spec.task)
        known.check(spec)
        if "roster" not in parts:
            raise PeerFault(Reason.BAD_REQUEST, "there is no roster")
        heads = read_roster(parts["roster"], known.card.sum_params.summands)
        check_roster(known, self._limits, spec, heads)
        return known, heads

    def _require_confirmed(self, known: KnownTask, spec: RoundSpec, parts: Mapping[str, bytes], roster: bytes) -> None:
        cohort, needed = known.card.cohort, known.card.sum_params.threshold
        count = len(Confirmations.from_parts(parts, cohort).verified(cohort, topic(spec), roster))
        if count < needed:
            raise PeerFault(Reason.NOT_CONFIRMED, f"{count} holders confirmed this roster, {needed} are needed")
        self._require_not_another(spec, roster)

    def _require_not_another(self, spec: RoundSpec, roster: bytes) -> dict[str, object] | None:
        """The record of having confirmed this roster, or None. Raises `PeerFault` ALREADY_CONFIRMED for another one."""
        entries = self.folder.audit_log.of("confirmed", spec.task)
        earlier = next((entry for entry in entries if entry.get("round") == spec.round), None)
        wanted = (roster.hex(), spec.digest().hex())
        if earlier is not None and (earlier.get("roster"), earlier.get("spec")) != wanted:
            raise PeerFault(Reason.ALREADY_CONFIRMED, f"round {spec.round} of {spec.task}, with another roster")
        return earlier

    def _answer(self, known: KnownTask, spec: RoundSpec, heads: tuple[Signed, ...], request: bytes) -> bytes:
        if known.scheme.boxed:
            return self._boxes.answer(known, spec, [signed.head.sender for signed in heads])
        try:
            _, share = self._ceremony.share(spec.task)
            return keyed(known.card, self._schemes).answer(spec.sum_params, share, request, self._rng)
        except Tampered as error:
            raise PeerFault(Reason.BAD_REQUEST, str(error)) from error

    def _earlier(self, spec: RoundSpec, request: bytes, roster: bytes) -> tuple[bytes | None, object]:
        """The same answer given before and the ledger's mark with it, or None if the round was never opened.

        Raises `PeerFault` ALREADY_OPENED.
        """
        kept = self.folder.state.get(f"answer/{spec.task}") or b""
        opened = self.folder.audit_log.of("opened", spec.task)
        if kept and int.from_bytes(kept[:8], "little") not in [entry.get("round") for entry in opened]:
            raise damaged(self.folder.path, "the record does not hold what was answered")
        head, wanted = _answer_head(spec, request, roster), _opened_entry(spec, request, roster).items()
        again = next((entry for entry in opened if wanted <= entry.items()), None) if kept.startswith(head) else None
        if again is not None:
            return kept[len(head) :], again.get(LEDGER)
        self._require_unopened(spec.task, spec.round)
        self._require_below_cap(spec.task)
        return None, None

    # --- limits

    def _require_boxes(self, task: str, number: int) -> None:
        """Raise ROUND_CAP too: otherwise anybody could move every round of a task into the past."""
        if not self._task(task).scheme.boxed:
            raise PeerFault(Reason.UNEXPECTED, "this scheme has no boxes")
        if number > self._limits.max_rounds:
            raise PeerFault(Reason.ROUND_CAP, f"round {number} of {task}, my maximum is {self._limits.max_rounds}")

    def _require_unopened(self, task: str, number: int) -> None:
        if any(entry.get("round") == number for entry in self.folder.audit_log.of("opened", task)):
            raise PeerFault(Reason.ALREADY_OPENED, f"round {number} of {task} was opened before")

    def _require_below_cap(self, task: str) -> None:
        opened = self.folder.audit_log.of("opened", task)
        count = sum(entry.get("round") != KEY_CHECK_ROUND for entry in opened)
        if count >= self._limits.max_rounds:
            raise PeerFault(Reason.ROUND_CAP, f"{count} rounds of {task} opened, my maximum")

    def _task(self, task: str) -> KnownTask:
        self.folder.tasks.require_open(task)
        if task not in self._known:
            self._known[task] = recalled_task(self.folder, self._schemes, self._limits, task)
        self.folder.cohorts.require_current(self._known[task].card.cohort)
        return self._known[task]


def _opened_entry(spec: RoundSpec, request: bytes, roster: bytes) -> dict[str, object]:
    """The record of an opening: the same again is harmless, anything else is a second opening."""
    return {
        "opened": spec.task,
        "round": spec.round,
        "spec": spec.digest().hex(),
        "roster": roster.hex(),
        "request": request.hex(),
    }


def _answer_head(spec: RoundSpec, request: bytes, roster: bytes) -> bytes:
    return spec.round.to_bytes(8, "little") + request + roster
