"""Closes every task of a key folder for good, which makes a damaged, copied or restored folder safe again."""

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from fednode.disk.atomic import sync_folder, write_whole
from fednode.errors import StoreError
from fednode_clients.keyfolder.audit_log import RECORD_FILE
from fednode_clients.keyfolder.exclusive import exclusive
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.state_files import hashed
from fednode_clients.keyfolder.task_marks import marks_in


@dataclass(frozen=True, slots=True)
class Retired:
    """The number of tasks that this call closed, and the given names that the folder did not know: perhaps misspelt."""

    closed: int
    unknown: tuple[str, ...]


def retire(folder: KeyFolder, others: Collection[str] = ()) -> Retired:
    """Close the tasks that the folder knows, and those named in `others`, known or not.

    First the marks are written, then box keys, shares, sealed updates and answers are destroyed and the record is
    renamed to record-1.jsonl, record-2.jsonl, ... A second call finishes what a crash left. Identity and trust stay:
    the member can take new tasks. Raises `StoreError`; some tasks may then still be open.
    """
    with exclusive(folder):
        try:
            retired, state = folder.tasks.retired, folder.state.folder
            retired.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder.path)
            before = marks_in(retired)
            known = marks_in(folder.tasks.taken) | {hashed(task) for task in _recorded_tasks(folder)}
            closing = known | {hashed(task) for task in others}
            for mark in closing:
                write_whole(retired / mark, b"", 0o600)
            for kept in state.iterdir() if state.exists() else ():
                kept.unlink()
            _rename_record(folder)
            unknown = tuple(task for task in dict.fromkeys(others) if hashed(task) not in known | before)
            return Retired(len(closing - before), unknown)
        except OSError as error:
            raise StoreError(f"could not close the tasks in {folder.path}: {error.strerror}; run it again") from error


def _recorded_tasks(folder: KeyFolder) -> Iterator[str]:
    """The tasks in the record, as far as it can be read."""
    record = folder.path / RECORD_FILE
    for line in record.read_bytes().split(b"\n") if record.is_file() else ():
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                named = (entry.get(verb) for verb in ("joined", "confirmed", "opened"))
                yield from (task for task in named if isinstance(task, str))


def _rename_record(folder: KeyFolder) -> None:
    record, number = folder.path / RECORD_FILE, 1
    while (renamed := folder.path / f"record-{number}.jsonl").exists():
        number += 1
    if record.exists():
        record.rename(renamed)
        sync_folder(folder.path)
