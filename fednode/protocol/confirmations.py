"""Proof that a round has one final roster: t holders sign it before any of them opens.

Holders answer with sums of shares, and sums can be combined: answers over the rosters A, B and A with B, fewer than t
over each, may still give away the secrets of A and of B. So a holder answers only for a roster that t holders have
signed, and signs one roster a round. Two sets of t holders share 2t - k of them. If that is more than the corrupt ones,
an honest holder is in both, so there is only one roster (as in the consistency check of Bonawitz et al. 2017, sec. 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Signed, Topic, numbered, parts_of_holders
from fednode.protocol.ledger_mark import LEDGER
from fednode.reasons import Reason

CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class Confirmations:
    """The signed heads of the holders that confirmed a roster, by Shamir point."""

    heads: Mapping[int, Signed] = field(repr=False)

    def parts(self) -> dict[str, bytes]:
        """Return named parts: confirmed-1, confirmed-2, ..."""
        return numbered(CONFIRMED, self.heads)

    @staticmethod
    def from_parts(parts: Mapping[str, bytes], cohort: Cohort) -> "Confirmations":
        """Return the confirmations among untrusted parts, not verified yet. Raises `PeerFault("malformed")`."""
        found = parts_of_holders(CONFIRMED, parts, cohort)
        return Confirmations({point: Signed.from_bytes(data) for point, data in found.items()})

    def verified(self, cohort: Cohort, topic: Topic, roster: bytes) -> frozenset[int]:
        """Return the points of the holders that signed exactly this roster's digest.

        Raises `PeerFault`: "bad-confirmation", "stranger" or "bad-signature" for any other head.
        """
        for point, signed in self.heads.items():
            signed.verified_holder(cohort, point, Reason.BAD_CONFIRMATION)
            check_confirmation(signed, topic, roster)
        return frozenset(self.heads)


def about_roster(roster: bytes, ledger: object) -> dict[str, object]:
    """Return the fields of a confirmation of the roster with this digest, beside the ledger's mark as recorded."""
    return {"roster": roster.hex(), LEDGER: ledger}


def check_confirmation(signed: Signed, topic: Topic, roster: bytes) -> None:
    """Return if this head confirms the roster with this digest for this round; the signature is not checked.

    Raises `PeerFault("bad-confirmation")` if not.
    """
    head = signed.head
    named = (head.kind, head.topic, head.about.get("roster"), set(head.about))
    if named != (CONFIRMED, topic, roster.hex(), {"roster", LEDGER}):
        raise PeerFault(Reason.BAD_CONFIRMATION, f"{head.sender} confirmed something else than this roster")
