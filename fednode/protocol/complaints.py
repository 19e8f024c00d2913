"""A holder's complaint about a box, with proof, and the judgement of it: the client is wrong, or the holder.

A holder that strikes a client shows the secret key of that one box. Whoever has it opens the box that the client signed
and repeats the check, so nobody's word counts against a client. Against a holder a complaint counts only for the node,
to which the holder signed it: whoever passes one on may have made it up. Only the share in that box is shown. For an
honest client that happens only if the holder lies, and then it is a share that a corrupt holder had anyway; t shares
are needed for a mask.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.boxkeys import (
    ClientKey,
    box_context,
    box_hashes,
    box_name,
    client_indices,
    key_digest,
    share_challenge,
)
from fednode.protocol.cohort import Cohort, Member
from fednode.protocol.envelope import Head, Signed, Topic, numbered, parts_of_holders
from fednode.protocol.requests import MAX_UPDATE_HEAD
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import join_parts, split_parts
from fednode_crypto import BoxedScheme, Tampered
from fednode_crypto.identity import BoxKey, open_box

_HEADS, _COMPLAINTS = "box-head", "complaints"
_MOST_COMPLAINTS = 1 << 26
"""Bytes of complaints in one request; more are left out."""


@dataclass(frozen=True, slots=True)
class KeyedBox:
    """A client's box for one holder, the signed head that names it, and the secret key that should open it."""

    head: Head
    holder: Member
    box: bytes = field(repr=False)
    key: BoxKey

    @property
    def signed(self) -> bool:
        """Whether this is the box that its client signed. Raises `PeerFault("malformed")`."""
        return self.head.attached().get(box_name(self.holder.point)) == hashlib.sha256(self.box).digest()

    def fault(self, spec: RoundSpec, about: bytes, scheme: BoxedScheme) -> Reason | None:
        """Return what is wrong with the share inside, if anything: BAD_BOX or CROOKED_SHARE. `about` is the spec's
        digest."""
        client, point = self.head.sender, self.holder.point
        try:
            share = open_box(self.key, self.box, box_context(about, client, self.holder))
        except Tampered:
            return Reason.BAD_BOX
        challenge = share_challenge(about, client, box_hashes(self.head))
        try:
            scheme.check_share(spec.sum_params, share, point, challenge, self.head.check())
        except Tampered:
            return Reason.CROOKED_SHARE
        return None


@dataclass(frozen=True, slots=True)
class Complaint:
    """A client's signed head and its box, the public key that the holder signed for it, and the secret key it shows."""

    head: Signed
    box: bytes = field(repr=False)
    key: ClientKey = field(repr=False)
    secret: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return the bytes that travel."""
        parts = {"head": self.head.to_bytes(), "box": self.box, "key": self.key.to_bytes(), "secret": self.secret}
        return join_parts(parts)

    @staticmethod
    def from_bytes(data: bytes, clients: int) -> "Complaint":
        """Undo `to_bytes` for a cohort of so many clients; nothing is verified yet. Raises `PeerFault("malformed")`."""
        parts = split_parts(data, 4)
        if set(parts) != {"head", "box", "key", "secret"} or len(parts["secret"]) != 32:
            raise PeerFault(Reason.MALFORMED, "a complaint has a head, a box, a key and its secret of 32 bytes")
        head = Signed.from_bytes(parts["head"], MAX_UPDATE_HEAD)
        return Complaint(head, parts["box"], ClientKey.from_bytes(parts["key"], clients), parts["secret"])


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who is wrong, and in what: a client in BAD_BOX or CROOKED_SHARE, a holder in FALSE_COMPLAINT."""

    member: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Court:
    """What it takes to judge the complaints of one round; `heads` are the signed heads of the box keys, by point."""

    spec: RoundSpec
    cohort: Cohort
    scheme: BoxedScheme
    heads: Mapping[int, Signed] = field(repr=False)
    indices: Mapping[str, int] = field(repr=False)

    @staticmethod
    def from_parts(spec: RoundSpec, cohort: Cohort, scheme: BoxedScheme, parts: Mapping[str, bytes]) -> "Court":
        """Return the court with the heads among untrusted parts. Raises `PeerFault("malformed")`."""
        heads = {point: Signed.from_bytes(data) for point, data in parts_of_holders(_HEADS, parts, cohort).items()}
        return Court(spec, cohort, scheme, heads, client_indices(cohort))

    def judge(self, complaint: Complaint) -> Verdict:
        """Return who is wrong. The client, if the key is the one that the holder signed for it and the box that it
        signed does not open, or opens to a share that fails the check; else the holder.

        Raises `PeerFault` for what proves nothing: heads that the round's spec does not name or that their members did
        not sign for this round, a public key without its path, or another box than the client's.
        """
        about = self.spec.digest()
        client, holder = self._client(complaint.head, about), self._holder(complaint)
        box = KeyedBox(complaint.head.head, holder, complaint.box, BoxKey.from_private_bytes(complaint.secret))
        if not box.signed:
            raise PeerFault(Reason.BAD_REQUEST, f"the box is not the one that {client} signed")
        fault = box.fault(self.spec, about, self.scheme) if box.key.public.raw == complaint.key.key else None
        return Verdict(holder.name, Reason.FALSE_COMPLAINT) if fault is None else Verdict(client, fault)

    def _client(self, head: Signed, about: bytes) -> str:
        member = head.verified(self.cohort)
        if member.role != "client" or not head.head.is_update(Topic(self.spec.task, self.spec.round, about)):
            raise PeerFault(Reason.ANOTHER_SPEC, f"{member.name} signed no update for this round")
        return member.name

    def _holder(self, complaint: Complaint) -> Member:
        """The holder whose key it is. Clients sealed for the keys that the spec names, so no others count."""
        points = [point for point, head in self.heads.items() if head == complaint.key.signed]
        if key_digest(self.heads) != self.spec.key_digest or not points:
            raise PeerFault(Reason.BAD_BOX_KEY, "the keys are not those that the round names")
        topic, index = Topic(self.spec.task, self.spec.round), self.indices[complaint.head.head.sender]
        return complaint.key.verified(self.cohort, points[0], topic, index)[0]


def complaint_parts(heads: Mapping[int, Signed], complaints: Iterable[Complaint]) -> dict[str, bytes]:
    """Return complaints, and the heads of all box keys, as named parts; none without a complaint."""
    listed: dict[str, bytes] = {}
    room = _MOST_COMPLAINTS
    for data in (complaint.to_bytes() for complaint in complaints):
        room -= len(data)
        if room >= 0:
            listed[f"{len(listed):06d}"] = data
    return {_COMPLAINTS: join_parts(listed), **numbered(_HEADS, heads)} if listed else {}


def read_complaints(parts: Mapping[str, bytes], clients: int) -> list[Complaint]:
    """Return the complaints among untrusted parts, at most one a client. Raises `PeerFault("malformed")`."""
    listed = split_parts(parts[_COMPLAINTS], clients) if _COMPLAINTS in parts else {}
    return [Complaint.from_bytes(data, clients) for data in listed.values()]
