"""Enrolment for a run on one machine: every member gets a key folder, the enrolment key is used once and forgotten."""

from dataclasses import dataclass
from pathlib import Path

from fednode.disk.private_folder import claim_private
from fednode.members import member_names
from fednode.observer import Progress
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Signer
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.state_files import COMMON
from fednode_clients.membership import SET_KEY_ROOT
from fednode_crypto.identity import SigningKey

HOW_ENROLLED = "all keys were made by this run on one machine, with the limits that it needs: a study, not a deployment"


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What the node needs of an enrolment: the signed list of members, and its own key, which the list names."""

    cohort: Cohort
    signer: Signer


def enrol_simulation(root: Path, clients: int, holders: int, progress: Progress = lambda *_: None) -> Enrolled:
    """Make key folders for all members under `root`, the signed cohort, and the node's key, which is kept in memory.

    Raises `StoreError` or `ConfigError`.
    """
    enrolment_key, signer = SigningKey.generate(), Signer("node", SigningKey.generate())
    claim_private(root, SET_KEY_ROOT)
    (root / COMMON).mkdir(mode=0o700)
    names = member_names("client", clients) + member_names("holder", holders)
    folders: dict[str, KeyFolder] = {}
    for name in names:
        folders[name] = KeyFolder.create(root / name, name, enrolment_key.public)
        progress("making keys", len(folders), len(names))
    members = [folders[name].member("client") for name in member_names("client", clients)]
    members += [folders[name].member("holder", point) for point, name in enumerate(member_names("holder", holders), 1)]
    return Enrolled(Cohort.enrol(members, enrolment_key, signer.key.public), signer)
