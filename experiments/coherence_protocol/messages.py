"""The messages between agents and directory, on two virtual channels, in batches: one message, many keys.

    channel    agent -> directory     directory -> agent
    REQUESTS   Requests of Ask        Answers of Granted, Committed, Refused
    RECALLS    Acknowledgements       Invalidations

Each channel is first in, first out; the two are not ordered with each other. A message may be lost or come twice.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from fednode.errors import ConfigError

NOT_OWNER: Final = "not-owner"
"""Refused: the lease had run out, so the agent no longer owned the key; its write is lost."""

UNKNOWN_KEY: Final = "unknown-key"
"""Refused: the directory has no such key."""

NO_ANSWER: Final = "no-answer"
"""Given up by the agent itself: no answer came within its patience."""


class CopyState(Enum):
    """The state of an agent's copy; lines of the directory have the same states, without Modified."""

    INVALID = "Invalid"
    SHARED = "Shared"
    EXCLUSIVE = "Exclusive"
    MODIFIED = "Modified"
    PENDING = "Pending"


class Want(Enum):
    """What a request asks for."""

    SHARED = "get shared"
    EXCLUSIVE = "get exclusive"
    WRITE_BACK = "write back"


class VirtualChannel(Enum):
    """The two virtual channels between an agent and the directory."""

    REQUESTS = "requests"
    RECALLS = "recalls"


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What both sides agree on, in seconds: the length of a lease, and when a message is sent again or given up.

    The assumption on clocks: while the directory's clock counts `lease`, an agent's counts at least `lease - margin`.
    Raises `ConfigError` for terms under which no copy could ever be read.
    """

    lease: float
    margin: float
    retry: float
    patience: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lease) and 0 <= self.margin < self.lease):
            raise ConfigError(f"a lease of {self.lease} s with a margin of {self.margin} s leaves no time; lengthen it")
        if not 0 < self.retry <= self.patience:
            raise ConfigError(f"retry ({self.retry} s) must be above 0 and at most patience ({self.patience} s)")


# --- items -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """An agent wants `key`. `number` is the agent's own count of requests; of a write-back, the serial it is under."""

    key: str
    want: Want
    number: int


@dataclass(frozen=True, slots=True)
class Granted:
    """Answers the request `number`: `version` may be read, and written if `exclusive`, under `serial`."""

    key: str
    number: int
    version: int
    serial: int
    exclusive: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """What the agent wrote under the serial `number` is now the key's newest version."""

    key: str
    number: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The request `number` for `want` ends without what it asked for, and why."""

    key: str
    want: Want
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Invalidate:
    """Every copy under a serial below `serial` has to go."""

    key: str
    serial: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Answers Invalidate `serial`: the copy is gone. `written` is the serial of a changed copy that is handed over."""

    key: str
    serial: int
    written: int | None = None


# --- messages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Requests:
    """From `agent`; the directory leaves it in its channel while a key in it is Pending."""

    channel: ClassVar[VirtualChannel] = VirtualChannel.REQUESTS
    agent: str
    items: tuple[Ask, ...]

    def __post_init__(self) -> None:
        if len({ask.key for ask in self.items}) < len(self.items):
            raise ValueError("a request names a key twice; ask for each key once")


@dataclass(frozen=True, slots=True)
class Answers:
    """To `agent`. The values of what is granted travel beside it."""

    channel: ClassVar[VirtualChannel] = VirtualChannel.REQUESTS
    agent: str
    items: tuple[Granted | Committed | Refused, ...]


@dataclass(frozen=True, slots=True)
class Invalidations:
    """To `agent`."""

    channel: ClassVar[VirtualChannel] = VirtualChannel.RECALLS
    agent: str
    items: tuple[Invalidate, ...]


@dataclass(frozen=True, slots=True)
class Acknowledgements:
    """From `agent`; always taken at once. The values of what is handed over travel beside it."""

    channel: ClassVar[VirtualChannel] = VirtualChannel.RECALLS
    agent: str
    items: tuple[Acknowledge, ...]


ToDirectory = Requests | Acknowledgements
ToAgent = Answers | Invalidations
