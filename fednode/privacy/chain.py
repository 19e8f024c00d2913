"""The text of a ledger: one canonical JSON object a line, each holding the hash of the line before it. Pure.

A line is `canonical(body + hash)`, hash = SHA-256 of `canonical(body)`, and the body names the hash before it.
Replaying accepts these bytes and no others, so a changed, dropped, repeated or moved line shows. What a chain cannot
show is that its last lines are gone: whoever wants to notice that keeps the head hash elsewhere (the report prints
it).
"""

import hashlib
import json
from dataclasses import dataclass
from typing import NoReturn

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
_HEADER_START, _ENTRY_START = b'{"budget":', b'{"epsilon_after":'


@dataclass(frozen=True, slots=True)
class Header:
    """What a ledger is for: it never serves another task or another budget."""

    task: str
    budget: Budget
    time: float

    def __post_init__(self) -> None:
        words("task", self.task)
        object.__setattr__(self, "time", real("time", self.time))


@dataclass(frozen=True, slots=True)
class Charge:
    """One charge: the event, the round, who survived it, the wall time, and THE number after it."""

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
class Entry:
    """A charge in its place in the chain."""

    charge: Charge
    hash: str


@dataclass(frozen=True, slots=True)
class History:
    """What a ledger of `size` bytes says, every line ended; `head` is the hash of the last one."""

    header: Header | None = None
    entries: tuple[Entry, ...] = ()
    head: str = _GENESIS
    size: int = 0


@dataclass(frozen=True, slots=True)
class Replay:
    """A history, and how the file ends: `torn` bytes of an unfinished line, or the last line without its newline."""

    history: History
    torn: int
    newline_missing: bool


def append_header(history: History, header: Header) -> tuple[History, bytes]:
    """The history with its header, and the line to write."""
    body = {"kind": "header", "version": VERSION, "task": header.task, "budget": header.budget.to_dict()}
    line, head = _sealed(body | {"time": header.time, "previous": history.head})
    return History(header, (), head, history.size + len(line)), line


def append_charge(history: History, charge: Charge) -> tuple[History, bytes]:
    """The history with one more charge, and the line to write; ValueError unless its round comes after the last one."""
    _require_later_round(history, charge.round_number)
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
    return History(history.header, (*history.entries, Entry(charge, head)), head, history.size + len(line)), line


def replay(content: bytes, name: str) -> Replay:
    """The history that these bytes hold, every hash, order and field verified; `name` opens the sentences of errors.

    Raises StoreError with the line number for any damage except the two ends that a crash can leave: a last line cut
    short (`torn`), or whole but without its newline.
    """
    *lines, tail = content.split(b"\n")
    header, head, size = None, _GENESIS, 0
    entries: list[Entry] = []
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
    """Whether a write that stopped half-way can have left this: the start of a line, and of no whole object yet.

    A whole object without a newline is no torn line: either its newline alone is missing, or it was changed.
    """
    start = _HEADER_START if is_header else _ENTRY_START
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
    """The object of one line, once its form, its hash and its place have been checked."""
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


def _read_header(body: dict[str, object]) -> Header:
    found = exact_keys("the header", body, _HEADER_KEYS)
    if found["kind"] != "header" or type(found["version"]) is not int or found["version"] != VERSION:
        raise ValueError(f"is not the header of a version {VERSION} ledger")
    return Header(words("task", found["task"]), Budget.from_dict(found["budget"]), real("time", found["time"]))


def _read_entry(body: dict[str, object], last_round: int) -> Entry:
    found = exact_keys("the entry", body, _ENTRY_KEYS)
    if found["kind"] != "charge":
        raise ValueError(f"unknown kind of entry {found['kind']!r}")
    number = whole("round", found["round"], last_round + 1, _LAST_ROUND)
    survivors = found["survivors"]
    if not isinstance(survivors, list):
        raise ValueError("survivors must be a list")
    event = DiscreteGaussianSum.from_dict(found["event"])
    time, after = real("time", found["time"]), real("epsilon_after", found["epsilon_after"])
    return Entry(Charge(number, event, tuple(survivors), time, after), str(found["hash"]))


def _require_later_round(history: History, round_number: int) -> None:
    last = history.entries[-1].charge.round_number if history.entries else -1
    if round_number <= last:
        raise ValueError(f"round {round_number} cannot be charged: round {last} of this task is charged already")
