"""A client: takes a task, judges each round by its own limits, and sends one sealed update a round, the same bytes on
a retry."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fednode.errors import PeerFault, one_line
from fednode.protocol.boxkeys import BoxKeys, box_context, box_name
from fednode.protocol.cohort import Member
from fednode.protocol.envelope import Envelope, Topic
from fednode.protocol.model import BASIS, Basis
from fednode.protocol.requests import read_ask
from fednode.protocol.spec import KEY_CHECK_ROUND, RoundSpec
from fednode.reasons import Reason
from fednode_clients.client.model_copy import Chunks, ModelCopy, ModelCopyStore
from fednode_clients.client.privatise import ClippedSum, add_noise, bound, seal
from fednode_clients.keyfolder.audit_log import damaged
from fednode_clients.keyfolder.exclusive import exclusive
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.tasks import KnownTask, Schemes, recalled_task, verified_task
from fednode_clients.limits import MemberLimits
from fednode_crypto import Rng
from fednode_crypto.identity import BoxPublicKey, seal_box
from fednode_crypto.interfaces import Sealer

HolderKeys = Mapping[int, tuple[Member, BoxPublicKey]]
"""Whom shares are boxed for in a round, by Shamir point."""


@dataclass(frozen=True, slots=True)
class _Consent:
    """A round that may be joined: whom to box for, and which model the update is computed from."""

    keys: HolderKeys
    basis: Basis


class Client:
    """One client on one machine. What it promised and sent lies in its key folder, so a restart changes nothing."""

    def __init__(self, folder: KeyFolder, limits: MemberLimits, schemes: Schemes, rng: Rng) -> None:
        self.folder, self._limits, self._schemes, self._rng = folder, limits, schemes, rng
        self._known: dict[str, tuple[KnownTask, Sealer]] = {}
        self._agreed: dict[bytes, _Consent] = {}
        self._copies = ModelCopyStore(folder)

    def take_task(self, frame: bytes) -> Envelope:
        """Check a task and its joint key, keep them, say "ready". Raises `PeerFault` with the reason to refuse."""
        task, parts = read_ask("task", frame)
        self._remember(verified_task(self.folder, self._schemes, task, parts, self._limits.max_tasks))
        return self.folder.signer.write("ready", Topic(task))

    def join(self, spec: RoundSpec, parts: Mapping[str, bytes], chunks: Chunks) -> ModelCopy | bytes:
        """The model to train from, if the round may be joined; or the update that was sealed for this very spec before.

        `parts` are what came with the spec: the model's outline and, where the scheme has boxes, the holders' keys for
        this round; `chunks` are those of the model that came. Raises `PeerFault`: what `MemberLimits.check`,
        `BoxKeys.verified`, `KnownTask.check` and `ModelCopyStore.take` raise, "second-spec" for one that it
        joined under another spec, "round-cap" if it has joined as many rounds of the task as it ever will,
        "past-round", "not-a-client"; `StoreError` if its record is lost, also where it would only repeat itself.
        """
        known = self._willing(spec)
        self.folder.audit_log.entries()
        sealed = self._sealed_for(spec)
        if sealed is not None:
            # it is sent again, whether the model is still here or not
            self._box_keys(known, spec, parts)
            return sealed
        copy = self._copies.take(known.card, spec, parts, chunks)
        earlier = self._agree(spec, parts, copy.basis)
        return copy if earlier is None else earlier

    def _willing(self, spec: RoundSpec) -> KnownTask:
        known, _ = self._task(spec.task)
        known.check(spec)
        self._limits.check(spec, len(known.card.cohort.clients))
        if known.me.role != "client" or spec.round == KEY_CHECK_ROUND:
            raise PeerFault(Reason.NOT_A_CLIENT, f"{self.folder.name} sends no updates in round {spec.round}")
        return known

    def _agree(self, spec: RoundSpec, parts: Mapping[str, bytes], basis: Basis) -> bytes | None:
        known, _ = self._task(spec.task)
        keys = self._box_keys(known, spec, parts)
        earlier = self._earlier(spec)
        if earlier is None:
            self._agreed = {spec.digest(): _Consent(keys, basis)}
        return earlier

    def _box_keys(self, known: KnownTask, spec: RoundSpec, parts: Mapping[str, bytes]) -> HolderKeys:
        """The key of each holder that is there, signed for this round and named by the spec; none without boxes."""
        if not known.scheme.boxed:
            return {}
        keys = BoxKeys.from_parts(parts, known.card.cohort)
        verified = keys.verified(known.card.cohort, spec.task, spec.round)
        if keys.digest() != spec.key_digest or len(verified) < spec.sum_params.threshold:
            raise PeerFault(
                Reason.BAD_BOX_KEY, f"{len(verified)} keys, and not those that the round names, or too few to open"
            )
        return verified

    def _sealed_for(self, spec: RoundSpec) -> bytes | None:
        sealed = self.folder.state.get(f"sealed/{spec.task}")
        return sealed[32:] if sealed is not None and sealed[:32] == spec.digest() else None

    def _earlier(self, spec: RoundSpec) -> bytes | None:
        again = self._sealed_for(spec)
        if again is not None:
            return again
        sealed = self.folder.state.get(f"sealed/{spec.task}")
        joined = [entry for entry in self.folder.audit_log.entries() if entry.get("joined") == spec.task]
        if sealed is not None and sealed[:32].hex() not in [entry.get("spec") for entry in joined]:
            raise damaged(self.folder.path, "the record does not hold what was sealed")
        if any(entry.get("round") == spec.round for entry in joined):
            raise PeerFault(
                Reason.SECOND_SPEC, f"I joined round {spec.round} of {spec.task} under another spec or sent it already"
            )
        if len(joined) >= self._limits.max_rounds:
            raise PeerFault(
                Reason.ROUND_CAP, f"{len(joined)} rounds of {spec.task} joined, {self._limits.max_rounds} are my most"
            )
        _require_later(spec, joined)
        return None

    def answer(self, spec: RoundSpec, total: ClippedSum) -> bytes:
        """Bound, round, noise, seal, sign; on disk before it is returned.

        If another process of this client sealed the round since it was joined, the bytes that were sealed there. Raises
        `PeerFault("no-consent")` for a spec that `join` did not pass, or that was answered since, "second-spec" or
        "round-cap" for one that was overtaken, and `ValueError` or `Overflow` for a sum that no honest training gives;
        nothing is sent then.
        """
        if spec.digest() not in self._agreed:
            raise PeerFault(Reason.NO_CONSENT, f"round {spec.round} of {spec.task} was not joined under this spec")
        with exclusive(self.folder):
            earlier = self._earlier(spec)
            return self._sealed(spec, total) if earlier is None else earlier

    def _sealed(self, spec: RoundSpec, total: ClippedSum) -> bytes:
        _, sealer = self._task(spec.task)
        noised = add_noise(bound(total, spec.terms), spec.terms, self._rng)
        sealed = seal(noised, spec, sealer, self._rng)
        topic = Topic(spec.task, spec.round, sealed.spec_digest)
        consent = self._agreed[topic.spec]
        attached = {
            box_name(point): seal_box(key, sealed.shares[point], box_context(topic.spec, self.folder.name, holder))
            for point, (holder, key) in consent.keys.items()
        }
        if spec.terms.staleness:
            attached[BASIS] = consent.basis.to_bytes()
        frame = self.folder.signer.write("update", topic, sealed.payload, attached=attached).to_bytes()
        # the record first: after a crash in between, the round counts as joined and is never sealed a second time
        del self._agreed[topic.spec]
        self.folder.audit_log.append(
            {
                "joined": spec.task,
                "round": spec.round,
                "version": spec.model_version,
                "spec": sealed.spec_digest.hex(),
            }
        )
        self.folder.state.put(f"sealed/{spec.task}", sealed.spec_digest + frame)
        return frame

    def refuse(self, spec: RoundSpec, fault: PeerFault) -> bytes:
        """A signed refusal that says why."""
        return refusal(self.folder, Topic(spec.task, spec.round, spec.digest()), fault)

    def _task(self, task: str) -> tuple[KnownTask, Sealer]:
        self.folder.tasks.require_open(task)
        if task not in self._known:
            self._remember(recalled_task(self.folder, self._schemes, task))
        return self._known[task]

    def _remember(self, known: KnownTask) -> None:
        self._known[known.card.task] = (known, known.scheme.sealer(known.card.sum_params, known.key))


def _require_later(spec: RoundSpec, joined: Iterable[Mapping[str, object]]) -> None:
    """Return if round and model version are no earlier than in any round joined before.

    Both are the node's word, but the same word to all who join: whoever sets one back for somebody left behind is
    refused by those who went on. Raises `PeerFault("past-round")`.
    """
    for entry in joined:
        number, version = int(str(entry["round"])), int(str(entry.get("version", 0)))
        if number > spec.round or version > spec.model_version:
            raise PeerFault(
                Reason.PAST_ROUND,
                f"round {spec.round} with model {spec.model_version}, I joined round {number} with model {version}",
            )


def refusal(folder: KeyFolder, topic: Topic, fault: PeerFault) -> bytes:
    """A signed "no" with its reason, for any request."""
    said = {"reason": one_line(fault.reason, 64), "detail": one_line(fault.detail or fault.reason, 512)}
    about = {name: words or "no reason given" for name, words in said.items()}
    return folder.signer.write("refusal", topic, about=about).to_bytes()
