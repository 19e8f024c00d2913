"""The text of a ledger: one canonical JSON object a line, each holding the hash of the line before it. Pure.

A line is `canonical(body + hash)`, hash = SHA-256 of `canonical(body)`, and the body names the hash before it.
Replaying accepts exactly these bytes, so a changed, dropped, repeated or moved line is detected. Lines missing at the
end are not: the file beside a ledger that holds its head shows them, and so does any other note of an earlier head.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn, Self

from fednode.errors import FednodeError, StoreError
from fednode.privacy.budget import Budget
from fednode.privacy.checks import exact_keys, positive, real, whole, words
from fednode.privacy.mechanism import DiscreteGaussianSum
from fednode_crypto.canonical import canonical

VERSION = 2
_GENESIS = "0" * 64
_LAST_ROUND = 2**53
_HEADER_KEYS = frozenset({"budget", "hash", "kind", "name", "previous", "time", "version"})
_CHARGE_KEYS = frozenset({"epsilon_after", "event", "hash", "kind", "previous", "round", "survivors", "task", "time"})
_LIMIT_KEYS = frozenset({"by", "epsilon", "hash", "kind", "previous", "reason", "time"})
# Sorted keys make these the first bytes of every header, and of every charge and limit.
HEADER_START, _LATER_STARTS = b'{"budget":', (b'{"epsilon_after":', b'{"by":')


@dataclass(frozen=True, slots=True)
class LedgerHeader:
    """Whose ledger it is, a run's or a population's, and its budget as it began."""

    name: str
    budget: Budget
    time: float

    def __post_init__(self) -> None:
        words("name", self.name)
        object.__setattr__(self, "time", real("time", self.time))


@dataclass(frozen=True, slots=True)
class ChargeRecord:
    """One charge: the event, the round of a task, its survivors, the wall time, and the epsilon spent after it."""

    round_number: int
    event: DiscreteGaussianSum
    survivors: tuple[str, ...]
    time: float
    epsilon_after: float
    task: str

    def __post_init__(self) -> None:
        words("task", self.task)
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
class LimitRecord:
    """From here on the limit is `epsilon`: who said so, why and when."""

    epsilon: float
    by: str
    reason: str
    time: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        words("the name of who sets a limit", self.by)
        words("the reason of a limit", self.reason)
        object.__setattr__(self, "time", real("time", self.time))


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
    limits: tuple[LimitRecord, ...] = ()
    head: str = _GENESIS
    size: int = 0

    @property
    def budget(self) -> Budget:
        """The budget with the limit that holds now. ValueError before the header."""
        if self.header is None:
            raise ValueError("a ledger begins with its header")
        return replace(self.header.budget, epsilon=self.limits[-1].epsilon) if self.limits else self.header.budget

    @property
    def name(self) -> str:
        """The run or the population whose ledger it is; "" before the header."""
        return "" if self.header is None else self.header.name

    def require_later(self, task: str, number: int) -> None:
        """ValueError unless this round of `task` is later than the last one charged."""
        last = next((e.charge.round_number for e in reversed(self.entries) if e.charge.task == task), -1)
        if number <= last:
            raise ValueError(f"round {number} cannot be charged: round {last} of {task} is charged already")


@dataclass(frozen=True, slots=True)
class Replay:
    """A history, and the end of the file: `torn` bytes of an unfinished write, `zeros` of which a power cut left, or a
    last line without its newline."""

    history: History
    torn: int
    zeros: int
    newline_missing: bool


def append_header(history: History, header: LedgerHeader) -> tuple[History, bytes]:
    """Return the history with its header, and the line to write."""
    body = {"kind": "header", "version": VERSION, "name": header.name, "budget": header.budget.to_dict()}
    line, head = _sealed(body | {"time": header.time, "previous": history.head})
    return History(header, head=head, size=history.size + len(line)), line


def append_charge(history: History, charge: ChargeRecord) -> tuple[History, bytes]:
    """Return the history with one more charge, and the line to write. ValueError unless its round is a later one."""
    history.require_later(charge.task, charge.round_number)
    body = {
        "kind": "charge",
        "task": charge.task,
        "round": charge.round_number,
        "event": charge.event.to_dict(),
        "survivors": list(charge.survivors),
        "time": charge.time,
        "epsilon_after": charge.epsilon_after,
        "previous": history.head,
    }
    line, head = _sealed(body)
    entries = (*history.entries, LedgerEntry(charge, head))
    return replace(history, entries=entries, head=head, size=history.size + len(line)), line


def append_limit(history: History, limit: LimitRecord) -> tuple[History, bytes]:
    """Return the history with another limit, and the line to write."""
    line, head = _sealed({"kind": "limit"} | asdict(limit) | {"previous": history.head})
    limits = (*history.limits, limit)
    return replace(history, limits=limits, head=head, size=history.size + len(line)), line


def replay(content: bytes, name: str, onto: History | None = None) -> Replay:
    """Return the history in these bytes, every hash, order and field verified; error sentences begin with `name`.

    `onto` is the history before them, none at the start of a file. Raises StoreError with the line number for any
    damage except what a crash can leave at the end: a last line cut short or of zeros, or a whole one without its
    newline.
    """
    *lines, tail = content.split(b"\n")
    growing = _Growing.of(onto or History())
    rest = tail.rstrip(b"\0")
    torn = not rest or _is_torn(rest, is_header=growing.header is None and not lines)
    if not torn:
        # with zeros behind it, it is refused as a line that holds zeros
        lines.append(tail)
    for line in lines:
        try:
            growing.add(line)
        except (ValueError, FednodeError, RecursionError) as error:
            raise StoreError(
                f"ledger {name}, line {growing.lines + 1}: {error}; keep the file and find out who changed it"
            ) from error
    return Replay(growing.history(), len(tail) if torn else 0, len(tail) - len(rest), not torn)


@dataclass(slots=True)
class _Growing:
    """A history while it is read, line by line."""

    header: LedgerHeader | None
    entries: list[LedgerEntry]
    limits: list[LimitRecord]
    head: str
    size: int
    lines: int
    last: dict[str, int]
    """By task, the last round charged."""

    @classmethod
    def of(cls, history: History) -> Self:
        last = {entry.charge.task: entry.charge.round_number for entry in history.entries}
        lines = (history.header is not None) + len(history.entries) + len(history.limits)
        return cls(history.header, list(history.entries), list(history.limits), history.head, history.size, lines, last)

    def add(self, line: bytes) -> None:
        """Verify one more line. Raises ValueError or ConfigError."""
        body = _verified(line, self.head)
        if self.header is None:
            self.header = _read_header(body)
        elif body.get("kind") == "limit":
            self.limits.append(_read_limit(body))
        else:
            entry = _read_entry(body)
            number, last = entry.charge.round_number, self.last.get(entry.charge.task, -1)
            if number <= last:
                raise ValueError(f"charges round {number} after round {last} of the same task")
            self.last[entry.charge.task] = number
            self.entries.append(entry)
        self.head = str(body["hash"])
        self.size, self.lines = self.size + len(line) + 1, self.lines + 1

    def history(self) -> History:
        return History(self.header, tuple(self.entries), tuple(self.limits), self.head, self.size)


def _digest(body: dict[str, object]) -> str:
    return hashlib.sha256(canonical(body)).hexdigest()


def _sealed(body: dict[str, object]) -> tuple[bytes, str]:
    head = _digest(body)
    return canonical(body | {"hash": head}) + b"\n", head


def _is_torn(tail: bytes, *, is_header: bool) -> bool:
    """Return whether an interrupted write can have left this: the start of a line, but not a whole object.

    A whole object without a newline is not torn: either only its newline is missing, or it was changed.
    """
    starts = (HEADER_START,) if is_header else _LATER_STARTS
    if not any(tail[: len(start)] == start[: len(tail)] for start in starts):
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
    if b"\0" in line:
        raise ValueError(f"holds {line.count(0)} zero bytes, as a disk leaves that lost what it had confirmed")
    if line.endswith(b"\r"):
        raise ValueError("ends in CR LF: the file was copied as text by another system, so copy it again as it is")
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
    if body.get("kind") == "header" and body.get("version") == 1:
        raise ValueError("is the header of a version 1 ledger, which only FedNode before this version reads")
    found: dict[str, Any] = exact_keys("the header", body, _HEADER_KEYS)
    if found["kind"] != "header" or type(found["version"]) is not int or found["version"] != VERSION:
        raise ValueError(f"is not the header of a version {VERSION} ledger")
    return LedgerHeader(found["name"], Budget.from_dict(found["budget"]), found["time"])


def _read_limit(body: dict[str, object]) -> LimitRecord:
    found: dict[str, Any] = exact_keys("the limit", body, _LIMIT_KEYS)
    return LimitRecord(found["epsilon"], found["by"], found["reason"], found["time"])


def _read_entry(body: dict[str, object]) -> LedgerEntry:
    found: dict[str, Any] = exact_keys("the entry", body, _CHARGE_KEYS)
    if found["kind"] != "charge":
        raise ValueError(f"unknown kind of entry {found['kind']!r}")
    if not isinstance(found["survivors"], list):
        raise ValueError("survivors must be a list")
    event, survivors = DiscreteGaussianSum.from_dict(found["event"]), tuple(found["survivors"])
    charge = ChargeRecord(found["round"], event, survivors, found["time"], found["epsilon_after"], found["task"])
    return LedgerEntry(charge, str(found["hash"]))
