"""A member's key folder: secrets, what it agreed to, and what it has done, on disk before it counts.

    identity.json   name, signing key, box key            mode 0600
    enrolment.pub   the enrolment key's public half       the trust root: nothing else says who is in a cohort
    state/          small files by name                   shares of joint keys, answers, sealed updates
    tasks/          an empty file for each task           how many this member has taken: names come from the node
    retired/        an empty file for each closed task    nothing of it is answered any more, for ever (`retiring`)
    turn.lock       an empty file                         whose turn it is (`turns`)
    record.jsonl    one line for every round joined, confirmed or opened, fsynced before the answer leaves; its head
                    is in state/ (`record`)
    record-N.jsonl  the record as it was when tasks were closed; nothing reads it again (`retiring`)

The folder is 0700. Nothing of it ever goes into Flower's context.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fednode.disk.atomic import append_line, write_whole
from fednode.disk.private import make_private
from fednode.disk.temp_files import sweep_temp_files, writing_in
from fednode.errors import ConfigError, PeerFault, StoreError
from fednode.protocol.cohort import Member, Role
from fednode.protocol.envelope import Signer
from fednode.reasons import Reason
from fednode.wire import canonical, digest
from fednode_clients.keyfolder.audit_log import (
    RECORD_FILE,
    RECORD_HEAD,
    damaged,
    entries_of,
    head_of,
    lags,
    whole_lines,
)
from fednode_crypto import CryptoError
from fednode_crypto.identity import BoxKey, SigningKey, VerifyKey

_HASHED: Final = re.compile(r"[0-9a-f]{40}")
PUBLIC_FILE: Final = "enrolment.pub"
TASKS: Final = "tasks"
RETIRED: Final = "retired"
PUBLIC_KIND: Final = "fednode-enrolment-public-1"
SECRET_KIND: Final = "fednode-enrolment-secret-1"  # noqa: S105 (the name of a kind, no secret)
"""First words of the two enrolment files. Both hold 64 hexadecimal digits: without a kind they would look the same."""


class KeyFolder:
    """The folder at `path`, opened. Its representation shows the path and the member's name, never a key."""

    def __init__(self, path: Path, name: str, keys: tuple[SigningKey, BoxKey], enrolment_key: VerifyKey) -> None:
        self.path, self.name, self.enrolment_key = path, name, enrolment_key
        self._signing_key, self._box_key = keys

    def __repr__(self) -> str:
        return f"KeyFolder({self.path}, {self.name})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a key folder is not pickled: open it where it lies")

    @staticmethod
    def create(path: Path, name: str, enrolment_key: VerifyKey) -> "KeyFolder":
        """Make new keys for `name` in a folder that does not hold any yet.

        Raises `ConfigError` if there are keys already (nothing is overwritten) and `StoreError` if it cannot be
        written.
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
        return KeyFolder(path, name, keys, enrolment_key)

    @staticmethod
    def open(path: Path) -> "KeyFolder":
        """The keys in `path`.

        Raises `ConfigError` if they are missing, unreadable, or readable by others, or if enrolment.pub is anything
        but the public half of an enrolment key.
        """
        file = path / "identity.json"
        try:
            for place in (path, path / "enrolment.pub"):
                if place.exists() and place.stat().st_mode & 0o022:
                    raise ConfigError(
                        f"others can write to {place}, so whom to trust is theirs to say; run chmod go-w on it"
                    )
            if file.stat().st_mode & 0o077:
                raise ConfigError(
                    f"{file} is readable by others; run chmod 600 on it and ask whether the keys are still secret"
                )
            identity = json.loads(file.read_bytes())
            keys = (
                SigningKey.from_private_bytes(bytes.fromhex(identity["signing_key"])),
                BoxKey.from_private_bytes(bytes.fromhex(identity["box_key"])),
            )
            name = str(identity["name"])
        except FileNotFoundError as error:
            raise ConfigError(f"no keys in {path}; make them with `fednode keys init`") from error
        except (OSError, ValueError, KeyError, TypeError, CryptoError) as error:
            # the text of the fault may hold a part of a key: it is not passed on
            raise ConfigError(
                f"the keys in {path} cannot be read; put identity.json and {PUBLIC_FILE} back from a copy, never "
                f"{RECORD_FILE} or state/, and run `fednode keys retire {path}`"
            ) from error.with_traceback(None)
        return KeyFolder(path, name, keys, read_enrolment_public(path / PUBLIC_FILE))

    @property
    def signer(self) -> Signer:
        """The member's pen."""
        return Signer(self.name, self._signing_key)

    @property
    def box_key(self) -> BoxKey:
        """The key that boxes for this member open with."""
        return self._box_key

    def member(self, role: Role, point: int = 0) -> Member:
        """The public half, as it goes into a cohort."""
        return Member(self.name, role, self._signing_key.public, self._box_key.public, point)

    def put(self, name: str, data: bytes) -> None:
        """Store `data` under `name`, whole or not at all, before returning. Raises `StoreError`."""
        file = self._file(name)
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            with writing_in(file.parent):
                write_whole(file, data, 0o600)
        except OSError as error:
            raise StoreError(f"could not use {file.parent}: {error.strerror}; make the folder writable") from error

    def get(self, name: str) -> bytes | None:
        """What was stored under `name`, or None."""
        try:
            return self._file(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"could not read {self._file(name)}: {error.strerror}") from error

    def shorten(self, name: str, size: int) -> None:
        """Keep the first `size` bytes under `name`, in place: that wants no room on the disk. Raises `StoreError`."""
        try:
            descriptor = os.open(self._file(name), os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(f"could not shorten {self._file(name)}: {error.strerror}; make it writable") from error

    def sweep(self) -> None:
        """Remove what processes that died left half written. For whoever is alone with the folder."""
        for folder in ("state", TASKS, RETIRED):
            sweep_temp_files(self.path / folder, _HASHED)

    def drop(self, name: str) -> None:
        """Forget what was stored under `name`. Raises `StoreError`."""
        try:
            self._file(name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"could not remove {self._file(name)}: {error.strerror}; make it writable") from error

    def admit(self, task: str, most: int) -> None:
        """Return if something of `task` may be kept here: it was admitted before, or fewer than `most` open tasks were.

        A task that was closed does not count, and is not admitted again: nothing of it is left but a mark, and only
        whoever has the folder closes any. Call it before the first thing of a task is kept. Raises `PeerFault`:
        "task-cap", "retired"; `StoreError`.
        """
        self.require_open(task)
        tasks = self.path / TASKS
        mark = tasks / hashed(task)
        if mark.exists():
            return
        try:
            tasks.mkdir(mode=0o700, exist_ok=True)
            taken = self._taken()
            if taken < most:
                with writing_in(tasks):
                    write_whole(mark, b"", 0o600)
                # counted again: another process may have come in between, and neither overlooks the other
                if self._taken() <= most:
                    return
                mark.unlink()
        except OSError as error:
            raise StoreError(f"could not count the tasks in {tasks}: {error.strerror}; make it writable") from error
        raise PeerFault(
            Reason.TASK_CAP,
            f"{taken} tasks taken, {most} are my most: set max-tasks higher in this member's own configuration, or run "
            "fednode keys retire on its key folder between runs, which closes all of them for good",
        )

    def _taken(self) -> int:
        """How many tasks were taken and not closed since. Raises `OSError`."""
        return len(marks(self.path / TASKS) - marks(self.path / RETIRED))

    def require_open(self, task: str) -> None:
        """Return if `task` was not closed here for good. Raises `PeerFault("retired")`, `StoreError`."""
        try:
            closed = (self.path / RETIRED / hashed(task)).exists()
        except OSError as error:
            raise StoreError(f"could not look into {self.path / RETIRED}: {error.strerror}") from error
        if closed:
            raise PeerFault(Reason.RETIRED, f"{self.name} takes no part in {task} any more")

    def record(self, entry: Mapping[str, object]) -> None:
        """Add a line to the record and fsync, then its head.

        Raises `StoreError`; the line may then be there all the same: it counts, though nothing was answered for it.
        """
        lines = self.settle()
        line = canonical(entry)
        append_line(self.path / RECORD_FILE, line)
        self.put(RECORD_HEAD, head_of(lines + line + b"\n"))

    def settle(self) -> bytes:
        """Every line of the record, once its head says all of them: no answer may rest on a line that it does not know.

        For whoever is alone with the folder. Raises `StoreError`, as `recorded` does.
        """
        lines, behind = self._lines()
        if entries_of(lines) is None:
            raise damaged(self.path, f"{RECORD_FILE} is damaged")
        if behind:
            self.put(RECORD_HEAD, head_of(lines))
        return lines

    def recorded(self) -> list[dict[str, object]]:
        """Every line of the record. A last line without its end was never acknowledged and does not count.

        Raises `StoreError` if it cannot be read, or does not fit its head: lines are gone.
        """
        entries = entries_of(self._lines()[0])
        if entries is None:
            raise damaged(self.path, f"{RECORD_FILE} is damaged")
        return entries

    def _lines(self) -> tuple[bytes, bool]:
        """The record, and whether its head is one line behind."""
        head, again = self.get(RECORD_HEAD), None
        while True:
            lines, again = whole_lines(self._record_bytes()), self.get(RECORD_HEAD)
            # else another process added a line in between
            if again == head:
                break
            head = again
        behind = lags(head, lines)
        if behind is None:
            why = ", as after a version of fednode that kept no head of it" if head is None else ""
            raise damaged(self.path, f"{RECORD_FILE} and state/ do not fit together{why}")
        return lines, behind

    def _record_bytes(self) -> bytes:
        try:
            return (self.path / RECORD_FILE).read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(f"could not read {self.path / RECORD_FILE}: {error.strerror}") from error

    def _file(self, name: str) -> Path:
        return self.path / "state" / hashed(name)


def marks(folder: Path) -> set[str]:
    """The marks in a folder of them; none where there is no folder. Raises `OSError`."""
    # a mark that is being written has a name that begins with a dot
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.exists() else set()


def hashed(name: str) -> str:
    """A file's name, which no name from outside can lead out of its folder."""
    return digest("key-folder", name.encode("utf-8")).hex()[:40]


def write_enrolment_public(file: Path, key: VerifyKey) -> None:
    """Put the public half of an enrolment key in `file`, after the word that says so. Raises `StoreError`."""
    write_whole(file, f"{PUBLIC_KIND} {key.raw.hex()}\n".encode(), 0o644)


def read_enrolment_public(file: Path) -> VerifyKey:
    """The public half of an enrolment key. Raises `ConfigError` for any other file, a secret one first of all."""
    try:
        kind, _, digits = file.read_text(encoding="ascii").strip().partition(" ")
        if kind == SECRET_KIND:
            raise ConfigError(
                f"{file} holds the secret enrolment key, which nobody but the enroller may have; name {PUBLIC_FILE}, "
                "the file with its public half"
            )
        if kind != PUBLIC_KIND:
            raise ValueError("another kind of file")
        return VerifyKey(bytes.fromhex(digits))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}; ask whoever enrols for {PUBLIC_FILE}") from None
    except (ValueError, CryptoError):
        # the text of the fault may hold a part of a secret
        raise ConfigError(
            f"{file} does not hold the public half of an enrolment key; ask whoever enrols for {PUBLIC_FILE}"
        ) from None
