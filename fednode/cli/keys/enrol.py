"""The enrolment folder: its secret decides who takes part. It belongs to the enroller, never to the node.

enrolment.key   the Ed25519 secret   mode 0600
enrolment.pub   its public half      goes into every member's key folder

Each is one line: its kind, which tells the two apart, and 64 hexadecimal digits.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from fednode.disk.atomic import write_whole
from fednode.disk.private_folder import make_private
from fednode.errors import ConfigError, DataError, PeerFault, StoreError
from fednode.protocol.cohort import Cohort, Member
from fednode.reasons import Reason
from fednode.wire import canonical, parse
from fednode_clients.keyfolder.enrolment_key import PUBLIC_FILE, PUBLIC_KIND, SECRET_KIND, write_enrolment_public
from fednode_crypto import CryptoError
from fednode_crypto.identity import BoxKey, SigningKey, VerifyKey

KEY_FILE = "enrolment.key"
CARD_FILE = "member.json"


def create_enrolment(folder: Path) -> VerifyKey:
    """Make a new enrolment key and return its public half.

    Raises ConfigError if the folder holds one already, StoreError if it cannot be written.
    """
    refuse_existing(folder / KEY_FILE)
    refuse_existing(folder / PUBLIC_FILE)
    make_private(folder)
    key = SigningKey.generate()
    write_enrolment_public(folder / PUBLIC_FILE, key.public)
    write_whole(folder / KEY_FILE, f"{SECRET_KIND} {key.private_bytes().hex()}\n".encode(), 0o600)
    return key.public


def open_enrolment(folder: Path) -> SigningKey:
    """The enrolment key in `folder`. Raises DataError if it is missing, ConfigError if damaged or open to others."""
    file = folder / KEY_FILE
    try:
        if file.stat().st_mode & 0o077:
            raise ConfigError(f"{file} is readable by others; run chmod 600 on it and ask whether it is still secret")
        kind, _, digits = file.read_text(encoding="ascii").strip().partition(" ")
        if kind == PUBLIC_KIND:
            raise ConfigError(f"{file} holds the public half where the secret should be; restore it from its backup")
        if kind != SECRET_KIND:
            raise ValueError("another kind of file")
        return SigningKey.from_private_bytes(bytes.fromhex(digits))
    except FileNotFoundError:
        raise DataError(f"no enrolment key in {folder}; make one with `fednode keys init --enrolment`") from None
    except (OSError, ValueError):
        # the error's text may hold a part of the key
        raise ConfigError(f"the enrolment key in {folder} cannot be read; restore it from its backup") from None


def kind_of(file: Path) -> str:
    """The first word of an enrolment file (`PUBLIC_KIND` or `SECRET_KIND`), or "" for any other file."""
    longest = max(len(PUBLIC_KIND), len(SECRET_KIND))
    try:
        with file.open("rb") as content:
            start = content.read(longest)
    except OSError:
        return ""
    return next((kind for kind in (PUBLIC_KIND, SECRET_KIND) if start.startswith(kind.encode())), "")


def write_card(file: Path, member: Member) -> None:
    """Write a member's public half for the enroller, who decides role and point."""
    write_whole(file, canonical(member.to_dict()) + b"\n", 0o644)


def read_card(file: Path) -> Member:
    """The public half of a member, as a client. Raises DataError or ConfigError with what to do."""
    refuse_secret(file, f"the {CARD_FILE} of a member")
    try:
        return Member.from_fields(parse(file.read_bytes().strip()))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from None
    except (PeerFault, CryptoError):
        raise ConfigError(f"{file} is not a member's card; ask the member for its {CARD_FILE}") from None


def read_cohort(file: Path, trusted: VerifyKey | None) -> Cohort:
    """The cohort in `file`, checked against the `trusted` enrolment key if given. Raises DataError or StoreError."""
    refuse_secret(file, "a cohort file, or the folder of the key")
    try:
        data = file.read_bytes()
        return Cohort.from_bytes(data) if trusted is None else Cohort.verified_from_bytes(data, trusted)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from None
    except (PeerFault, CryptoError) as error:
        if isinstance(error, PeerFault) and error.reason == Reason.UNKNOWN_COHORT:
            raise StoreError(f"{file} was not signed by this enrolment key: do not use it") from None
        raise StoreError(f"{file} is not a cohort file, or was changed; ask the enroller for it") from None


@dataclasses.dataclass(frozen=True, slots=True)
class Enrolment:
    """What goes into the next cohort file: cards to add to the members of `earlier`, and who of them is taken out.

    `replace` holds NAME=CARD: that member's new card, in its role and at its point. `node` is the node's card.
    """

    clients: Sequence[Path]
    holders: Sequence[Path]
    node: Path | None
    earlier: Path | None = None
    replace: Sequence[str] = ()
    remove: Sequence[str] = ()


def enrol(key: SigningKey, wanted: Enrolment, expires: int) -> Cohort:
    """Sign the cohort: serial 1, or the next after `earlier`; new holders get the next points in the order given.

    Raises DataError if a file cannot be read, ConfigError for a name or key that comes twice, that is not there, that
    was to go and stays, or a holder that is taken out.
    """
    before = read_cohort(wanted.earlier, key.public) if wanted.earlier else None
    members = {member.name: member for member in before.members} if before else {}
    gone = _changed(members, wanted)
    listed, points = list(members.values()), sum(member.role == "holder" for member in members.values())
    listed += [read_card(file) for file in wanted.clients]
    holders = enumerate(map(read_card, wanted.holders), start=points + 1)
    listed += [dataclasses.replace(holder, role="holder", point=point) for point, holder in holders]
    node = read_card(wanted.node).verify_key if wanted.node else before.node if before else None
    if node is None or not {"client", "holder"} <= {member.role for member in listed}:
        raise ConfigError("a cohort needs a node, clients and holders: give --node, --client and --holder, or --from")
    for member in listed:
        if name := gone.get(member.verify_key.raw) or gone.get(member.box_key.raw):
            raise ConfigError(f"a card has a key of {name}, which is to go; ask {member.name} for a card of new keys")
    try:
        return Cohort.enrol(listed, key, node, before.serial + 1 if before else 1, expires)
    except ValueError as error:
        raise ConfigError(f"these cards make no cohort: {error}") from None


def _changed(members: dict[str, Member], wanted: Enrolment) -> dict[bytes, str]:
    """Remove and replace whom `wanted` names; returns the keys that are to go, with whose they were."""
    if wanted.earlier is None and (wanted.remove or wanted.replace):
        raise ConfigError("--remove and --replace change an earlier cohort file; name it with --from FILE")
    swaps = [word.partition("=") for word in wanted.replace]
    gone: dict[bytes, str] = {}
    for name, card in [*((name, None) for name in wanted.remove), *((name, card) for name, _, card in swaps)]:
        if name not in members or name in gone.values():
            why = "comes twice" if name in gone.values() else f"is not in {wanted.earlier}"
            raise ConfigError(f"--remove and --replace name each member of the earlier file once: {name} {why}")
        old = members.pop(name)
        gone |= {old.verify_key.raw: name, old.box_key.raw: name}
        if card is None and old.role != "client":
            raise ConfigError(f"{name} is a holder, and the points of holders have no gaps: replace it instead")
        if card == "":
            raise ConfigError(f"--replace {name} has no card; give {name}=CARD, the file of its new card")
        if card:
            members[name] = dataclasses.replace(read_card(Path(card)), role=old.role, point=old.point)
    return gone


def refuse_existing(file: Path) -> None:
    """Raise ConfigError if `file` exists: keys and cohorts are never overwritten."""
    if file.exists():
        raise ConfigError(f"{file} exists already and is never overwritten; choose another place")


def refuse_bad_name(name: str) -> None:
    """Raise ConfigError if no member can have this name."""
    try:
        Member(name, "client", SigningKey.generate().public, BoxKey.generate().public)
    except ValueError as error:
        raise ConfigError(f"--name: {error}") from None


def refuse_secret(file: Path, wanted: str) -> None:
    """Raise ConfigError if `file` holds the secret enrolment key instead of `wanted`."""
    if kind_of(file) == SECRET_KIND:
        raise ConfigError(f"{file} holds the secret enrolment key; name {wanted} instead")
