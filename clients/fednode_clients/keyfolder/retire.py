"""Closing every task of a key folder for good: what makes a folder safe that was damaged, copied or put back."""

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from fednode.disk.atomic import sync_folder, write_whole
from fednode.errors import StoreError
from fednode_clients.keyfolder.audit_log import RECORD_FILE
from fednode_clients.keyfolder.exclusive import exclusive
from fednode_clients.keyfolder.folder import RETIRED, TASKS, KeyFolder, hashed, marks

_NAMED_BY = ("joined", "confirmed", "opened")


@dataclass(frozen=True, slots=True)
class Retired:
    """How many tasks are closed in a folder now, and which of those named it did not know: they may be misspelt."""

    closed: int
    unknown: tuple[str, ...]


def retire(folder: KeyFolder, others: Collection[str] = ()) -> Retired:
    """Close the tasks that the folder knows and those named in `others`, known or not.

    The marks are on disk before anything is cleared away: box keys, shares, sealed updates and answers are destroyed,
    the record is set aside as record-1.jsonl, record-2.jsonl, ... A second call finishes what a crash left. Identity
    and trust stay, so the member can take new tasks: what is closed does not count for its `max-tasks`. Raises
    `StoreError`; then some may not be closed yet.
    """
    with exclusive(folder):
        try:
            retired, state = folder.path / RETIRED, folder.path / "state"
            retired.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder.path)
            known, before = _known(folder), marks(retired)
            for mark in known | {hashed(task) for task in others}:
                write_whole(retired / mark, b"", 0o600)
            for kept in state.iterdir() if state.exists() else ():
                kept.unlink()
            _set_record_aside(folder)
            unknown = tuple(task for task in dict.fromkeys(others) if hashed(task) not in known | before)
            return Retired(len(marks(retired)), unknown)
        except OSError as error:
            raise StoreError(f"could not close the tasks in {folder.path}: {error.strerror}; run it again") from error


def _known(folder: KeyFolder) -> set[str]:
    record = folder.path / RECORD_FILE
    # whatever stands in the place of a damaged record
    data = record.read_bytes() if record.is_file() else b""
    return marks(folder.path / TASKS) | {hashed(task) for task in _named(data)}


def _named(data: bytes) -> Iterator[str]:
    """The tasks in a record, as far as it can be read."""
    for line in data.split(b"\n"):
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield from (task for name in _NAMED_BY if isinstance(task := entry.get(name), str))


def _set_record_aside(folder: KeyFolder) -> None:
    record, number = folder.path / RECORD_FILE, 1
    while (aside := folder.path / f"record-{number}.jsonl").exists():
        number += 1
    if record.exists():
        record.rename(aside)
        sync_folder(folder.path)
