"""The enrolment folder: the one secret that says who takes part. It belongs to whoever enrols, never to the node.

enrolment.key   the Ed25519 secret, hexadecimal   mode 0600
enrolment.pub   its public half                   goes into every member's key folder
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from fednode.errors import ConfigError, PeerFault, StoreError
from fednode.files import write_whole
from fednode.protocol.cohort import Cohort, Member
from fednode.wire import canonical, parse
from fednode_crypto import CryptoError
from fednode_crypto.identity import BoxKey, SigningKey, VerifyKey

KEY_FILE = "enrolment.key"
PUBLIC_FILE = "enrolment.pub"
CARD_FILE = "member.json"


def create_enrolment(folder: Path) -> VerifyKey:
    """Make a new enrolment key in a folder that holds none, and return its public half.

    Raises ConfigError if there is one already (nothing is overwritten) and StoreError if it cannot be written.
    """
    refuse_existing(folder / KEY_FILE)
    refuse_existing(folder / PUBLIC_FILE)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise StoreError(f"could not make the folder {folder}: {error.strerror}") from error
    key = SigningKey.generate()
    write_whole(folder / PUBLIC_FILE, key.public.raw.hex().encode() + b"\n", 0o644)
    write_whole(folder / KEY_FILE, key.private_bytes().hex().encode() + b"\n", 0o600)
    return key.public


def open_enrolment(folder: Path) -> SigningKey:
    """The enrolment key in `folder`. Raises ConfigError if it is missing, unreadable, or readable by others."""
    file = folder / KEY_FILE
    try:
        if file.stat().st_mode & 0o077:
            raise ConfigError(f"{file} is readable by others; run chmod 600 on it and ask whether it is still secret")
        return SigningKey.from_private_bytes(bytes.fromhex(file.read_text(encoding="ascii").strip()))
    except FileNotFoundError:
        raise ConfigError(f"no enrolment key in {folder}; make one with `fednode keys init --enrolment`") from None
    except (OSError, ValueError):
        # the fault's own text may hold a part of the key
        raise ConfigError(f"the enrolment key in {folder} cannot be read; restore it from its backup") from None


def read_public(file: Path) -> VerifyKey:
    """The public half in `file`. Raises ConfigError with what to do."""
    try:
        return VerifyKey.from_bytes(bytes.fromhex(file.read_text(encoding="ascii").strip()))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, CryptoError):
        raise ConfigError(f"{file} is not an enrolment key; ask whoever enrols for their {PUBLIC_FILE}") from None


def write_card(file: Path, member: Member) -> None:
    """Write the public half of a member, for whoever enrols; role and point are decided there."""
    write_whole(file, canonical(member.to_dict()) + b"\n", 0o644)


def read_card(file: Path) -> Member:
    """The public half of a member, as a client. Raises ConfigError with what to do."""
    try:
        return Member.from_fields(parse(file.read_bytes().strip()))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (PeerFault, CryptoError):
        raise ConfigError(f"{file} is not a member's card; ask the member for its {CARD_FILE}") from None


def read_cohort(file: Path) -> Cohort:
    """The cohort in `file`, its signature not yet checked. Raises ConfigError with what to do."""
    try:
        return Cohort.from_bytes(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (PeerFault, CryptoError):
        raise ConfigError(f"{file} is not a cohort file; ask whoever enrols for it") from None


def enrol(key: SigningKey, clients: Sequence[Path], holders: Sequence[Path]) -> Cohort:
    """Sign a cohort of these cards; holders get the points 1, 2, ... in the order given.

    Raises ConfigError if a card cannot be read, or a name or key comes twice.
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
    """Raise ConfigError if `file` is there: keys and cohorts are never overwritten."""
    if file.exists():
        raise ConfigError(f"{file} exists already and is never overwritten; choose another place")


def refuse_bad_name(name: str) -> None:
    """Raise ConfigError if nobody of this name could be enrolled."""
    try:
        Member(name, "client", SigningKey.generate().public, BoxKey.generate().public)
    except ValueError as error:
        raise ConfigError(f"--name: {error}") from None
