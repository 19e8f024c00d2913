"""The keys that shares are boxed to: fresh for every round, signed by their holders, destroyed when the round is
opened."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort, Member
from fednode.protocol.envelope import Envelope
from fednode.reasons import Reason
from fednode.wire import canonical, digest
from fednode_crypto import CryptoError
from fednode_crypto.identity import BoxPublicKey

_SIZE = 32


@dataclass(frozen=True, slots=True)
class BoxKeys:
    """One signed key of each holder that is there, by Shamir point."""

    envelopes: Mapping[int, Envelope] = field(repr=False)

    @property
    def points(self) -> frozenset[int]:
        """The holders that gave a key."""
        return frozenset(self.envelopes)

    def digest(self) -> bytes:
        """32 bytes that name exactly these keys; it stands in the round's spec."""
        return digest("box-keys", *(self.envelopes[point].signed.to_bytes() for point in sorted(self.envelopes)))

    def parts(self) -> dict[str, bytes]:
        """As named bytes: box-key-1, box-key-2, ..."""
        return {f"box-key-{point}": envelope.to_bytes() for point, envelope in self.envelopes.items()}

    @staticmethod
    def from_parts(parts: Mapping[str, bytes], cohort: Cohort) -> "BoxKeys":
        """The keys among untrusted parts, for the holders of this cohort. Nothing is verified yet. Raises
        `PeerFault`."""
        named = {f"box-key-{holder.point}": holder.point for holder in cohort.holders}
        return BoxKeys({named[name]: Envelope.from_bytes(data, _SIZE) for name, data in parts.items() if name in named})

    def verified(self, cohort: Cohort, task: str, round_number: int) -> dict[int, tuple[Member, BoxPublicKey]]:
        """Holder and key by point, if each holder signed its own for this very round.

        Raises `PeerFault`: "bad-box-key", "stranger" or "bad-signature".
        """
        found: dict[int, tuple[Member, BoxPublicKey]] = {}
        for point, envelope in self.envelopes.items():
            member, head = envelope.signed.verified(cohort), envelope.head
            if (member.role, member.point) != ("holder", point):
                raise PeerFault(Reason.BAD_BOX_KEY, f"{member.name} is not the holder at point {point}")
            if (head.kind, head.task, head.round) != ("box-key", task, round_number):
                raise PeerFault(
                    Reason.BAD_BOX_KEY, f"{member.name} signed another key, not one for round {round_number}"
                )
            try:
                found[point] = (member, BoxPublicKey.from_bytes(envelope.body))
            except (ValueError, CryptoError) as error:
                raise PeerFault(Reason.BAD_BOX_KEY, f"{member.name} signed bytes that are no key") from error
        return found


def box_name(point: int) -> str:
    """What a box for the holder at this point is called among an update's attachments."""
    return f"box-{point}"


def box_context(spec_digest: bytes, client: str, holder: Member) -> bytes:
    """Associated data of a box: it opens for this round, this client, this holder and its point only."""
    return canonical({"spec": spec_digest.hex(), "client": client, "holder": holder.name, "point": holder.point})
