"""What a member knows of a task: verified once, kept in its key folder, believed afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.cohort import Member
from fednode.protocol.requests import KeyParts, TaskCard
from fednode.protocol.spec import RoundSpec
from fednode.wire import digest, join_parts, split_parts
from fednode_clients.keyfolder import KeyFolder
from fednode_crypto import CryptoError, SumScheme, WrongParameters
from fednode_crypto.scheme import JointKey

_MAX_PARTS = 64
Schemes = Callable[[str], SumScheme]
"""The secure sum of a name; raises `WrongParameters` for a name it does not know."""


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task whose cohort the enrolment key signed and whose joint key the cohort's holders made."""

    card: TaskCard
    me: Member
    scheme: SumScheme = field(repr=False)
    key: JointKey = field(repr=False)

    def check(self, spec: RoundSpec) -> None:
        """Return if the spec is of this task, cohort, key and sum. Raises `PeerFault`: "another-task"."""
        card = self.card
        named = (spec.task, spec.cohort_digest, spec.key_digest, spec.sum_params)
        if named != (card.task, card.cohort.digest(), self.key.digest(), card.sum_params):
            raise PeerFault("another-task", "the round is not of the task, cohort and key that I know")


def key_context(card: TaskCard) -> bytes:
    """What the joint key is bound to: this task and this cohort."""
    return digest("joint-key", card.task.encode("utf-8"), card.cohort.digest())


def verified_card(folder: KeyFolder, task: str, parts: dict[str, bytes]) -> tuple[TaskCard, Member]:
    """The card, its cohort checked against the folder's own enrolment key, and this member in it.

    Raises `PeerFault`: "malformed", "unknown-cohort", or "not-enrolled" if the cohort has other keys under this name.
    """
    card = TaskCard.from_parts(task, parts)
    card.cohort.verified(folder.enrolment_key)
    me = card.cohort.member(folder.name)
    if me != folder.member(me.role, me.point):
        raise PeerFault("not-enrolled", f"the cohort has other keys for {folder.name} than mine")
    if len(card.cohort.holders) != card.sum_params.holders:
        raise PeerFault("another-committee", "the sum is for another number of holders than the cohort has")
    return card, me


def scheme_of(card: TaskCard, schemes: Schemes) -> SumScheme:
    """The secure sum that the card asks for. Raises `PeerFault("unknown-scheme")`."""
    try:
        return schemes(card.sum_params.scheme)
    except WrongParameters as error:
        raise PeerFault("unknown-scheme", str(error)) from error


def verified_task(folder: KeyFolder, schemes: Schemes, task: str, parts: dict[str, bytes]) -> KnownTask:
    """Check everything a task is said to be, recompute the joint key from the signed parts, and keep it.

    Raises `PeerFault`, also "bad-key-part" if a part is not the one its holder committed to, and "second-key" if the
    task is known with another cohort or key already.
    """
    card, me = verified_card(folder, task, parts)
    published = KeyParts.from_parts(parts).verified(card)
    if not published.reveals:
        raise PeerFault("bad-key-part", "no part of a joint key came with the task")
    scheme = scheme_of(card, schemes)
    try:
        key = scheme.joint_key(
            card.sum_params, key_context(card), published.bodies("reveals"), published.bodies("commitments")
        )
    except CryptoError as error:
        raise PeerFault("bad-key-part", str(error)) from error
    known = KnownTask(card, me, scheme, key)
    earlier = folder.get(f"task-key/{task}")
    if earlier is not None and earlier != key.digest() + card.cohort.digest():
        raise PeerFault("second-key", f"{task} has another joint key or cohort already")
    folder.put(f"task/{task}", join_parts(card.parts() | published.parts()))
    folder.put(f"task-key/{task}", key.digest() + card.cohort.digest())
    return known


def recalled_task(folder: KeyFolder, schemes: Schemes, task: str) -> KnownTask:
    """The task as it was kept. Raises `PeerFault("unknown-task")` if it never was."""
    kept = folder.get(f"task/{task}")
    if kept is None:
        raise PeerFault("unknown-task", f"{task} was never given to {folder.name}")
    return verified_task(folder, schemes, task, split_parts(kept, _MAX_PARTS))
