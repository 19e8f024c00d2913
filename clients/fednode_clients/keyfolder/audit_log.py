"""A member's record as bytes, and the head that says what it held: a line that is gone must not pass for a round that
never was.

The head lies in `state/`, apart from `record.jsonl`: whichever of the two is lost, or put back to an earlier state by
itself, no longer fits the other. Both put back together fit; nothing on one disk can tell that.
"""

import json
from pathlib import Path
from typing import Final

from fednode.errors import StoreError
from fednode.wire import digest

RECORD_FILE: Final = "record.jsonl"
RECORD_HEAD: Final = "record-head"
"""What the head is called among the small files of a key folder."""

_SIZE = 8


def damaged(path: Path, fault: str) -> StoreError:
    """The error of a member that cannot know any more what it did; what to do is safe, whoever does it."""
    return StoreError(
        f"{fault} in {path}: this member must not answer in any task it took. Never put {RECORD_FILE} or state/ back "
        f"from a copy: run `fednode keys retire {path}` and join a new task"
    )


def whole_lines(data: bytes) -> bytes:
    """The lines that were acknowledged: a last one without its end was not."""
    return data[: data.rfind(b"\n") + 1]


def head_of(lines: bytes) -> bytes:
    """How many bytes these are (8, little-endian), and their digest."""
    return len(lines).to_bytes(_SIZE, "little") + digest("record", lines)


def lags(head: bytes | None, lines: bytes) -> bool | None:
    """Whether the head is one line behind, as a crash leaves it: a line counts before the head says so.

    None if they do not fit: a line that the head knows is gone or another, or there are more than one that it does not.
    """
    known = 0 if head is None else int.from_bytes(head[:_SIZE], "little")
    if head is not None and head_of(lines[:known]) != head:
        return None
    behind = lines[known:].count(b"\n")
    return None if behind > 1 else behind == 1


def entries_of(lines: bytes) -> list[dict[str, object]] | None:
    """What the lines say; None if one says nothing."""
    try:
        entries = [json.loads(line) for line in lines.split(b"\n")[:-1]]
    except ValueError:
        return None
    return entries if all(isinstance(entry, dict) for entry in entries) else None
