"""The keys of the boxes: fresh for every round, signed by their holders, destroyed when the round is opened."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort, Member
from fednode.protocol.envelope import Envelope, numbered, parts_of_holders
from fednode.reasons import Reason
from fednode.wire import canonical, digest
from fednode_crypto import CryptoError
from fednode_crypto.identity import BoxPublicKey

_KIND, _SIZE = "box-key", 32


@dataclass(frozen=True, slots=True)
class BoxKeys:
    """One signed key of each holder that gave one, by Shamir point."""

    envelopes: Mapping[int, Envelope] = field(repr=False)

    @property
    def points(self) -> frozenset[int]:
        """The holders that gave a key."""
        return frozenset(self.envelopes)

    def digest(self) -> bytes:
        """Return 32 bytes that identify these keys; they are part of the round's spec."""
        return digest("box-keys", *(self.envelopes[point].signed.to_bytes() for point in sorted(self.envelopes)))

    def parts(self) -> dict[str, bytes]:
        """Return named parts: box-key-1, box-key-2, ..."""
        return numbered(_KIND, self.envelopes)

    @staticmethod
    def from_parts(parts: Mapping[str, bytes], cohort: Cohort) -> "BoxKeys":
        """Return the keys among untrusted parts, not verified yet. Raises `PeerFault` as `Envelope.from_bytes`."""
        found = parts_of_holders(_KIND, parts, cohort)
        return BoxKeys({point: Envelope.from_bytes(data, _SIZE) for point, data in found.items()})

    def verified(self, cohort: Cohort, task: str, round_number: int) -> dict[int, tuple[Member, BoxPublicKey]]:
        """Return holder and key by point, if each holder signed its own key for this round.

        Raises `PeerFault`: "bad-box-key", "stranger" or "bad-signature".
        """
        found: dict[int, tuple[Member, BoxPublicKey]] = {}
        for point, envelope in self.envelopes.items():
            member, head = envelope.signed.verified_holder(cohort, point, Reason.BAD_BOX_KEY), envelope.head
            if (head.kind, head.task, head.round) != (_KIND, task, round_number):
                raise PeerFault(
                    Reason.BAD_BOX_KEY, f"{member.name} signed another key, not one for round {round_number}"
                )
            try:
                found[point] = (member, BoxPublicKey(envelope.body))
            except (ValueError, CryptoError) as error:
                raise PeerFault(Reason.BAD_BOX_KEY, f"{member.name} signed bytes that are not a key") from error
        return found


def box_name(point: int) -> str:
    """Return the name of the attachment that is the box for the holder at this point."""
    return f"box-{point}"


def box_context(spec_digest: bytes, client: str, holder: Member) -> bytes:
    """Return the associated data of a box, so that it opens for this round, client, holder and point only."""
    return canonical({"spec": spec_digest.hex(), "client": client, "holder": holder.name, "point": holder.point})
