"""What a member knows of a task: verified once, kept in its key folder, believed afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.members import least_threshold
from fednode.protocol.cohort import Member, Role
from fednode.protocol.requests import KeyParts, TaskCard, read_ask
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import join_parts, split_parts
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_crypto import CryptoError, KeyedScheme, SumScheme, WrongParameters
from fednode_crypto.interfaces import JointKey

_MAX_PARTS = 64
_LARGEST_PAYLOAD = 1 << 30
Schemes = Callable[[str], SumScheme]
"""The secure sum of a name; raises `WrongParameters` for a name it does not know."""


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task whose cohort the enrolment key signed; `key` is the joint key that its holders made, None for boxed
    schemes."""

    card: TaskCard
    me: Member
    scheme: SumScheme = field(repr=False)
    key: JointKey | None = field(repr=False)

    def check(self, spec: RoundSpec) -> None:
        """Return if the spec is of this task, cohort, joint key and sum. Raises `PeerFault`: "another-task"."""
        card = self.card
        named = (spec.task, spec.cohort_digest, spec.sum_params)
        if named != (card.task, card.cohort.digest(), card.sum_params):
            raise PeerFault(Reason.ANOTHER_TASK, "the round is not of the task and cohort that I know")
        if self.key is not None and spec.key_digest != self.key.digest():
            raise PeerFault(Reason.ANOTHER_TASK, "the round is under another joint key than the one I know")

    def key_digest(self) -> bytes:
        """32 bytes that name the joint key; zeros where there is none."""
        return bytes(32) if self.key is None else self.key.digest()


def verified_card(folder: KeyFolder, task: str, parts: dict[str, bytes]) -> tuple[TaskCard, Member]:
    """The card, its cohort checked against the folder's own enrolment key, and this member in it.

    Raises `PeerFault`: what `TaskCard.from_parts` raises, "oversize", "retired", "unknown-cohort", or "not-enrolled" if
    the cohort has other keys under this name.
    """
    folder.tasks.require_open(task)
    card = TaskCard.from_parts(task, parts)
    if card.sum_params.payload_bytes > _LARGEST_PAYLOAD:
        raise PeerFault(
            Reason.OVERSIZE, f"updates of {card.sum_params.payload_bytes} bytes, {_LARGEST_PAYLOAD} are my most"
        )
    card.cohort.verified(folder.enrolment_key)
    me = card.cohort.member(folder.name)
    if me != folder.member(me.role, me.point):
        raise PeerFault(Reason.NOT_ENROLLED, f"the cohort has other keys for {folder.name} than mine")
    if len(card.cohort.holders) != card.sum_params.holders:
        raise PeerFault(Reason.ANOTHER_COMMITTEE, "the sum is for another number of holders than the cohort has")
    most = max(len(card.cohort.clients), len(card.cohort.holders))
    if card.sum_params.summands > most:
        # the field of the shares grows with it, and with the field what mixed answers would give away
        raise PeerFault(
            Reason.TOO_MANY, f"a sum of up to {card.sum_params.summands} updates, the cohort has {most} members"
        )
    least = least_threshold(card.sum_params.holders)
    if card.sum_params.threshold < least:
        raise PeerFault(
            Reason.LOW_THRESHOLD, f"{card.sum_params.threshold} of {card.sum_params.holders} open, {least} are my least"
        )
    return card, me


def role_in(frame: bytes, name: str) -> Role:
    """The role that a task gives to the member of this name; nothing of it is verified yet. Raises `PeerFault`."""
    task, parts = read_ask("task", frame)
    return TaskCard.from_parts(task, parts).cohort.member(name).role


def scheme_of(card: TaskCard, schemes: Schemes) -> SumScheme:
    """The secure sum that the card asks for. Raises `PeerFault("unknown-scheme")`."""
    try:
        return schemes(card.sum_params.scheme)
    except WrongParameters as error:
        raise PeerFault(Reason.UNKNOWN_SCHEME, str(error)) from error


def verified_task(
    folder: KeyFolder, schemes: Schemes, task: str, parts: dict[str, bytes], most: int | None = None
) -> KnownTask:
    """Check everything a task is said to be, recompute the joint key from the signed parts, and keep it.

    `most`: how many open tasks the member has at most (None: this is one of them). Raises `PeerFault`, also "task-cap",
    "bad-key-part" if a part is not the one its holder committed to, and "second-key" if the
    task is known with another cohort or key already.
    """
    card, me = verified_card(folder, task, parts)
    scheme = scheme_of(card, schemes)
    published = KeyParts({}, {}) if scheme.boxed else KeyParts.from_parts(parts).verified(card)
    key = None if scheme.boxed else _joint_key(scheme, card, published)
    known = KnownTask(card, me, scheme, key)
    wanted = known.key_digest() + card.cohort.digest() + card.sum_params.digest()
    earlier = folder.state.get(f"task-key/{task}")
    if earlier not in (None, wanted):
        raise PeerFault(Reason.SECOND_KEY, f"{task} has another joint key, cohort or sum already")
    if earlier is None:
        if most is not None:
            folder.tasks.admit(task, most)
        folder.state.put(f"task/{task}", join_parts(card.parts() | published.parts()))
        folder.state.put(f"task-key/{task}", wanted)
    return known


def _joint_key(scheme: KeyedScheme, card: TaskCard, published: KeyParts) -> JointKey:
    if not published.reveals:
        raise PeerFault(Reason.BAD_KEY_PART, "no part of a joint key came with the task")
    try:
        return scheme.joint_key(
            card.sum_params, card.key_context(), published.bodies("reveals"), published.bodies("commitments")
        )
    except CryptoError as error:
        raise PeerFault(Reason.BAD_KEY_PART, str(error)) from error


def recalled_task(folder: KeyFolder, schemes: Schemes, task: str) -> KnownTask:
    """The task as it was kept. Raises `PeerFault("unknown-task")` if it never was."""
    kept = folder.state.get(f"task/{task}")
    if kept is None:
        raise PeerFault(Reason.UNKNOWN_TASK, f"{task} was never given to {folder.name}")
    return verified_task(folder, schemes, task, split_parts(kept, _MAX_PARTS))
