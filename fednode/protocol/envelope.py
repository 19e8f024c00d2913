"""Messages of members: a head that the member signed, and the body and attachments that the head names by hash.

A roster is a list of heads without bodies. It proves to a holder, whatever the node claims, which enrolled clients sent
an update for which round.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort, Member
from fednode.reasons import Reason
from fednode.wire import Fields, canonical, join_parts, pack, parse, split_parts, unpack
from fednode_crypto.errors import BadSignature
from fednode_crypto.identity import SigningKey, VerifyKey

NO_SPEC = bytes(32)
MAX_SIGNED = 1 << 16
"""The most bytes of a head with its signature."""

_DOMAIN = b"envelope"
_ATTACHED, _MARK, _MOST_ATTACHED = "attached", "+", 16
_CHECK, _LONGEST_CHECK = "check", 256
_HEAD = ("kind", "sender", "task", "round", "spec", "about", "size", "sha256")


@dataclass(frozen=True, slots=True)
class Topic:
    """The subject of an envelope: a task, one of its rounds, and the digest of that round's spec."""

    task: str
    round: int = 0
    spec: bytes = NO_SPEC


@dataclass(frozen=True, slots=True)
class Head:
    """What a member signs: sender, kind, task, round, and the size and hash of the body."""

    kind: str
    sender: str
    task: str
    round: int
    spec: bytes
    about: Mapping[str, object]
    size: int
    sha256: bytes

    def to_bytes(self) -> bytes:
        """Return the bytes that are signed."""
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

    def is_update(self, topic: Topic) -> bool:
        """Return whether this is the head of an update for exactly this task, round and spec.

        Node and holders share this rule. The head of an update is small, since every holder gets it: it names its
        attachments, has the check of its boxed shares, and nothing else.
        """
        return self.terse and (self.kind, self.topic) == ("update", topic)

    @property
    def topic(self) -> Topic:
        """The task, the round and its spec."""
        return Topic(self.task, self.round, self.spec)

    @property
    def terse(self) -> bool:
        """Whether `about` names attachments, has the check of the boxed shares, and nothing else."""
        return set(self.about) <= {_ATTACHED, _CHECK}

    def attached(self) -> dict[str, bytes]:
        """Return the SHA-256 of each attachment by name. Raises `PeerFault("malformed")`."""
        if _ATTACHED not in self.about:
            return {}
        listed = Fields(self.about).fields(_ATTACHED)
        return {name: listed.octets(name, 32) for name in listed.raw()}

    def check(self) -> bytes:
        """Return the check of the boxed shares, b"" if there is none. Raises `PeerFault("malformed")`."""
        if _CHECK not in self.about:
            return b""
        try:
            return base64.b64decode(Fields(self.about).text(_CHECK, _LONGEST_CHECK), validate=True)
        except ValueError as error:
            raise PeerFault(Reason.MALFORMED, "the check of the boxed shares is not base64") from error

    @staticmethod
    def from_bytes(data: bytes) -> "Head":
        """Return the head in untrusted bytes. Raises `PeerFault("malformed")`."""
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
        """Return the signature (64 bytes), then the head as it was signed."""
        return self.signature + self.head.to_bytes()

    @staticmethod
    def from_bytes(data: bytes, most: int = MAX_SIGNED) -> "Signed":
        """Undo `to_bytes`, for at most `most` bytes. Raises `PeerFault("malformed")`."""
        if not 64 < len(data) <= most:
            raise PeerFault(Reason.MALFORMED, f"a signed head has 65 to {most} bytes, not {len(data)}")
        return Signed(Head.from_bytes(data[64:]), data[:64])

    def verified(self, cohort: Cohort) -> Member:
        """Return the enrolled member who signed it. Raises `PeerFault`: "stranger" or "bad-signature"."""
        member = cohort.member(self.head.sender)
        self.verified_by(member.verify_key)
        return member

    def verified_by(self, key: VerifyKey) -> None:
        """Return if the owner of `key` signed it. Raises `PeerFault("bad-signature")`."""
        try:
            key.verify(self.signature, _DOMAIN, self.head.to_bytes())
        except BadSignature as error:
            raise PeerFault(Reason.BAD_SIGNATURE, f"{self.head.sender[:64]} did not sign this") from error

    def verified_holder(self, cohort: Cohort, point: int, reason: Reason) -> Member:
        """Return the holder at `point` if it signed this. Raises `PeerFault`: `reason`, or as `verified`."""
        member = self.verified(cohort)
        if (member.role, member.point) != ("holder", point):
            raise PeerFault(reason, f"{member.name} is not the holder at point {point}")
        return member


@dataclass(frozen=True, slots=True)
class Envelope:
    """A signed head with its body and attachments; `from_bytes` has checked their hashes.

    An attachment can be passed on with the head alone: the recipient can check that it is the signed one.
    """

    signed: Signed
    body: bytes = field(repr=False)
    attached: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def head(self) -> Head:
        """The signed head."""
        return self.signed.head

    @property
    def about(self) -> Fields:
        """The small fields of the head, for typed access."""
        return Fields(self.signed.head.about)

    def to_bytes(self) -> bytes:
        """Return the frame that is sent."""
        attached = {_MARK + name: data for name, data in self.attached.items()}
        return pack("envelope", {}, join_parts({"body": self.body, "signed": self.signed.to_bytes(), **attached}))

    @staticmethod
    def from_bytes(data: bytes, max_body: int, max_attached: int = 0) -> "Envelope":
        """Return the envelope in untrusted bytes, sizes and hashes checked; the signature is not checked yet.

        Raises `PeerFault`: what `unpack` raises, "oversize" if the body or all attachments together exceed the sizes
        given, or "damaged".
        """
        frame = unpack("envelope", data, max_body + max_attached + (1 << 17))
        frame.header.only()
        parts = split_parts(frame.body, 2 + _MOST_ATTACHED)
        if not {"body", "signed"} <= set(parts):
            raise PeerFault(Reason.MALFORMED, "an envelope has a head and a body")
        signed, body = Signed.from_bytes(parts.pop("signed")), parts.pop("body")
        if not all(name.startswith(_MARK) for name in parts):
            raise PeerFault(Reason.MALFORMED, "an envelope has a part that is neither head, body nor attachment")
        if len(body) > max_body or sum(map(len, parts.values())) > max_attached:
            raise PeerFault(
                Reason.OVERSIZE, f"a body of {len(body)} bytes with attachments; at most {max_body} and {max_attached}"
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
    """Signs envelopes in the name of one member."""

    name: str
    key: SigningKey = field(repr=False)

    def write(
        self,
        kind: str,
        topic: Topic,
        body: bytes = b"",
        about: Mapping[str, object] | None = None,
        attached: Mapping[str, bytes] | None = None,
    ) -> Envelope:
        """Return a signed envelope of this kind about `topic`; the signature covers the hash of each attachment."""
        attached = attached or {}
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in attached.items()}
        head = Head(
            kind=kind,
            sender=self.name,
            task=topic.task,
            round=topic.round,
            spec=topic.spec,
            about=dict(about or {}) | ({_ATTACHED: hashes} if hashes else {}),
            size=len(body),
            sha256=hashlib.sha256(body).digest(),
        )
        return Envelope(Signed(head, self.key.sign(_DOMAIN, head.to_bytes())), body, attached)


def about_check(check: bytes) -> dict[str, object]:
    """Return what the head of an update says of its boxed shares; nothing if they have no check."""
    return {_CHECK: base64.b64encode(check).decode("ascii")} if check else {}


def numbered(prefix: str, items: Mapping[int, Signed | Envelope]) -> dict[str, bytes]:
    """Return one named part for each Shamir point: `prefix`-1, `prefix`-2, ..."""
    return {f"{prefix}-{point}": item.to_bytes() for point, item in items.items()}


def parts_of_holders(prefix: str, parts: Mapping[str, bytes], cohort: Cohort) -> dict[int, bytes]:
    """Return the parts named `prefix`-1, ... by point, for the holders of this cohort; other parts are ignored."""
    named = {f"{prefix}-{holder.point}": holder.point for holder in cohort.holders}
    return {named[name]: data for name, data in parts.items() if name in named}
