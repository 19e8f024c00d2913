"""Enrolment for a run on one machine: every member gets a key folder, the enrolment key is used once and forgotten."""

import os
from pathlib import Path

from fednode.errors import ConfigError, StoreError
from fednode.members import member_names
from fednode.protocol.cohort import Cohort
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_crypto.identity import SigningKey

HOW_ENROLLED = "all keys were made by this run on one machine, for this run alone: a study, not a deployment"


def enrol_simulation(root: Path, clients: int, holders: int) -> Cohort:
    """Key folders for all members under `root`, and the signed cohort. Raises `StoreError` or `ConfigError`."""
    enrolment_key = SigningKey.generate()
    _make_private(root)
    folders = {
        name: KeyFolder.create(root / name, name, enrolment_key.public)
        for name in member_names("client", clients) + member_names("holder", holders)
    }
    members = [folders[name].member("client") for name in member_names("client", clients)]
    members += [folders[name].member("holder", point) for point, name in enumerate(member_names("holder", holders), 1)]
    return Cohort.enrol(members, enrolment_key)


def _make_private(root: Path) -> None:
    """A folder of ours in a folder of ours (or the system's): elsewhere keys are no secret."""
    try:
        root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
        owners = {root.parent.stat().st_uid, root.lstat().st_uid}
    except OSError as error:
        raise StoreError(f"could not make the key folder {root}: {error.strerror}") from error
    if not owners <= {os.getuid(), 0} or root.is_symlink():
        raise ConfigError(f"{root} belongs to somebody else; set key-root to a folder of your own")
