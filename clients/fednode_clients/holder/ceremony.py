"""A holder's side of the key ceremony, once per task of a keyed scheme: commit, reveal, join, test a known vector."""

from collections.abc import Callable, Mapping

from fednode.errors import PeerFault, StoreError
from fednode.protocol.envelope import Envelope, Topic
from fednode.protocol.key_check import known_vector
from fednode.protocol.requests import MAX_KEY_PART, KeyParts, TaskCard, read_ask, read_spec, share_context
from fednode.protocol.spec import KEY_CHECK_ROUND
from fednode.reasons import Reason
from fednode.wire import join_parts, split_parts
from fednode_clients.keyfolder.audit_log import damaged
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.tasks import KnownTask, Schemes, recalled_task, scheme_of, verified_card, verified_task
from fednode_clients.limits import MemberLimits
from fednode_crypto import CryptoError, KeyedScheme, Rng, Tampered
from fednode_crypto.identity import open_box, seal_box
from fednode_crypto.interfaces import Contribution, HolderShare


class KeyCeremony:
    """Makes one holder's parts of joint keys, and keeps its shares in the key folder."""

    def __init__(self, folder: KeyFolder, limits: MemberLimits, schemes: Schemes, rng: Rng) -> None:
        self.folder, self._limits, self._schemes, self._rng = folder, limits, schemes, rng
        self._known: dict[str, tuple[KnownTask, HolderShare]] = {}

    def steps(self) -> Mapping[str, Callable[[bytes], Envelope]]:
        """The method that answers each kind of request."""
        return {
            "key-commit": self.commit,
            "key-reveal": self.reveal,
            "key-join": self.join,
            "key-check": self.seal_known,
        }

    def commit(self, frame: bytes) -> Envelope:
        """Draw a part of the joint key and commit to it; asked again, commit to the same part."""
        task, parts = read_ask("key-commit", frame)
        card, me = verified_card(self.folder, self._limits, task, parts)
        if me.role != "holder":
            raise PeerFault(Reason.NOT_A_HOLDER, f"{self.folder.name} holds no keys")
        if self.folder.state.get(f"share/{task}") is not None:
            raise PeerFault(Reason.ALREADY_JOINED, f"{self.folder.name} has its share of the key of {task}")
        wanted = join_parts(card.parts())
        if self.folder.state.get(f"key-card/{task}") not in (None, wanted):
            raise PeerFault(Reason.SECOND_KEY, f"{task} has another cohort or other parameters already")
        try:
            mine = self._contribution(card)
        except CryptoError as error:
            raise PeerFault(Reason.BAD_PARAMETERS, str(error)) from error
        self.folder.state.put(f"key-card/{task}", wanted)
        return self._write("key-commitment", task, mine.commitment)

    def _contribution(self, card: TaskCard) -> Contribution:
        scheme = keyed(card, self._schemes)
        kept = self.folder.state.get(f"key-secret/{card.task}")
        if kept is not None:
            try:
                return scheme.restore_contribution(card.sum_params, card.key_context(), kept)
            except Tampered as error:
                raise _damaged(self.folder, card.task) from error
        point = card.cohort.member(self.folder.name).point
        made = scheme.contribute(card.sum_params, card.key_context(), point, self._rng)
        self.folder.audit_log.settle()
        self.folder.tasks.admit(card.task, self._limits.max_tasks)
        self.folder.state.put(f"key-secret/{card.task}", made.private_bytes())
        return made

    def reveal(self, frame: bytes) -> Envelope:
        """Once all holders are committed, reveal the part and box a share of its secret for each holder."""
        task, parts = read_ask("key-reveal", frame)
        card = self._card(task)
        committed = KeyParts.from_parts(parts).verified(card)
        if sorted(committed.commitments) != [holder.point for holder in card.cohort.holders]:
            raise PeerFault(Reason.BAD_KEY_PART, "not every holder is committed yet")
        heads = committed.commitments_digest()
        if self.folder.state.get(f"key-heads/{task}") not in (None, heads):
            raise PeerFault(Reason.SECOND_KEY, f"{task} was revealed under other commitments")
        self.folder.state.put(f"key-heads/{task}", heads)
        mine = self._contribution(card)
        if committed.commitments[card.cohort.member(self.folder.name).point].body != mine.commitment:
            raise PeerFault(Reason.BAD_KEY_PART, "the commitment listed for me is not mine")
        bundle = {"part": self._write("key-part", task, mine.reveal(), {"commitments": heads.hex()}).to_bytes()}
        for holder in card.cohort.holders:
            context = share_context(task, card.cohort, self.folder.name, holder.name)
            box = seal_box(holder.box_key, mine.shares()[holder.point], context)
            bundle[f"share-{holder.point}"] = self._write("key-share", task, box, {"to": holder.name}).to_bytes()
        return self._write("key-bundle", task, join_parts(bundle))

    def join(self, frame: bytes) -> Envelope:
        """Check each part against its commitment, open the boxes, keep this holder's share of the joint secret."""
        task, parts = read_ask("key-join", frame)
        card = self._card(task)
        known = verified_task(self.folder, self._schemes, self._limits, task, card.parts() | _without_shares(parts))
        shares = {holder.point: self._share(card, holder.name, holder.point, parts) for holder in card.cohort.holders}
        try:
            share = keyed(card, self._schemes).join(card.sum_params, card.key_context(), shares)
        except CryptoError as error:
            raise PeerFault(Reason.BAD_SHARE, str(error)) from error
        if self.folder.state.get(f"share/{task}") not in (None, share.private_bytes()):
            raise PeerFault(Reason.SECOND_KEY, f"{task} was joined with other shares")
        self.folder.state.put(f"share/{task}", share.private_bytes())
        self.folder.state.drop(f"key-secret/{task}")
        self._known[task] = (known, share)
        return self._write("key-joined", task, b"", {"key": known.key_digest().hex()})

    def _share(self, card: TaskCard, name: str, point: int, parts: Mapping[str, bytes]) -> bytes:
        label = f"share-{point}"
        if label not in parts:
            raise PeerFault(Reason.BAD_SHARE, f"the share of {name} is missing")
        envelope = Envelope.from_bytes(parts[label], MAX_KEY_PART)
        member = envelope.signed.verified(card.cohort)
        head = envelope.head
        if (member.name, head.kind, head.task) != (name, "key-share", card.task) or envelope.about.text(
            "to"
        ) != self.folder.name:
            raise PeerFault(Reason.BAD_SHARE, f"{label} is not what {name} boxed for me")
        try:
            return open_box(
                self.folder.box_key, envelope.body, share_context(card.task, card.cohort, name, self.folder.name)
            )
        except Tampered as error:
            raise PeerFault(Reason.BAD_SHARE, f"the box of {name} does not open") from error

    def seal_known(self, frame: bytes) -> Envelope:
        """Seal the known vector under the new key, to test the key before a client uses it."""
        spec, _ = read_spec("key-check", frame)
        known, _ = self.share(spec.task)
        known.check(spec)
        if spec.round != KEY_CHECK_ROUND:
            raise PeerFault(Reason.NOT_A_CLIENT, "a holder sends no updates")
        values = known_vector(spec.sum_params, known.card.key_context())
        payload = known.scheme.sealer(spec.sum_params, known.key).seal(values, self._rng, spec.digest()).payload
        return self.folder.signer.write("update", Topic(spec.task, spec.round, spec.digest()), payload)

    def share(self, task: str) -> tuple[KnownTask, HolderShare]:
        """The task and this holder's share of its key. Raises `PeerFault` UNKNOWN_TASK if it never joined."""
        self.folder.tasks.require_open(task)
        if task not in self._known:
            kept = self.folder.state.get(f"share/{task}")
            if kept is None:
                raise PeerFault(Reason.UNKNOWN_TASK, f"{self.folder.name} has no share of a key for {task}")
            known = recalled_task(self.folder, self._schemes, self._limits, task)
            card, scheme = known.card, keyed(known.card, self._schemes)
            try:
                share = scheme.restore_share(card.sum_params, card.key_context(), kept)
            except Tampered as error:
                raise _damaged(self.folder, task) from error
            self._known[task] = (known, share)
        self.folder.cohorts.require_current(self._known[task][0].card.cohort)
        return self._known[task]

    def _write(self, kind: str, task: str, body: bytes, about: Mapping[str, object] | None = None) -> Envelope:
        return self.folder.signer.write(kind, Topic(task), body, about)

    def _card(self, task: str) -> TaskCard:
        self.folder.tasks.require_open(task)
        kept = self.folder.state.get(f"key-card/{task}")
        if kept is None:
            raise PeerFault(Reason.UNKNOWN_TASK, f"{self.folder.name} was never asked to commit to {task}")
        card = TaskCard.from_parts(task, split_parts(kept, 2), self.folder.enrolment_key)
        self.folder.cohorts.require_current(card.cohort)
        self._limits.check_sum(card.sum_params)
        return card


def keyed(card: TaskCard, schemes: Schemes) -> KeyedScheme:
    """The card's scheme. Raises `PeerFault` UNEXPECTED if it has no joint key."""
    scheme = scheme_of(card, schemes)
    if scheme.boxed:
        raise PeerFault(Reason.UNEXPECTED, f"scheme {card.sum_params.scheme} has no joint key")
    return scheme


def _damaged(folder: KeyFolder, task: str) -> StoreError:
    return damaged(folder.path, f"the secret of {task} is damaged")


def _without_shares(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in parts.items() if name.startswith(("commitment-", "reveal-"))}
