"""A holder's check of a roster."""

from fednode.errors import PeerFault
from fednode.protocol.envelope import Signed
from fednode.protocol.spec import KEY_CHECK_ROUND, RoundSpec
from fednode.reasons import Reason
from fednode_clients.keyfolder.tasks import KnownTask, topic
from fednode_clients.limits import MemberLimits


def check_roster(known: KnownTask, limits: MemberLimits, spec: RoundSpec, roster: tuple[Signed, ...]) -> None:
    """Return if the roster may be opened: enough updates for this spec, each signed by another enrolled client.

    In the key check (round 0) the holders send the updates. Raises `PeerFault`: what `MemberLimits.check` raises,
    REPEATED, MIN_SURVIVORS, TOO_MANY, STRANGER, BAD_SIGNATURE or ANOTHER_SPEC.
    """
    params = known.card.sum_params
    if spec.round == KEY_CHECK_ROUND:
        role, least = "holder", params.holders
    else:
        role, least = "client", max(spec.terms.min_survivors, limits.floor_survivors)
        limits.check(spec, len(known.card.cohort.clients))
    names = {signed.head.sender for signed in roster}
    if len(names) != len(roster):
        raise PeerFault(Reason.REPEATED, "the roster names a member twice")
    if len(names) < least:
        raise PeerFault(Reason.MIN_SURVIVORS, f"{len(names)} updates in the roster, at least {least} are needed")
    if len(names) > params.summands:
        raise PeerFault(Reason.TOO_MANY, f"{len(names)} updates, the sum has room for {params.summands}")
    for signed in roster:
        member = signed.verified(known.card.cohort)
        if member.role != role:
            raise PeerFault(Reason.STRANGER, f"{member.name} is not a {role}")
        if not signed.head.is_update(topic(spec)):
            raise PeerFault(Reason.ANOTHER_SPEC, f"{member.name} sent an update for another spec")
