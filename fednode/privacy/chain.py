"""The text of a ledger: one canonical JSON object a line, each holding the hash of the line before it. Pure.

A line is `canonical(body + hash)`, hash = SHA-256 of `canonical(body)`, and the body names the hash before it.
Replaying accepts exactly these bytes, so a changed, dropped, repeated or moved line is detected. Lines missing at the
end are not: to detect them, keep the head hash elsewhere (the report prints it).
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, NoReturn

from fednode.errors import FednodeError, StoreError
from fednode.privacy.budget import Budget
from fednode.privacy.checks import exact_keys, real, whole, words
from fednode.privacy.mechanism import DiscreteGaussianSum
from fednode_crypto.canonical import canonical

VERSION = 1
_GENESIS = "0" * 64
_LAST_ROUND = 2**53
_HEADER_KEYS = frozenset({"budget", "hash", "kind", "previous", "task", "time", "version"})
_ENTRY_KEYS = frozenset({"epsilon_after", "event", "hash", "kind", "previous", "round", "survivors", "time"})
# Sorted keys make these the first bytes of every header and of every entry.
HEADER_START, _ENTRY_START = b'{"budget":', b'{"epsilon_after":'


@dataclass(frozen=True, slots=True)
class LedgerHeader:
    """The task and budget of a ledger; a ledger never serves another."""

    task: str
    budget: Budget
    time: float

    def __post_init__(self) -> None:
        words("task", self.task)
        object.__setattr__(self, "time", real("time", self.time))


@dataclass(frozen=True, slots=True)
class ChargeRecord:
    """One charge: the event, the round, its survivors, the wall time, and the epsilon spent after it."""

    round_number: int
    event: DiscreteGaussianSum
    survivors: tuple[str, ...]
    time: float
    epsilon_after: float

    def __post_init__(self) -> None:
        whole("round", self.round_number, 0, _LAST_ROUND)
        if not isinstance(self.event, DiscreteGaussianSum):
            raise ValueError(f"unknown mechanism {type(self.event).__name__}: the ledger cannot price it")
        if not isinstance(self.survivors, tuple):
            raise ValueError("survivors must be a tuple of names")
        for name in self.survivors:
            words("a survivor's name", name)
        if len(set(self.survivors)) != len(self.survivors):
            raise ValueError("survivors must be named once each")
        if self.event.contributors > len(self.survivors):
            raise ValueError(
                f"the event counts the noise of {self.event.contributors} clients, but {len(self.survivors)} survived"
            )
        object.__setattr__(self, "time", real("time", self.time))
        object.__setattr__(self, "epsilon_after", real("epsilon_after", self.epsilon_after))


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A charge and the hash of its line."""

    charge: ChargeRecord
    hash: str


@dataclass(frozen=True, slots=True)
class History:
    """The content of a ledger of `size` bytes; `head` is the hash of the last line."""

    header: LedgerHeader | None = None
    entries: tuple[LedgerEntry, ...] = ()
    head: str = _GENESIS
    size: int = 0

    @property
    def last_round(self) -> int:
        """The last round charged; -1 before the first."""
        return self.entries[-1].charge.round_number if self.entries else -1


@dataclass(frozen=True, slots=True)
class Replay:
    """A history, and the end of the file: `torn` bytes of an unfinished line, or a last line without its newline."""

    history: History
    torn: int
    newline_missing: bool


def append_header(history: History, header: LedgerHeader) -> tuple[History, bytes]:
    """Return the history with its header, and the line to write."""
    body = {"kind": "header", "version": VERSION, "task": header.task, "budget": header.budget.to_dict()}
    line, head = _sealed(body | {"time": header.time, "previous": history.head})
    return History(header, (), head, history.size + len(line)), line


def append_charge(history: History, charge: ChargeRecord) -> tuple[History, bytes]:
    """Return the history with one more charge, and the line to write. ValueError unless its round is a later one."""
    _require_later(charge.round_number, history.last_round)
    body = {
        "kind": "charge",
        "round": charge.round_number,
        "event": charge.event.to_dict(),
        "survivors": list(charge.survivors),
        "time": charge.time,
        "epsilon_after": charge.epsilon_after,
        "previous": history.head,
    }
    line, head = _sealed(body)
    return History(history.header, (*history.entries, LedgerEntry(charge, head)), head, history.size + len(line)), line


def replay(content: bytes, name: str) -> Replay:
    """Return the history in these bytes, every hash, order and field verified; error sentences begin with `name`.

    Raises StoreError with the line number for any damage except what a crash can leave at the end: a last line cut
    short (`torn`), or a whole one without its newline.
    """
    *lines, tail = content.split(b"\n")
    header, head, size = None, _GENESIS, 0
    entries: list[LedgerEntry] = []
    newline_missing = bool(tail) and not _is_torn(tail, is_header=not lines)
    if newline_missing:
        lines.append(tail)
    for number, line in enumerate(lines, start=1):
        try:
            body = _verified(line, head)
            head = str(body["hash"])
            if number == 1:
                header = _read_header(body)
            else:
                entries.append(_read_entry(body, entries[-1].charge.round_number if entries else -1))
        except (ValueError, FednodeError, RecursionError) as error:
            raise StoreError(
                f"ledger {name}, line {number}: {error}; keep the file and find out who changed it"
            ) from error
        size += len(line) + 1
    torn = 0 if newline_missing else len(tail)
    return Replay(History(header, tuple(entries), head, size), torn, newline_missing)


def _digest(body: dict[str, object]) -> str:
    return hashlib.sha256(canonical(body)).hexdigest()


def _sealed(body: dict[str, object]) -> tuple[bytes, str]:
    head = _digest(body)
    return canonical(body | {"hash": head}) + b"\n", head


def _is_torn(tail: bytes, *, is_header: bool) -> bool:
    """Return whether an interrupted write can have left this: the start of a line, but not a whole object.

    A whole object without a newline is not torn: either only its newline is missing, or it was changed.
    """
    start = HEADER_START if is_header else _ENTRY_START
    if tail[: len(start)] != start[: len(tail)]:
        return False
    try:
        json.JSONDecoder().raw_decode(tail.decode("latin-1"))
    except (ValueError, RecursionError):
        return True
    return False


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number that a ledger may hold")


def _verified(line: bytes, previous: str) -> dict[str, object]:
    """Return the object of one line after checking its form, its hash and its place."""
    try:
        body = json.loads(line.decode("ascii"), parse_constant=_refuse_constant)
        intact = isinstance(body, dict) and canonical(body) == line
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not a ledger line ({error})") from error
    if not intact:
        raise ValueError("is not a ledger line as FedNode writes it")
    content: dict[str, object] = {key: value for key, value in body.items() if key != "hash"}
    if body.get("hash") != _digest(content):
        raise ValueError("was changed after it was written")
    if body.get("previous") != previous:
        raise ValueError("does not follow the line before it: lines were dropped, repeated or moved")
    return {**content, "hash": body["hash"]}


def _read_header(body: dict[str, object]) -> LedgerHeader:
    found: dict[str, Any] = exact_keys("the header", body, _HEADER_KEYS)
    if found["kind"] != "header" or type(found["version"]) is not int or found["version"] != VERSION:
        raise ValueError(f"is not the header of a version {VERSION} ledger")
    return LedgerHeader(found["task"], Budget.from_dict(found["budget"]), found["time"])


def _read_entry(body: dict[str, object], last_round: int) -> LedgerEntry:
    found: dict[str, Any] = exact_keys("the entry", body, _ENTRY_KEYS)
    if found["kind"] != "charge":
        raise ValueError(f"unknown kind of entry {found['kind']!r}")
    if not isinstance(found["survivors"], list):
        raise ValueError("survivors must be a list")
    event, survivors = DiscreteGaussianSum.from_dict(found["event"]), tuple(found["survivors"])
    charge = ChargeRecord(found["round"], event, survivors, found["time"], found["epsilon_after"])
    _require_later(charge.round_number, last_round)
    return LedgerEntry(charge, str(found["hash"]))


def _require_later(round_number: int, last: int) -> None:
    if round_number <= last:
        raise ValueError(f"round {round_number} cannot be charged: round {last} of this task is charged already")
