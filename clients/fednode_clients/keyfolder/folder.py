"""A member's key folder: its secrets, its tasks and its record, on disk before they count.

    identity.json   name, signing key, box key            mode 0600
    enrolment.pub   the enrolment key's public half       the root of trust: it alone decides who is in a cohort
    state/          small files by name                   `state_files`
    tasks/          an empty file for each task taken     `task_marks`
    cohorts/        an empty file for each serial seen    `cohort_marks`
    retired/        an empty file for each closed task    `retire`
    evidence/       two specs that a node signed for one round   `evidence`
    turn.lock       an empty file                         `exclusive`
    record.jsonl    one line for every round joined, confirmed or opened; its head is in state/   `audit_log`
    record-N.jsonl  a copy of the record as it was when tasks were closed; nothing reads it again

The folder has mode 0700. Nothing of it ever goes into Flower's context.
"""

import json
from pathlib import Path

from fednode.clock import Clock, SystemClock
from fednode.disk.atomic import write_whole
from fednode.disk.private_folder import make_private
from fednode.disk.temp_files import sweep_temp_files
from fednode.errors import ConfigError, DataError
from fednode.protocol.cohort import Member, Role
from fednode.protocol.envelope import Signer
from fednode.wire import canonical
from fednode_clients.keyfolder.audit_log import RECORD_FILE, AuditLog
from fednode_clients.keyfolder.cohort_marks import CohortMarks
from fednode_clients.keyfolder.enrolment_key import PUBLIC_FILE, read_enrolment_public, write_enrolment_public
from fednode_clients.keyfolder.state_files import HASHED, StateFiles
from fednode_clients.keyfolder.task_marks import TaskMarks
from fednode_crypto import CryptoError
from fednode_crypto.identity import BoxKey, SigningKey, VerifyKey


class KeyFolder:
    """The opened folder at `path`. Its repr shows the path and the member's name, never a key."""

    def __init__(
        self, path: Path, name: str, keys: tuple[SigningKey, BoxKey], enrolment_key: VerifyKey, clock: Clock
    ) -> None:
        self.path, self.name, self.enrolment_key = path, name, enrolment_key
        self._signing_key, self.box_key = keys
        self.state = StateFiles(path / "state")
        self.audit_log = AuditLog(path, self.state)
        self.tasks = TaskMarks(path)
        self.cohorts = CohortMarks(path, enrolment_key, clock)

    def __repr__(self) -> str:
        return f"KeyFolder({self.path}, {self.name})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a key folder is not pickled: open it where it lies")

    @staticmethod
    def create(path: Path, name: str, enrolment_key: VerifyKey) -> "KeyFolder":
        """Make new keys for `name`.

        Raises `ConfigError` if the folder holds keys already, `StoreError` if it cannot be written.
        """
        if any((path / file).exists() for file in ("identity.json", PUBLIC_FILE)):
            raise ConfigError(f"{path} holds keys already; choose another folder, keys are never overwritten")
        keys = (SigningKey.generate(), BoxKey.generate())
        make_private(path / "state")
        make_private(path)
        identity = {
            "name": name,
            "signing_key": keys[0].private_bytes().hex(),
            "box_key": keys[1].private_bytes().hex(),
        }
        write_enrolment_public(path / PUBLIC_FILE, enrolment_key)
        write_whole(path / "identity.json", canonical(identity), 0o600)
        return KeyFolder(path, name, keys, enrolment_key, SystemClock())

    @staticmethod
    def open(path: Path, clock: Clock | None = None) -> "KeyFolder":
        """The keys in `path`; `clock`, by default the machine's, says when a cohort expires.

        Raises `DataError` if they are missing, `ConfigError` if damaged or open to others."""
        file = path / "identity.json"
        try:
            for place in (path, path / PUBLIC_FILE):
                if place.exists() and place.stat().st_mode & 0o022:
                    raise ConfigError(f"others can write to {place} and so choose whom it trusts; run chmod go-w on it")
            if file.stat().st_mode & 0o077:
                raise ConfigError(f"others can read {file}; run chmod 600 on it and ask whether it is still secret")
            identity = json.loads(file.read_bytes())
            keys = (
                SigningKey.from_private_bytes(bytes.fromhex(identity["signing_key"])),
                BoxKey.from_private_bytes(bytes.fromhex(identity["box_key"])),
            )
            name = str(identity["name"])
        except (FileNotFoundError, NotADirectoryError) as error:
            what = "name the folder of a member" if path.is_file() else "make them with `fednode keys init`"
            if (path / "state").exists():
                what = f"put identity.json and {PUBLIC_FILE} back from a copy, for its state/ is there"
            raise DataError(f"no keys in {path}; {what}") from error
        except OSError as error:
            raise ConfigError(f"could not read the keys in {path}: {error.strerror}; mend it and try again") from error
        except (ValueError, KeyError, TypeError, RecursionError, CryptoError) as error:
            # the error's text may hold a part of a key
            raise ConfigError(
                f"the keys in {path} cannot be read; put identity.json and {PUBLIC_FILE} back from a copy, never "
                f"{RECORD_FILE} or state/, and run `fednode keys retire {path}`"
            ) from error.with_traceback(None)
        return KeyFolder(path, name, keys, read_enrolment_public(path / PUBLIC_FILE), clock or SystemClock())

    @property
    def signer(self) -> Signer:
        """Signs this member's messages."""
        return Signer(self.name, self._signing_key)

    def member(self, role: Role, point: int = 0) -> Member:
        """The public half, as it goes into a cohort."""
        return Member(self.name, role, self._signing_key.public, self.box_key.public, point)

    def sweep(self) -> None:
        """Remove half-written files of dead processes. For the exclusive user of the folder."""
        for folder in (self.state.folder, self.tasks.taken, self.tasks.retired):
            sweep_temp_files(folder, HASHED)
