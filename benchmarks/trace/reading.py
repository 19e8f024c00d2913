"""A trace from a file: JSON lines, one request each: `timestamp` in ms and the `hash_ids` of the blocks it reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError

from fednode.errors import DataError


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request: when, in seconds from the trace's own start, and the blocks it reads, in order."""

    at: float
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of time."""

    requests: tuple[TraceRequest, ...]

    def accesses(self) -> list[int]:
        """Return the blocks of all requests, one after another."""
        return [block for request in self.requests for block in request.blocks]


class BadTrace(DataError):
    """A file that is not a trace; the sentence names the first wrong line and what it should be."""


class _Line(BaseModel):
    model_config = ConfigDict(strict=True)

    timestamp: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    hash_ids: list[StrictInt]


_EXPECTED: Final = "expected an object with timestamp (milliseconds, 0 or more) and hash_ids (a list of whole numbers)"


def read_trace(path: Path) -> Trace:
    """Return the trace in `path`; blank lines are skipped. Raises BadTrace, also for a trace without any access."""
    requests: list[TraceRequest] = []
    for number, line in _lines(path):
        try:
            found = _Line.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = f"{first['loc'][0]}: " if first["loc"] else ""
            raise BadTrace(f"{path}, line {number}: {place}{first['msg']}; {_EXPECTED}") from error
        if requests and found.timestamp / 1e3 < requests[-1].at:
            raise BadTrace(f"{path}, line {number}: the timestamp is before the previous one; sort the lines by time")
        requests.append(TraceRequest(found.timestamp / 1e3, tuple(found.hash_ids)))
    if not any(request.blocks for request in requests):
        raise BadTrace(f"{path} holds no access to any block: give a trace with hash_ids")
    return Trace(tuple(requests))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    except OSError as error:
        raise BadTrace(f"could not read {path}: {error.strerror or error}; give the file of a trace") from error
