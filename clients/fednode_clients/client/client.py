"""A client: takes a task, checks each round against its own limits, and sends one sealed update a round.

Asked again, it sends the same bytes.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fednode.errors import PeerFault, one_line
from fednode.privacy.mechanism import DiscreteGaussianSum
from fednode.protocol.boxkeys import ClientKeys, box_context, box_name, share_challenge
from fednode.protocol.chunks import Outline
from fednode.protocol.cohort import Member
from fednode.protocol.envelope import Envelope, Topic, about_check
from fednode.protocol.guarantees import Bounded
from fednode.protocol.model import BASIS, Basis, Layout
from fednode.protocol.requests import read_ask
from fednode.protocol.spec import KEY_CHECK_ROUND, RoundSpec
from fednode.reasons import Reason
from fednode_clients.client.model_copy import Chunks, ModelCopy, ModelCopyStore
from fednode_clients.client.privatise import ClippedSum, add_noise, bound, flattened, nothing, seal
from fednode_clients.keyfolder.audit_log import damaged
from fednode_clients.keyfolder.exclusive import exclusive
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.spending import MemberSpending
from fednode_clients.keyfolder.tasks import KnownTask, Schemes, recalled_task, topic, verified_task
from fednode_clients.keyfolder.untrained import note_untrained
from fednode_clients.limits import MemberLimits
from fednode_crypto import Rng
from fednode_crypto.identity import BoxPublicKey, seal_box
from fednode_crypto.interfaces import Sealer

log = logging.getLogger("fednode.clients")

HolderKeys = Mapping[int, tuple[Member, BoxPublicKey]]
"""Whom shares are boxed for in a round, by Shamir point."""


@dataclass(frozen=True, slots=True)
class _JoinedRound:
    """Whom to box for, and which model the update is computed from."""

    keys: HolderKeys
    basis: Basis


class Client:
    """One client on one machine. What it joined and sent lies in its key folder, so a restart changes nothing."""

    def __init__(
        self, folder: KeyFolder, limits: MemberLimits, schemes: Schemes, rng: Rng, layout: Layout | None = None
    ) -> None:
        self.folder, self._limits, self._schemes, self._rng, self._layout = folder, limits, schemes, rng, layout
        self._known: dict[str, tuple[KnownTask, Sealer]] = {}
        self._joined: dict[bytes, _JoinedRound] = {}
        self._models = ModelCopyStore(folder, self._check_model)

    def take_task(self, frame: bytes) -> Envelope:
        """Check a task and its joint key, keep them, answer "ready". Raises `PeerFault` with the reason to refuse."""
        task, parts = read_ask("task", frame)
        self._remember(verified_task(self.folder, self._schemes, self._limits, task, parts))
        return self.folder.signer.write("ready", Topic(task))

    def join(self, spec: RoundSpec, parts: Mapping[str, bytes], chunks: Chunks) -> ModelCopy | bytes:
        """The model to train from; or the update, if one was sealed for this spec before.

        `parts` came with the spec: the model's outline and, for boxed schemes, its own keys at the holders;
        `chunks` are those of the model that were sent. Raises `StoreError` if the record is lost, and `PeerFault`: what
        `MemberLimits.check`, `ClientKeys.verified`, `KnownTask.check` and `ModelCopyStore.take` raise, SECOND_SPEC if
        this round was joined under another spec, ROUND_CAP, PAST_ROUND, BUDGET, NOT_A_CLIENT.
        """
        known = self._check(spec)
        # an update is sent again, whether the model is still here or not
        if (sealed := self._sealed_before(spec)) is not None:
            self._box_keys(known, spec, parts)
            return sealed
        copy = self._models.take(known.card, spec, parts, chunks)
        keys = self._box_keys(known, spec, parts)
        # another process of this client may have sealed it meanwhile
        if (sealed := self._earlier(spec)) is not None:
            return sealed
        self._joined = {spec.digest(): _JoinedRound(keys, copy.basis)}
        return copy

    def _check_model(self, outline: Outline, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Raises `PeerFault`: WRONG_SHAPE for other trained arrays than this client's own, what the limits raise."""
        if self._layout not in (None, outline.trained):
            raise PeerFault(Reason.WRONG_SHAPE, "the trained arrays are not those that this client trains")
        self._limits.check_model(outline, arrays)

    def _check(self, spec: RoundSpec) -> KnownTask:
        known, _ = self._task(spec.task)
        known.check(spec)
        self._limits.check(spec, len(known.card.cohort.clients))
        if known.me.role != "client" or spec.round == KEY_CHECK_ROUND:
            raise PeerFault(Reason.NOT_A_CLIENT, f"{self.folder.name} sends no updates in round {spec.round}")
        # a client whose record is lost does not even repeat an update
        self.folder.audit_log.entries()
        return known

    def _box_keys(self, known: KnownTask, spec: RoundSpec, parts: Mapping[str, bytes]) -> HolderKeys:
        """This client's own keys, signed for this round and named by the spec; none for schemes without boxes."""
        if not known.scheme.boxed:
            return {}
        keys = ClientKeys.from_parts(parts, known.card.cohort)
        verified = keys.verified(known.card.cohort, Topic(spec.task, spec.round), self.folder.name)
        if keys.digest() != spec.key_digest:
            raise PeerFault(Reason.BAD_BOX_KEY, "the holders' keys are not those that the round names")
        if len(verified) < spec.sum_params.threshold:
            raise PeerFault(Reason.BAD_BOX_KEY, f"{len(verified)} holders' keys, {spec.sum_params.threshold} open")
        return verified

    def _sealed_before(self, spec: RoundSpec) -> bytes | None:
        sealed = self.folder.state.get(f"sealed/{spec.task}")
        return sealed[32:] if sealed is not None and sealed[:32] == spec.digest() else None

    def _earlier(self, spec: RoundSpec) -> bytes | None:
        """The update that was sealed for this spec, or None if the round may be joined. Raises `PeerFault`."""
        if (again := self._sealed_before(spec)) is not None:
            return again
        sealed = self.folder.state.get(f"sealed/{spec.task}")
        entries = self.folder.audit_log.entries()
        joined = [entry for entry in entries if entry.get("joined") == spec.task]
        if sealed is not None and sealed[:32].hex() not in [entry.get("spec") for entry in joined]:
            raise damaged(self.folder.path, "the record does not hold what was sealed")
        if any(entry.get("round") == spec.round for entry in joined):
            raise PeerFault(Reason.SECOND_SPEC, f"round {spec.round} of {spec.task} was joined or sent already")
        if len(joined) >= self._limits.max_rounds:
            raise PeerFault(Reason.ROUND_CAP, f"{len(joined)} rounds of {spec.task} joined, my maximum")
        for entry in joined:
            # The node sets both numbers, but the same for all who join: if it sets one back for a client that was left
            # behind, those who went on refuse.
            number, version = int(str(entry["round"])), int(str(entry.get("version", 0)))
            if number > spec.round or version > spec.model_version:
                raise PeerFault(
                    Reason.PAST_ROUND,
                    f"round {spec.round} with model {spec.model_version}, I joined {number} with model {version}",
                )
        self._require_budget(spec, MemberSpending.of(entries))
        return None

    def _cost(self, spec: RoundSpec) -> DiscreteGaussianSum:
        known, _ = self._task(spec.task)
        return self._limits.cost(spec, len(known.card.cohort.clients))

    def _require_budget(self, spec: RoundSpec, spending: MemberSpending) -> None:
        """Raise BUDGET unless this round fits on top of all others; that depends on the record alone, not on data."""
        most = max(self._limits.max_epsilon, spending.raised)
        if not spending.epsilon(self._limits.delta, self._cost(spec)) <= most:
            raise PeerFault(Reason.BUDGET, f"with all rounds of all my tasks, this one would pass epsilon {most:g}")

    def answer(self, spec: RoundSpec, train: Callable[[], ClippedSum]) -> bytes:
        """Train, bound, round, noise, seal, sign; on disk before it is returned.

        If training raises, or gives no sum that honest training gives, zeros are sealed as by a client without records,
        and the owner finds a note in the key folder. So from here on nothing that is said depends on the data: what is
        raised below depends on the record, the disk and the memory that sealing takes, which is the same for any sum.

        If another process of this client sealed the round since it was joined, its bytes are returned. Raises
        `PeerFault`: NO_CONSENT for a spec that `join` did not pass or that was answered since, SECOND_SPEC, ROUND_CAP,
        PAST_ROUND or BUDGET for one that was overtaken; `StoreError`, `MemoryError`.
        """
        joined = self._joined.pop(spec.digest(), None)
        if joined is None:
            raise PeerFault(Reason.NO_CONSENT, f"round {spec.round} of {spec.task} was not joined under this spec")
        bounded, failed = _bounded(spec, train)
        with exclusive(self.folder):
            earlier = self._earlier(spec)
            frame = self._sealed(spec, joined, bounded) if earlier is None else earlier
            # after the update is kept, so that a disk that this fills refuses nothing
            if failed is not None:
                note_untrained(self.folder.state, spec, failed)
        return frame

    def _sealed(self, spec: RoundSpec, joined: _JoinedRound, bounded: Bounded) -> bytes:
        _, sealer = self._task(spec.task)
        noised = add_noise(flattened(bounded, spec), spec.terms, self._rng)
        sealed = seal(noised, spec, sealer, self._rng)
        digest = sealed.spec_digest
        attached = {
            box_name(point): seal_box(key, sealed.sealing.shares[point], box_context(digest, self.folder.name, holder))
            for point, (holder, key) in joined.keys.items()
        }
        hashes = {point: hashlib.sha256(attached[box_name(point)]).digest() for point in joined.keys}
        about = about_check(sealed.sealing.check(share_challenge(digest, self.folder.name, hashes)))
        if spec.terms.staleness:
            attached[BASIS] = joined.basis.to_bytes()
        frame = self.folder.signer.write("update", topic(spec), sealed.sealing.payload, about, attached).to_bytes()
        # the record first: if the process dies before the update is stored, the round is never sealed a second time
        entry = {"joined": spec.task, "round": spec.round, "version": spec.model_version, "spec": digest.hex()}
        self.folder.audit_log.append(entry | {"cost": self._cost(spec).to_dict()})
        self.folder.state.put(f"sealed/{spec.task}", digest + frame)
        return frame

    def pad(self, taken: float) -> float:
        """The seconds to wait with an answer that took `taken`: up to the next whole number of `MemberLimits.pad`.

        A second request for the same round waits in the same way: it does not tell how long the first one took.
        """
        return -taken % self._limits.pad if self._limits.pad else 0.0

    def refuse(self, spec: RoundSpec, fault: PeerFault) -> bytes:
        """A signed refusal that says why."""
        return refusal(self.folder, topic(spec), fault)

    def _task(self, task: str) -> tuple[KnownTask, Sealer]:
        self.folder.tasks.require_open(task)
        if task not in self._known:
            self._remember(recalled_task(self.folder, self._schemes, self._limits, task))
        self.folder.cohorts.require_current(self._known[task][0].card.cohort)
        return self._known[task]

    def _remember(self, known: KnownTask) -> None:
        self._known[known.card.task] = (known, known.scheme.sealer(known.card.sum_params, known.key))


def _bounded(spec: RoundSpec, train: Callable[[], ClippedSum]) -> tuple[Bounded, str | None]:
    """The bounded result of training; or zeros, and the type of the error that tells why."""
    dimension = spec.trained
    try:
        total = train()
        if total.vector.shape != (dimension,) or total.vector.dtype != np.float64:
            raise ValueError(f"{total.vector.dtype} {total.vector.shape} for a sum of {dimension} float64 values")
        return bound(total, spec.terms), None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # the panic of a compiled extension is no `Exception`
        log.exception("training failed, so zeros are sent")
        failed = type(error).__name__
    # outside the except clause, so that the memory that the error's traceback holds is free
    return nothing(spec.terms, spec.sum_params.dimension), failed


def refusal(folder: KeyFolder, about: Topic, fault: PeerFault) -> bytes:
    """A signed refusal of any request, with its reason."""
    texts = {"reason": one_line(fault.reason, 64), "detail": one_line(fault.detail or fault.reason, 512)}
    return folder.signer.write(
        "refusal", about, about={name: text or "no reason given" for name, text in texts.items()}
    ).to_bytes()
