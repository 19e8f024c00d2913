"""A member's record of what it signed, and the head that shows if a line is missing.

The head, in `state/`, is the length and the digest of `record.jsonl`. If one of the two is lost or restored by itself,
they no longer match. If both are lost, the marks of the tasks show it: the head is written before the first mark. If
both are restored they match, and nothing on one disk can detect that.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fednode.disk.atomic import append_line
from fednode.errors import StoreError
from fednode.wire import canonical, digest
from fednode_clients.keyfolder.state_files import StateFiles
from fednode_clients.keyfolder.task_marks import RETIRED, TASKS, marks_in

RECORD_FILE: Final = "record.jsonl"
RECORD_HEAD: Final = "record-head"
"""The head's name among the small files of a key folder."""

_SIZE = 8


def damaged(path: Path, fault: str) -> StoreError:
    """The error of a member that no longer knows what it signed; it says what is safe to do."""
    return StoreError(
        f"{fault} in {path}: this member must not answer in any task it took. Never put {RECORD_FILE} or state/ back "
        f"from a copy: run `fednode keys retire {path}` and join a new task"
    )


class AuditLog:
    """One JSON line for each round joined, confirmed or opened, on disk before the answer leaves.

    Every method raises `StoreError` if the log cannot be read, is damaged, or does not fit its head.
    """

    def __init__(self, folder: Path, state: StateFiles) -> None:
        self.folder, self._state = folder, state

    def append(self, entry: Mapping[str, object]) -> None:
        """Append one line, then update the head.

        A line whose head could not be written counts, although `StoreError` is raised and nothing is answered for it.
        """
        lines = self.settle()
        line = canonical(entry)
        append_line(self.folder / RECORD_FILE, line)
        self._state.put(RECORD_HEAD, head_of(lines + line + b"\n"))

    def entries(self) -> list[dict[str, object]]:
        """Every line. An incomplete last line was never acknowledged and does not count."""
        return self._read()[1]

    def of(self, verb: str, task: str) -> list[dict[str, object]]:
        """The lines that say "joined", "confirmed" or "opened" of `task`."""
        return [entry for entry in self.entries() if entry.get(verb) == task]

    def settle(self) -> bytes:
        """Bring the head up to date and return the lines: no answer may rest on a line that the head does not cover.

        For the exclusive user of the folder, and before a task is marked as taken: an empty record gets its head here.
        """
        lines, _, behind = self._read()
        if behind:
            self._state.put(RECORD_HEAD, head_of(lines))
        return lines

    def _read(self) -> tuple[bytes, list[dict[str, object]], bool]:
        """The lines, as bytes and parsed, and whether the head is to be written: there is none, or it is one behind."""
        head = self._state.get(RECORD_HEAD)
        # The head comes before the first mark: beside a mark, one that another process has just written is there.
        lost = head is None and self._marked() and (head := self._state.get(RECORD_HEAD)) is None
        while True:
            # Another process may append between our reading the head and our reading the lines. If the head is the
            # same after the lines were read, the lines are at most one ahead of it; otherwise read both again.
            data = self._bytes()
            lines, again = data[: data.rfind(b"\n") + 1], self._state.get(RECORD_HEAD)
            if again == head:
                break
            head = again
        behind = None if lost else lags(head, lines)
        if behind is None:
            why = ", as after a version of fednode that kept no head of it" if head is None else ""
            raise damaged(self.folder, f"{RECORD_FILE} and state/ do not fit together{why}")
        try:
            entries = [json.loads(line) for line in lines.split(b"\n")[:-1]]
        except (ValueError, RecursionError):
            entries = [None]
        if not all(isinstance(entry, dict) for entry in entries):
            raise damaged(self.folder, f"{RECORD_FILE} is damaged")
        return lines, entries, behind or head is None

    def _marked(self) -> bool:
        """Whether a task was ever taken or closed here."""
        try:
            return any(marks_in(self.folder / name) for name in (TASKS, RETIRED))
        except OSError as error:
            raise StoreError(f"could not read the marks in {self.folder}: {error.strerror}") from error

    def _bytes(self) -> bytes:
        try:
            return (self.folder / RECORD_FILE).read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(f"could not read {self.folder / RECORD_FILE}: {error.strerror}") from error


def head_of(lines: bytes) -> bytes:
    """The length of the lines (8 bytes, little-endian) and their digest."""
    return len(lines).to_bytes(_SIZE, "little") + digest("record", lines)


def lags(head: bytes | None, lines: bytes) -> bool | None:
    """Whether the head is one line behind, as after a crash between the two writes; None if they do not fit."""
    known = 0 if head is None else int.from_bytes(head[:_SIZE], "little")
    if head is not None and head_of(lines[:known]) != head:
        return None
    behind = lines[known:].count(b"\n")
    return None if behind > 1 else behind == 1
