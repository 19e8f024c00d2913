"""A key holder: makes its part of the joint key once a task, and opens one sum a round, once, over one roster.

What it refuses and what it did lie in its key folder: the record is fsynced before an answer leaves, and a restart
forgets nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fednode.errors import PeerFault
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.known import known_vector
from fednode.protocol.requests import (
    MAX_KEY_PART,
    KeyParts,
    TaskCard,
    frame_kind,
    read_ask,
    read_roster,
    read_spec,
    share_context,
)
from fednode.protocol.spec import KEY_CHECK_ROUND, RoundSpec
from fednode.wire import digest, join_parts, split_parts
from fednode_clients.consent import Limits
from fednode_clients.keyfolder import KeyFolder
from fednode_clients.tasks import (
    KnownTask,
    Schemes,
    key_context,
    recalled_task,
    scheme_of,
    verified_card,
    verified_task,
)
from fednode_crypto import CryptoError, Rng, Tampered
from fednode_crypto.identity import open_box, seal_box
from fednode_crypto.scheme import Contribution, HolderShare


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

    def __init__(self, folder: KeyFolder, limits: Limits, schemes: Schemes, rng: Rng) -> None:
        self.folder, self._limits, self._schemes, self._rng = folder, limits, schemes, rng
        self._known: dict[str, tuple[KnownTask, HolderShare]] = {}

    def handle(self, frame: bytes) -> Envelope:
        """The answer to any request that a holder knows. Raises `PeerFault` with the reason to refuse."""
        steps: Mapping[str, Callable[[bytes], Envelope]] = {
            "key-commit": self.commit,
            "key-reveal": self.reveal,
            "key-join": self.join,
            "key-check": self.seal_known,
            "open": self.open,
        }
        kind = frame_kind(frame)
        if kind not in steps:
            raise PeerFault("unexpected", f"a holder does not know {kind[:32]!r}")
        return steps[kind](frame)

    # --- the joint key

    def commit(self, frame: bytes) -> Envelope:
        """Draw a part of the joint key and commit to it: the same one however often it is asked."""
        task, parts = read_ask("key-commit", frame)
        card, me = verified_card(self.folder, task, parts)
        if me.role != "holder":
            raise PeerFault("not-a-holder", f"{self.folder.name} holds no keys")
        if card.sum_params.threshold * 2 <= card.sum_params.holders:
            raise PeerFault("low-threshold", f"{card.sum_params.threshold} of {card.sum_params.holders} is no majority")
        wanted = join_parts(card.parts())
        if self.folder.get(f"key-card/{task}") not in (None, wanted):
            raise PeerFault("second-key", f"{task} has another cohort or other parameters already")
        try:
            mine = self._contribution(card)
        except CryptoError as error:
            raise PeerFault("bad-parameters", str(error)) from error
        self.folder.put(f"key-card/{task}", wanted)
        return self._write("key-commitment", task, mine.commitment)

    def _contribution(self, card: TaskCard) -> Contribution:
        scheme = scheme_of(card, self._schemes)
        kept = self.folder.get(f"key-secret/{card.task}")
        if kept is not None:
            return scheme.restore_contribution(card.sum_params, key_context(card), kept)
        point = card.cohort.member(self.folder.name).point
        made = scheme.contribute(card.sum_params, key_context(card), point, self._rng)
        self.folder.put(f"key-secret/{card.task}", made.private_bytes())
        return made

    def reveal(self, frame: bytes) -> Envelope:
        """Show the part, now that all are committed, and box a share of its secret for each holder."""
        task, parts = read_ask("key-reveal", frame)
        card = self._card(task)
        committed = KeyParts.from_parts(parts).verified(card)
        if sorted(committed.commitments) != [holder.point for holder in card.cohort.holders]:
            raise PeerFault("bad-key-part", "not every holder is committed yet")
        heads = digest(
            "commitments", *(committed.commitments[p].signed.to_bytes() for p in sorted(committed.commitments))
        )
        if self.folder.get(f"key-heads/{task}") not in (None, heads):
            raise PeerFault("second-key", f"{task} was revealed under other commitments")
        self.folder.put(f"key-heads/{task}", heads)
        mine = self._contribution(card)
        if committed.commitments[card.cohort.member(self.folder.name).point].body != mine.commitment:
            raise PeerFault("bad-key-part", "that is not what I committed to")
        bundle = {"part": self._write("key-part", task, mine.reveal()).to_bytes()}
        for holder in card.cohort.holders:
            context = share_context(task, card.cohort, self.folder.name, holder.name)
            box = seal_box(holder.box_key, mine.shares()[holder.point], context)
            bundle[f"share-{holder.point}"] = self._write("key-share", task, box, {"to": holder.name}).to_bytes()
        return self._write("key-bundle", task, join_parts(bundle))

    def join(self, frame: bytes) -> Envelope:
        """Check every part against its commitment, open the boxes, keep the share of the sum of all secrets."""
        task, parts = read_ask("key-join", frame)
        card = self._card(task)
        known = verified_task(self.folder, self._schemes, task, card.parts() | _without_shares(parts))
        shares = {holder.point: self._share(card, holder.name, holder.point, parts) for holder in card.cohort.holders}
        try:
            share = known.scheme.join(card.sum_params, key_context(card), shares)
        except CryptoError as error:
            raise PeerFault("bad-share", str(error)) from error
        self.folder.put(f"share/{task}", share.private_bytes())
        self.folder.drop(f"key-secret/{task}")
        self._known[task] = (known, share)
        return self._write("key-joined", task, b"", {"key": known.key.digest().hex()})

    def _share(self, card: TaskCard, name: str, point: int, parts: Mapping[str, bytes]) -> bytes:
        label = f"share-{point}"
        if label not in parts:
            raise PeerFault("bad-share", f"the share of {name} is missing")
        envelope = Envelope.from_bytes(parts[label], MAX_KEY_PART)
        member = envelope.signed.verified(card.cohort)
        head = envelope.head
        if (member.name, head.kind, head.task) != (name, "key-share", card.task) or envelope.about.text(
            "to"
        ) != self.folder.name:
            raise PeerFault("bad-share", f"{label} is not what {name} boxed for me")
        try:
            return open_box(
                self.folder.box_key, envelope.body, share_context(card.task, card.cohort, name, self.folder.name)
            )
        except Tampered as error:
            raise PeerFault("bad-share", f"the box of {name} does not open") from error

    def seal_known(self, frame: bytes) -> Envelope:
        """Seal the known vector under the new key, so that it is tried before a client trusts it."""
        spec, _ = read_spec("key-check", frame)
        known, _ = self._task(spec.task)
        known.check(spec)
        if spec.round != KEY_CHECK_ROUND:
            raise PeerFault("not-a-client", "a holder sends no updates")
        values = known_vector(spec.sum_params, key_context(known.card))
        payload = known.scheme.sealer(spec.sum_params, known.key).seal(values, self._rng)
        return self.folder.signer.write("update", Topic(spec.task, spec.round, spec.digest()), payload)

    # --- opening

    def open(self, frame: bytes) -> Envelope:
        """This holder's part of the sum over one roster, the same bytes if the very same is asked again.

        Raises `PeerFault`: what `Limits.check` raises, "another-task", "stranger", "bad-signature", "repeated",
        "another-spec", "min-survivors", "already-opened", "round-cap", or "bad-request". The record is on disk before
        the answer exists.
        """
        spec, parts = read_spec("open", frame)
        known, share = self._task(spec.task)
        known.check(spec)
        roster, request = parts.get("roster", b""), parts.get("request", b"")
        self._check_roster(known, spec, read_roster(roster))
        if len(request) != spec.sum_params.request_bytes:
            raise PeerFault("bad-request", f"{len(request)} bytes to open, {spec.sum_params.request_bytes} are a sum")
        opening = _Opening(
            spec.task, spec.round, spec.digest(), digest("roster", roster), digest("open-request", request)
        )
        body = self._earlier(opening)
        if body is None:
            try:
                body = known.scheme.answer(spec.sum_params, share, request, self._rng)
            except Tampered as error:
                raise PeerFault("bad-request", str(error)) from error
            self.folder.record(opening.entry())
            self.folder.put(f"answer/{spec.task}", opening.request + opening.roster + body)
        about = {"point": known.me.point, "roster": opening.roster.hex(), "request": opening.request.hex()}
        return self.folder.signer.write("answer", Topic(spec.task, spec.round, opening.spec), body, about)

    def _check_roster(self, known: KnownTask, spec: RoundSpec, roster: tuple[Signed, ...]) -> None:
        wanted_role = "holder" if spec.round == KEY_CHECK_ROUND else "client"
        if spec.round != KEY_CHECK_ROUND:
            self._limits.check(spec)
        names = [signed.head.sender for signed in roster]
        if len(set(names)) != len(names):
            raise PeerFault("repeated", "the roster names a member twice")
        least = (
            known.card.sum_params.holders
            if wanted_role == "holder"
            else max(spec.terms.min_survivors, self._limits.min_survivors)
        )
        if len(names) < least:
            raise PeerFault("min-survivors", f"{len(names)} updates in the roster, {least} are the least")
        if len(names) > spec.sum_params.summands:
            raise PeerFault("too-many", f"{len(names)} updates, the sum has room for {spec.sum_params.summands}")
        for signed in roster:
            member = signed.verified(known.card.cohort)
            if member.role != wanted_role:
                raise PeerFault("stranger", f"{member.name} is no {wanted_role}")
            head = signed.head
            if (head.kind, head.task, head.round, head.spec) != ("update", spec.task, spec.round, spec.digest()):
                raise PeerFault("another-spec", f"{member.name} sent an update for another spec")

    def _earlier(self, opening: _Opening) -> bytes | None:
        """The bytes of the same answer given before, or None if the round was never opened."""
        opened = [entry for entry in self.folder.recorded() if entry.get("opened") == opening.task]
        for entry in opened:
            if entry.get("round") == opening.round:
                kept = self.folder.get(f"answer/{opening.task}")
                if entry == opening.entry() and kept is not None and kept[:64] == opening.request + opening.roster:
                    return kept[64:]
                raise PeerFault(
                    "already-opened", f"round {opening.round} of {opening.task} was opened before, once is all there is"
                )
        if len(opened) > self._limits.max_rounds:
            raise PeerFault(
                "round-cap", f"{len(opened)} rounds of {opening.task} opened, {self._limits.max_rounds} are my most"
            )
        return None

    # --- what is known

    def _write(self, kind: str, task: str, body: bytes, about: Mapping[str, object] | None = None) -> Envelope:
        return self.folder.signer.write(kind, Topic(task), body, about)

    def _card(self, task: str) -> TaskCard:
        kept = self.folder.get(f"key-card/{task}")
        if kept is None:
            raise PeerFault("unknown-task", f"{self.folder.name} was never asked to commit to {task}")
        return TaskCard.from_parts(task, split_parts(kept, 2))

    def _task(self, task: str) -> tuple[KnownTask, HolderShare]:
        if task not in self._known:
            kept = self.folder.get(f"share/{task}")
            if kept is None:
                raise PeerFault("unknown-task", f"{self.folder.name} has no share of a key for {task}")
            known = recalled_task(self.folder, self._schemes, task)
            share = known.scheme.restore_share(known.card.sum_params, key_context(known.card), kept)
            self._known[task] = (known, share)
        return self._known[task]


def _without_shares(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in parts.items() if name.startswith(("commitment-", "reveal-"))}
