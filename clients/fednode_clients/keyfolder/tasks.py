"""A member's tasks: each is verified once and kept in its key folder."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.cohort import Member, Role
from fednode.protocol.envelope import Topic
from fednode.protocol.requests import KeyParts, TaskCard, read_ask
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import join_parts, split_parts
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.limits import MemberLimits
from fednode_crypto import CryptoError, KeyedScheme, SumScheme, WrongParameters
from fednode_crypto.interfaces import JointKey

_MAX_PARTS = 64
_LARGEST_PAYLOAD = 1 << 30
Schemes = Callable[[str], SumScheme]
"""The secure sum of a name; raises `WrongParameters` for a name it does not know."""


def topic(spec: RoundSpec) -> Topic:
    """The topic of every message about this round."""
    return Topic(spec.task, spec.round, spec.digest())


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task whose cohort the enrolment key signed. `key` is the holders' joint key, None for boxed schemes."""

    card: TaskCard
    me: Member
    scheme: SumScheme = field(repr=False)
    key: JointKey | None = field(repr=False)

    def check(self, spec: RoundSpec) -> None:
        """Return if the spec is of this task, cohort, joint key and sum. Raises `PeerFault` ANOTHER_TASK."""
        card = self.card
        named = (spec.task, spec.cohort_digest, spec.sum_params)
        if named != (card.task, card.cohort.digest(), card.sum_params):
            raise PeerFault(Reason.ANOTHER_TASK, "the round is of another task, cohort or sum")
        if self.key is not None and spec.key_digest != self.key.digest():
            raise PeerFault(Reason.ANOTHER_TASK, "the round is under another joint key")

    def key_digest(self) -> bytes:
        """The digest of the joint key; 32 zero bytes without one."""
        return bytes(32) if self.key is None else self.key.digest()


def verified_card(
    folder: KeyFolder, limits: MemberLimits, task: str, parts: dict[str, bytes]
) -> tuple[TaskCard, Member]:
    """The card, checked against the folder's own enrolment key and the member's limits, and this member in it.

    Raises `PeerFault`: what `TaskCard.from_parts` raises, OVERSIZE, RETIRED, EXPIRED_COHORT, OLDER_COHORT,
    NOT_ENROLLED if the cohort has other keys under this name, ANOTHER_COMMITTEE, TOO_MANY, SCHEME_FLOOR, LOW_THRESHOLD.
    """
    folder.tasks.require_open(task)
    card = TaskCard.from_parts(task, parts, folder.enrolment_key)
    folder.cohorts.require_current(card.cohort)
    params = card.sum_params
    if params.payload_bytes > _LARGEST_PAYLOAD:
        raise PeerFault(Reason.OVERSIZE, f"updates of {params.payload_bytes} bytes, my maximum is {_LARGEST_PAYLOAD}")
    me = card.cohort.member(folder.name)
    if me != folder.member(me.role, me.point):
        raise PeerFault(Reason.NOT_ENROLLED, f"the cohort has other keys for {folder.name} than mine")
    if len(card.cohort.holders) != params.holders:
        raise PeerFault(Reason.ANOTHER_COMMITTEE, "the sum is for another number of holders than the cohort has")
    most = max(len(card.cohort.clients), len(card.cohort.holders))
    if params.summands > most:
        # more summands mean a larger field of the shares, and mixed answers would reveal more
        raise PeerFault(Reason.TOO_MANY, f"a sum of up to {params.summands} updates, the cohort has {most} members")
    limits.check_sum(params)
    return card, me


def role_in(frame: bytes, folder: KeyFolder) -> Role:
    """The role that a task gives to this member. Raises `PeerFault`."""
    task, parts = read_ask("task", frame)
    return TaskCard.from_parts(task, parts, folder.enrolment_key).cohort.member(folder.name).role


def scheme_of(card: TaskCard, schemes: Schemes) -> SumScheme:
    """The secure sum that the card asks for. Raises `PeerFault` UNKNOWN_SCHEME."""
    try:
        return schemes(card.sum_params.scheme)
    except WrongParameters as error:
        raise PeerFault(Reason.UNKNOWN_SCHEME, str(error)) from error


def verified_task(
    folder: KeyFolder, schemes: Schemes, limits: MemberLimits, task: str, parts: dict[str, bytes]
) -> KnownTask:
    """Check a task, recompute the joint key from the signed parts, and keep both.

    Raises `PeerFault`: what `verified_card` raises, TASK_CAP, BAD_KEY_PART for a part that its holder did not commit
    to, SECOND_KEY if the task is known with another cohort or key.
    """
    card, me = verified_card(folder, limits, task, parts)
    scheme = scheme_of(card, schemes)
    published = KeyParts({}, {}) if scheme.boxed else KeyParts.from_parts(parts).verified(card)
    key = None if scheme.boxed else _joint_key(scheme, card, published)
    known = KnownTask(card, me, scheme, key)
    wanted = known.key_digest() + card.cohort.digest() + card.sum_params.digest()
    earlier = folder.state.get(f"task-key/{task}")
    if earlier not in (None, wanted):
        raise PeerFault(Reason.SECOND_KEY, f"{task} has another joint key, cohort or sum already")
    if earlier is None:
        folder.audit_log.settle()
        folder.tasks.admit(task, limits.max_tasks)
        folder.state.put_common(f"task/{task}", join_parts(card.parts() | published.parts()))
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


def recalled_task(folder: KeyFolder, schemes: Schemes, limits: MemberLimits, task: str) -> KnownTask:
    """The task as it was kept. Raises `PeerFault` UNKNOWN_TASK, or as `verified_task` if limits have changed since."""
    kept = folder.state.get(f"task/{task}")
    if kept is None:
        raise PeerFault(Reason.UNKNOWN_TASK, f"{task} was never given to {folder.name}")
    return verified_task(folder, schemes, limits, task, split_parts(kept, _MAX_PARTS))
