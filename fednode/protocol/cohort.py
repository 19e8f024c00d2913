"""The trust root: the list of members, signed by an enrolment key that is not the node's.

A cohort file has the role and public keys of every member, and one signature. The public enrolment key is in the
configuration of every client and holder, so they refuse a node that invents members or swaps a holder's key.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fednode.errors import PeerFault
from fednode.reasons import Reason
from fednode.wire import Fields, canonical, digest, parse
from fednode_crypto import CryptoError
from fednode_crypto.errors import BadSignature
from fednode_crypto.identity import BoxPublicKey, SigningKey, VerifyKey

Role = Literal["client", "holder"]
MAX_MEMBERS = 100_000
MAX_COHORT = 1 << 25
"""The most bytes of a cohort file: `MAX_MEMBERS` members with the longest names."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_DOMAIN = b"cohort"


@dataclass(frozen=True, slots=True)
class Member:
    """One enrolled party. `point` is the Shamir point of a holder (1 to k) and 0 for a client."""

    name: str
    role: Role
    verify_key: VerifyKey
    box_key: BoxPublicKey
    point: int = 0

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ValueError(f"{self.name!r} is not a member name: use 1 to 63 letters, digits and . _ -")
        if self.point < 0 or (self.role == "holder") != (self.point > 0):
            raise ValueError(f"{self.name}: a holder needs a point of 1 or more, a client has point 0")

    def to_dict(self) -> dict[str, object]:
        """Return the JSON-safe form; keys in hexadecimal."""
        return {
            "name": self.name,
            "role": self.role,
            "verify_key": self.verify_key.raw.hex(),
            "box_key": self.box_key.raw.hex(),
            "point": self.point,
        }

    @staticmethod
    def from_fields(row: Fields) -> "Member":
        """Return the member in untrusted fields. Raises `PeerFault("malformed")`."""
        row.only("name", "role", "verify_key", "box_key", "point")
        role = row.text("role")
        if role not in ("client", "holder"):
            raise PeerFault(Reason.MALFORMED, f"unknown role {role}: a member is a client or a holder")
        try:
            return Member(
                name=row.text("name"),
                role="client" if role == "client" else "holder",
                verify_key=VerifyKey(row.octets("verify_key", 32)),
                box_key=BoxPublicKey(row.octets("box_key", 32)),
                point=row.integer("point", 0, 255),
            )
        except (ValueError, CryptoError) as error:
            raise PeerFault(Reason.MALFORMED, str(error)) from error


@dataclass(frozen=True, slots=True)
class Cohort:
    """The signed list of members."""

    members: tuple[Member, ...]
    signature: bytes

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        keys = [key for member in self.members for key in (member.verify_key.raw, member.box_key.raw)]
        points = sorted(member.point for member in self.members if member.role == "holder")
        if len(set(names)) != len(names) or len(set(keys)) != len(keys):
            raise ValueError("a name or key is in the cohort twice")
        if points != list(range(1, len(points) + 1)):
            raise ValueError(f"the points of the holders must be 1 to {len(points)}, not {points}")

    @staticmethod
    def enrol(members: Iterable[Member], enrolment_key: SigningKey) -> "Cohort":
        """Return the signed cohort of these members. Raises `ValueError` on a repeat or a gap in the points."""
        listed = tuple(sorted(members, key=lambda member: member.name))
        return Cohort(listed, enrolment_key.sign(_DOMAIN, _listing(listed)))

    def verified(self, enrolment_public: VerifyKey) -> "Cohort":
        """Return self if `enrolment_public` signed it. Raises `PeerFault("unknown-cohort")`."""
        try:
            enrolment_public.verify(self.signature, _DOMAIN, _listing(self.members))
        except BadSignature as error:
            raise PeerFault(Reason.UNKNOWN_COHORT, "the enrolment key did not sign this list") from error
        return self

    def digest(self) -> bytes:
        """Return 32 bytes that identify this list, without its signature."""
        return digest("cohort", _listing(self.members))

    @property
    def clients(self) -> tuple[Member, ...]:
        """The members that may send updates."""
        return tuple(member for member in self.members if member.role == "client")

    @property
    def holders(self) -> tuple[Member, ...]:
        """The key holders, in the order of their points."""
        return tuple(sorted((m for m in self.members if m.role == "holder"), key=lambda m: m.point))

    def member(self, name: str) -> Member:
        """Return the member of this name. Raises `PeerFault("stranger")`."""
        for member in self.members:
            if member.name == name:
                return member
        raise PeerFault(Reason.STRANGER, f"{name[:64]} is not enrolled")

    def to_bytes(self) -> bytes:
        """Return the content of the cohort file: JSON."""
        return canonical({**json.loads(_listing(self.members)), "signature": self.signature.hex()})

    @staticmethod
    def from_bytes(data: bytes) -> "Cohort":
        """Return the cohort in a file or a message, its signature not checked yet.

        Raises `PeerFault`: "oversize" for more than `MAX_COHORT` bytes, "malformed".
        """
        fields = parse(data.strip(), MAX_COHORT).only("format", "members", "signature")
        if fields.text("format") != "fednode-cohort-1":
            raise PeerFault(Reason.MALFORMED, "not a FedNode cohort file")
        members = tuple(Member.from_fields(row) for row in fields.rows("members", MAX_MEMBERS))
        try:
            return Cohort(members, fields.octets("signature", 64))
        except ValueError as error:
            raise PeerFault(Reason.MALFORMED, str(error)) from error


def _listing(members: tuple[Member, ...]) -> bytes:
    return canonical({"format": "fednode-cohort-1", "members": [member.to_dict() for member in members]})
