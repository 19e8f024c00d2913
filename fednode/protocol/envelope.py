"""What a member says: a head that its key signed, a body that the head names by hash, and attachments that it names
too.

A roster is a list of heads without bodies: it proves to a holder, whatever the node claims, which enrolled clients
sent an update for which round.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort, Member
from fednode.reasons import Reason
from fednode.wire import Fields, canonical, join_parts, pack, parse, split_parts, unpack
from fednode_crypto.errors import BadSignature
from fednode_crypto.identity import SigningKey

NO_SPEC = bytes(32)
MAX_SIGNED = 1 << 16
"""Bytes of a head with its signature."""

_DOMAIN = b"envelope"
_ATTACHED, _MARK, _MOST_ATTACHED = "attached", "+", 16
_HEAD = ("kind", "sender", "task", "round", "spec", "about", "size", "sha256")


@dataclass(frozen=True, slots=True)
class Head:
    """Who says what kind of thing about which round, and the hash of the body that goes with it."""

    kind: str
    sender: str
    task: str
    round: int
    spec: bytes
    about: Mapping[str, object]
    size: int
    sha256: bytes

    def to_bytes(self) -> bytes:
        """The bytes that are signed."""
        return canonical(
            {
                "kind": self.kind,
                "sender": self.sender,
                "task": self.task,
                "round": self.round,
                "spec": self.spec.hex(),
                "about": dict(self.about),
                "size": self.size,
                "sha256": self.sha256.hex(),
            }
        )

    def is_update(self, topic: "Topic") -> bool:
        """Whether this heads an update for exactly this task, round and spec: the one rule of node and holders.

        An update says nothing of itself but what is attached: a head is passed on to every holder, so it stays small.
        """
        return self.terse and (self.kind, self.task, self.round, self.spec) == (
            "update",
            topic.task,
            topic.round,
            topic.spec,
        )

    @property
    def terse(self) -> bool:
        """Whether it says nothing of its own but what is attached."""
        return set(self.about) <= {_ATTACHED}

    def attached(self) -> dict[str, bytes]:
        """The SHA-256 of each attachment, by name. Raises `PeerFault("malformed")`."""
        if _ATTACHED not in self.about:
            return {}
        listed = Fields(self.about).fields(_ATTACHED)
        return {name: listed.octets(name, 32) for name in listed.raw()}

    @staticmethod
    def from_bytes(data: bytes) -> "Head":
        """A head from untrusted bytes. Raises `PeerFault("malformed")`."""
        fields = parse(data).only(*_HEAD)
        return Head(
            kind=fields.text("kind"),
            sender=fields.text("sender"),
            task=fields.text("task"),
            round=fields.integer("round", 0, 1_000_000),
            spec=fields.octets("spec", 32),
            about=fields.fields("about").raw(),
            size=fields.integer("size", 0, 1 << 40),
            sha256=fields.octets("sha256", 32),
        )


@dataclass(frozen=True, slots=True)
class Signed:
    """A head and the signature over it, not yet checked."""

    head: Head
    signature: bytes

    def to_bytes(self) -> bytes:
        """Signature first (64 bytes), then the head as it was signed."""
        return self.signature + self.head.to_bytes()

    @staticmethod
    def from_bytes(data: bytes, most: int = MAX_SIGNED) -> "Signed":
        """The inverse of `to_bytes`, for `most` bytes. Raises `PeerFault("malformed")`."""
        if not 64 < len(data) <= most:
            raise PeerFault(Reason.MALFORMED, "no signed head has this size")
        return Signed(Head.from_bytes(data[64:]), data[:64])

    def verified(self, cohort: Cohort) -> Member:
        """The enrolled member who signed it. Raises `PeerFault`: "stranger" or "bad-signature"."""
        member = cohort.member(self.head.sender)
        try:
            member.verify_key.verify(self.signature, _DOMAIN, self.head.to_bytes())
        except BadSignature as error:
            raise PeerFault(Reason.BAD_SIGNATURE, f"{member.name} did not sign this") from error
        return member


@dataclass(frozen=True, slots=True)
class Envelope:
    """A signed head with its body and attachments; `from_bytes` has checked that they belong together.

    An attachment can be passed on by itself: whoever gets it and the head sees that it is the one that was signed.
    """

    signed: Signed
    body: bytes = field(repr=False)
    attached: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def head(self) -> Head:
        """What the sender signed."""
        return self.signed.head

    @property
    def about(self) -> Fields:
        """The head's own small fields, for typed reading."""
        return Fields(self.signed.head.about)

    def to_bytes(self) -> bytes:
        """The frame that travels."""
        attached = {_MARK + name: data for name, data in self.attached.items()}
        return pack("envelope", {}, join_parts({"body": self.body, "signed": self.signed.to_bytes(), **attached}))

    @staticmethod
    def from_bytes(data: bytes, max_body: int, max_attached: int = 0) -> "Envelope":
        """An envelope whose body and attachments are those its head names; the signature is not checked yet.

        Raises `PeerFault`: what `unpack` raises, "oversize" for a body, or attachments together, over the sizes given,
        or "damaged".
        """
        frame = unpack("envelope", data, max_body + max_attached + (1 << 17))
        frame.header.only()
        parts = split_parts(frame.body, 2 + _MOST_ATTACHED)
        if not {"body", "signed"} <= set(parts):
            raise PeerFault(Reason.MALFORMED, "an envelope has a head and a body")
        signed, body = Signed.from_bytes(parts.pop("signed")), parts.pop("body")
        if not all(name.startswith(_MARK) for name in parts):
            raise PeerFault(Reason.MALFORMED, "an envelope has a head, a body and attachments, and nothing else")
        if len(body) > max_body or sum(map(len, parts.values())) > max_attached:
            raise PeerFault(
                Reason.OVERSIZE, f"{len(body)} bytes and attachments, {max_body} and {max_attached} at most"
            )
        envelope = Envelope(signed, body, {name.removeprefix(_MARK): part for name, part in parts.items()})
        envelope._check()
        return envelope

    def _check(self) -> None:
        head = self.head
        if head.size != len(self.body) or head.sha256 != hashlib.sha256(self.body).digest():
            raise PeerFault(Reason.DAMAGED, "the body is not the one that was signed")
        if head.attached() != {name: hashlib.sha256(data).digest() for name, data in self.attached.items()}:
            raise PeerFault(Reason.DAMAGED, "the attachments are not those that were signed")


@dataclass(frozen=True, slots=True)
class Signer:
    """A member's pen: its name and its key."""

    name: str
    key: SigningKey = field(repr=False)

    def write(
        self, kind: str, topic: "Topic", body: bytes = b"", about: Mapping[str, object] | None = None
    ) -> Envelope:
        """An envelope of this kind about `topic`, signed."""
        return self._write(kind, topic, body, dict(about or {}), {})

    def write_with(self, kind: str, topic: "Topic", body: bytes, attached: Mapping[str, bytes]) -> Envelope:
        """The same with attachments: the signature covers the hash of each."""
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in attached.items()}
        return self._write(kind, topic, body, {_ATTACHED: hashes} if hashes else {}, attached)

    def _write(
        self, kind: str, topic: "Topic", body: bytes, about: Mapping[str, object], attached: Mapping[str, bytes]
    ) -> Envelope:
        head = Head(
            kind=kind,
            sender=self.name,
            task=topic.task,
            round=topic.round,
            spec=topic.spec,
            about=about,
            size=len(body),
            sha256=hashlib.sha256(body).digest(),
        )
        return Envelope(Signed(head, self.key.sign(_DOMAIN, head.to_bytes())), body, attached)


@dataclass(frozen=True, slots=True)
class Topic:
    """What an envelope is about: a task, a round of it, and that round's spec digest."""

    task: str
    round: int = 0
    spec: bytes = NO_SPEC
