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


def read_cohort(file: Path) -> Cohort:
    """The cohort in `file`, its signature not yet checked. Raises DataError or StoreError with what to do."""
    refuse_secret(file, "a cohort file, or the folder of the key")
    try:
        return Cohort.from_bytes(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from None
    except (PeerFault, CryptoError):
        raise StoreError(f"{file} is not a cohort file, or was changed; ask the enroller for it") from None


def enrol(key: SigningKey, clients: Sequence[Path], holders: Sequence[Path]) -> Cohort:
    """Sign a cohort of these cards; holders get the points 1, 2, ... in the order given.

    Raises DataError if a card cannot be read, ConfigError if a name or key comes twice.
    """
    members = [read_card(file) for file in clients]
    members += [_as_holder(read_card(file), point) for point, file in enumerate(holders, start=1)]
    try:
        return Cohort.enrol(members, key)
    except ValueError as error:
        raise ConfigError(f"these cards make no cohort: {error}") from None


def _as_holder(member: Member, point: int) -> Member:
    return dataclasses.replace(member, role="holder", point=point)


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
