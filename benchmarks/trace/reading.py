"""A trace from a file: JSON lines, one request each: `timestamp` in ms and the `hash_ids` of the blocks it reads."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fednode.errors import DataError


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when, in seconds from the trace's own start, and the blocks it reads, in order."""

    at: float
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of time."""

    requests: tuple[Request, ...]

    def accesses(self) -> list[int]:
        """Return the blocks of all requests, one after another."""
        return [block for request in self.requests for block in request.blocks]


class BadTrace(DataError):
    """A file that is no trace: the sentence says which line and what it should be."""


def read_trace(path: Path) -> Trace:
    """Return the trace in `path`. Raises BadTrace, with the number of the first line that is none, or for no file.

    Blank lines are passed over; a trace without one access is none.
    """
    requests: list[Request] = []
    for number, line in _lines(path):
        request = _request(line, f"{path}, line {number}")
        if requests and request.at < requests[-1].at:
            raise BadTrace(f"{path}, line {number}: the timestamp lies before the one above; sort the lines by time")
        requests.append(request)
    if not any(request.blocks for request in requests):
        raise BadTrace(f"{path} holds no access to any block: give a trace with hash_ids")
    return Trace(tuple(requests))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.decode()
    except UnicodeDecodeError as error:
        raise BadTrace(f"{path}, line {number}: not UTF-8 text; give JSON lines") from error
    except OSError as error:
        raise BadTrace(f"could not read {path}: {error.strerror or error}; give the file of a trace") from error


def _request(line: str, where: str) -> Request:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadTrace(f"{where}: not JSON; give an object with timestamp and hash_ids on each line") from error
    if not isinstance(found, dict):
        raise BadTrace(f"{where}: not a JSON object; give one with timestamp and hash_ids on each line")
    return Request(_seconds(found.get("timestamp"), where), _blocks(found.get("hash_ids"), where))


def _seconds(stamp: Any, where: str) -> float:
    seconds = math.nan
    if isinstance(stamp, int | float) and not isinstance(stamp, bool):
        try:
            seconds = stamp / 1e3
        except OverflowError:
            seconds = math.inf
    if not (math.isfinite(seconds) and seconds >= 0):
        raise BadTrace(f"{where}: timestamp must be a number of milliseconds, 0 or more")
    return seconds


def _blocks(ids: Any, where: str) -> tuple[int, ...]:
    if not isinstance(ids, list) or not all(type(block) is int for block in ids):
        raise BadTrace(f"{where}: hash_ids must be a list of whole numbers, one a block")
    return tuple(ids)
