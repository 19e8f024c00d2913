"""That a round has one final roster: signed by as many holders as it takes to open, before any of them opens.

Holders answer with sums of shares, and sums can be mixed: whoever has answers over A, over B and over both together, no
t of them over the same, may still solve for the secrets of A and of B. So a holder answers only for a roster that t
holders have signed, each for one roster a round. Two such quorums share 2t - k holders, an honest one as long as that
is more than the corrupt ones: then there are not two (as the consistency check of Bonawitz et al. 2017, section 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Signed, Topic
from fednode.reasons import Reason

CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class Confirmations:
    """The signed heads of holders that confirmed a roster, by Shamir point."""

    heads: Mapping[int, Signed] = field(repr=False)

    def parts(self) -> dict[str, bytes]:
        """As named bytes: confirmed-1, confirmed-2, ..."""
        return {_name(point): signed.to_bytes() for point, signed in self.heads.items()}

    @staticmethod
    def from_parts(parts: Mapping[str, bytes], cohort: Cohort) -> "Confirmations":
        """Those among untrusted parts, for the holders of this cohort; nothing is verified. Raises `PeerFault`."""
        named = {_name(holder.point): holder.point for holder in cohort.holders}
        return Confirmations({named[name]: Signed.from_bytes(data) for name, data in parts.items() if name in named})

    def verified(self, cohort: Cohort, topic: Topic, roster: bytes) -> frozenset[int]:
        """The points of the holders that signed exactly this roster's digest, each its own.

        Raises `PeerFault`: "bad-confirmation", "stranger" or "bad-signature" if one of them is anything else.
        """
        for point, signed in self.heads.items():
            member = signed.verified(cohort)
            if (member.role, member.point) != ("holder", point):
                raise PeerFault(Reason.BAD_CONFIRMATION, f"{member.name} is not the holder at point {point}")
            check_confirmation(signed, topic, roster)
        return frozenset(self.heads)


def about_roster(roster: bytes) -> dict[str, object]:
    """What a confirmation says of the roster with this digest, beside the topic in its head."""
    return {"roster": roster.hex()}


def check_confirmation(signed: Signed, topic: Topic, roster: bytes) -> None:
    """Return if this head confirms the roster with this digest, for this very round. The signature is not checked.

    Raises `PeerFault("bad-confirmation")`.
    """
    head = signed.head
    named = (head.kind, head.task, head.round, head.spec, dict(head.about))
    if named != (CONFIRMED, topic.task, topic.round, topic.spec, about_roster(roster)):
        raise PeerFault(Reason.BAD_CONFIRMATION, f"{head.sender} confirmed something else than this roster")


def _name(point: int) -> str:
    return f"confirmed-{point}"
