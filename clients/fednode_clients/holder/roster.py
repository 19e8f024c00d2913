"""What a holder believes about a roster: heads that enrolled members signed, for one spec, and enough of them."""

from fednode.errors import PeerFault
from fednode.protocol.envelope import Signed, Topic
from fednode.protocol.spec import KEY_CHECK_ROUND, RoundSpec
from fednode.reasons import Reason
from fednode_clients.keyfolder.tasks import KnownTask
from fednode_clients.limits import MemberLimits


def check_roster(known: KnownTask, limits: MemberLimits, spec: RoundSpec, roster: tuple[Signed, ...]) -> None:
    """Return if the roster may be opened.

    Raises `PeerFault`: what `MemberLimits.check` raises, "repeated", "min-survivors", "too-many", "stranger",
    "bad-signature" or "another-spec".
    """
    wanted_role = "holder" if spec.round == KEY_CHECK_ROUND else "client"
    if spec.round != KEY_CHECK_ROUND:
        limits.check(spec, len(known.card.cohort.clients))
    names = [signed.head.sender for signed in roster]
    if len(set(names)) != len(names):
        raise PeerFault(Reason.REPEATED, "the roster names a member twice")
    least = (
        known.card.sum_params.holders
        if wanted_role == "holder"
        else max(spec.terms.min_survivors, limits.floor_survivors)
    )
    if len(names) < least:
        raise PeerFault(Reason.MIN_SURVIVORS, f"{len(names)} updates in the roster, {least} are the least")
    if len(names) > spec.sum_params.summands:
        raise PeerFault(Reason.TOO_MANY, f"{len(names)} updates, the sum has room for {spec.sum_params.summands}")
    topic = Topic(spec.task, spec.round, spec.digest())
    for signed in roster:
        member = signed.verified(known.card.cohort)
        if member.role != wanted_role:
            raise PeerFault(Reason.STRANGER, f"{member.name} is no {wanted_role}")
        if not signed.head.is_update(topic):
            raise PeerFault(Reason.ANOTHER_SPEC, f"{member.name} sent an update for another spec")
