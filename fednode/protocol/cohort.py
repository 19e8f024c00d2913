"""The trust root: the list of members, signed by an enrolment key that is not the node's.

A cohort file is the signature in hexadecimal, a line feed, and the listing that it signs: canonical JSON with a serial,
an expiry, the node's key, and the role and public keys of every member. The public enrolment key is in every member's
key folder, so they refuse a node that invents members or swaps a holder's key. They check the signature over the bytes
first: nothing of a list that the enroller did not sign is parsed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
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

NO_END = 253_402_300_799
"""The latest expiry, the end of the year 9999: of a list whose keys end with the run that made them."""

_FORMAT = "fednode-cohort-2"
_SIGNATURE_SIZE = 64
_MOST_SERIAL = 1 << 40
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


@dataclass(frozen=True)
class Cohort:
    """The signed list of members. `listing` is what was signed; `expires` is in seconds since 1970, UTC.

    Of two lists that one enroller signed, the one with the higher `serial` holds. `node` checks the node's requests.
    """

    members: tuple[Member, ...]
    serial: int
    expires: int
    node: VerifyKey
    listing: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def __post_init__(self) -> None:
        owners: dict[str | bytes, str] = {self.node.raw: "the node"}
        for member in self.members:
            for part in (member.name, member.verify_key.raw, member.box_key.raw):
                if part in owners:
                    twice = "is in the cohort twice" if part == member.name else f"has a key of {owners[part]}"
                    raise ValueError(f"{member.name} {twice}")
                owners[part] = member.name
        points = [holder.point for holder in self.holders]
        if points != list(range(1, len(points) + 1)):
            raise ValueError(f"the points of the holders must be 1 to {len(points)}, not {points}")

    @staticmethod
    def enrol(
        members: Iterable[Member], enrolment_key: SigningKey, node: VerifyKey, serial: int = 1, expires: int = NO_END
    ) -> "Cohort":
        """Return the signed cohort of these members. Raises `ValueError` on a repeat or a gap in the points."""
        listed = tuple(sorted(members, key=lambda member: member.name))
        content = {"format": _FORMAT, "serial": serial, "expires": expires, "node": node.raw.hex()}
        listing = canonical({**content, "members": [member.to_dict() for member in listed]})
        return Cohort(listed, serial, expires, node, listing, enrolment_key.sign(_DOMAIN, listing))

    @staticmethod
    def verified_from_bytes(data: bytes, enrolment_key: VerifyKey) -> "Cohort":
        """Return the cohort in a file or a message, if `enrolment_key` signed it: nothing is parsed before.

        Raises `PeerFault`: "oversize" for more than `MAX_COHORT` bytes, "unknown-cohort", "malformed".
        """
        return _verified(data, enrolment_key)

    @staticmethod
    def from_bytes(data: bytes) -> "Cohort":
        """Return the cohort in a file that nobody vouches for, to show it. Raises as `verified_from_bytes`."""
        return _read(*_split(data))

    def digest(self) -> bytes:
        """Return 32 bytes that identify this list, without its signature."""
        return self._digest

    @cached_property
    def clients(self) -> tuple[Member, ...]:
        """The members that may send updates."""
        return tuple(member for member in self.members if member.role == "client")

    @cached_property
    def holders(self) -> tuple[Member, ...]:
        """The key holders, in the order of their points."""
        return tuple(sorted((m for m in self.members if m.role == "holder"), key=lambda m: m.point))

    @cached_property
    def indices(self) -> Mapping[str, int]:
        """The place of each client in `clients`, by name."""
        return {member.name: index for index, member in enumerate(self.clients)}

    @cached_property
    def _named(self) -> Mapping[str, Member]:
        return {member.name: member for member in self.members}

    @cached_property
    def _digest(self) -> bytes:
        return digest("cohort", self.listing)

    def member(self, name: str) -> Member:
        """Return the member of this name. Raises `PeerFault("stranger")`."""
        if name not in self._named:
            raise PeerFault(Reason.STRANGER, f"{name[:64]} is not enrolled")
        return self._named[name]

    def to_bytes(self) -> bytes:
        """Return the content of the cohort file."""
        return self.signature.hex().encode("ascii") + b"\n" + self.listing


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Return signature and listing, neither checked."""
    if len(data) > MAX_COHORT:
        raise PeerFault(Reason.OVERSIZE, f"a cohort of {len(data)} bytes, {MAX_COHORT} at most")
    signature, _, listing = data.strip().partition(b"\n")
    if not re.fullmatch(rb"[0-9a-f]{%d}" % (2 * _SIGNATURE_SIZE), signature):
        raise PeerFault(Reason.MALFORMED, f"not a cohort file of the format {_FORMAT}: enrol the members anew")
    return bytes.fromhex(signature.decode("ascii")), listing


@lru_cache(maxsize=1)
def _verified(data: bytes, enrolment_key: VerifyKey) -> Cohort:
    """A member meets the same list with each of its tasks and requests: it checks and parses it once."""
    signature, listing = _split(data)
    try:
        enrolment_key.verify(signature, _DOMAIN, listing)
    except BadSignature as error:
        raise PeerFault(Reason.UNKNOWN_COHORT, "the enrolment key did not sign this list") from error
    return _read(signature, listing)


def _read(signature: bytes, listing: bytes) -> Cohort:
    fields = parse(listing, MAX_COHORT).only("format", "serial", "expires", "node", "members")
    if fields.text("format") != _FORMAT:
        raise PeerFault(Reason.MALFORMED, "not a FedNode cohort file")
    serial, expires = fields.integer("serial", 1, _MOST_SERIAL), fields.integer("expires", 0, NO_END)
    members = tuple(Member.from_fields(row) for row in fields.rows("members", MAX_MEMBERS))
    try:
        return Cohort(members, serial, expires, VerifyKey(fields.octets("node", 32)), listing, signature)
    except (ValueError, CryptoError) as error:
        raise PeerFault(Reason.MALFORMED, str(error)) from error
