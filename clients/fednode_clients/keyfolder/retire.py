"""Closes every task of a key folder for good, which makes a damaged, copied or restored folder safe again."""

import json
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from fednode.disk.atomic import sync_folder, write_whole
from fednode.errors import ConfigError, StoreError
from fednode.wire import canonical
from fednode_clients.keyfolder.audit_log import RECORD_FILE, RECORD_HEAD, head_of
from fednode_clients.keyfolder.exclusive import exclusive
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.spending import MemberSpending
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
    kept as record-1.jsonl, record-2.jsonl, ... The next record begins with what the tasks have cost; if that is not
    known, because the record was damaged or a task in `others` was unknown, no round is joined before
    `fednode keys budget --raise`. A second call finishes what a crash left. Identity and trust stay: the member can
    take new tasks. Raises `ConfigError` for a name that no task has, `StoreError`; some tasks may then still be open.
    """
    if not all(task.isprintable() and 0 < len(task) <= 128 for task in others):
        raise ConfigError("the name of a task has 1 to 128 printable characters; --task takes it as it was")
    with exclusive(folder):
        try:
            retired, state = folder.tasks.retired, folder.state.folder
            retired.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder.path)
            before = marks_in(retired)
            entries, whole = list(_readable(folder)), _intact(folder)
            tasks = (entry.get(verb) for entry in entries for verb in ("joined", "confirmed", "opened"))
            known = marks_in(folder.tasks.taken) | {hashed(task) for task in tasks if isinstance(task, str)}
            closing = known | {hashed(task) for task in others}
            for mark in closing:
                write_whole(retired / mark, b"", 0o600)
            for kept in state.iterdir() if state.exists() else ():
                if kept.name != hashed(RECORD_HEAD):
                    kept.unlink()
            # a name that an earlier call closed has no cost either: that call may have been cut off before the record
            unpriced = [task for task in dict.fromkeys(others) if hashed(task) not in known]
            spent = MemberSpending.of(entries)
            _renew_record(folder, replace(spent, whole=spent.whole and whole and not unpriced).lines())
            return Retired(len(closing - before), tuple(task for task in unpriced if hashed(task) not in before))
        except OSError as error:
            raise StoreError(f"could not close the tasks in {folder.path}: {error.strerror}; run it again") from error


def _readable(folder: KeyFolder) -> Iterator[dict[str, object]]:
    """The lines of the record, as far as it can be read."""
    record = folder.path / RECORD_FILE
    for line in record.read_bytes().split(b"\n") if record.is_file() else ():
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield entry


def _intact(folder: KeyFolder) -> bool:
    try:
        folder.audit_log.entries()
    except StoreError:
        return False
    return True


def _renew_record(folder: KeyFolder, first: list[dict[str, object]]) -> None:
    """Keep a copy of the record, then begin the next one: at no time is there none of what was spent."""
    record, number = folder.path / RECORD_FILE, 1
    while (copy := folder.path / f"record-{number}.jsonl").exists():
        number += 1
    if record.exists() and record.stat().st_size:
        write_whole(copy, record.read_bytes(), 0o600)
    lines = b"".join(canonical(entry) + b"\n" for entry in first)
    write_whole(record, lines, 0o600)
    folder.state.put(RECORD_HEAD, head_of(lines))
