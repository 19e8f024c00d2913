"""The names of sealed updates, and what a store of them says of itself."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from fednode.errors import StoreError

PREFIX: Final = "update/"
"""What the keys of all updates begin with."""
_BOXES: Final = "/boxes"


@dataclass(frozen=True, slots=True, order=True)
class UpdateId:
    """Whose update, in which round of which task.

    Raises `TypeError` for a round that is no whole number (1.0, True and "1" are none) and names that are no text,
    `ValueError` for text that is not UTF-8.
    """

    task: str
    round: int
    client: str

    def __post_init__(self) -> None:
        check_name("task", self.task)
        check_round(self.round)
        check_name("client", self.client)

    def __str__(self) -> str:
        """What it is, for a sentence: boxes are kept as a client's with a name of their own."""
        name = self.client.removesuffix(_BOXES)
        return f"the update of {name}" if name == self.client else f"the boxes of {name}"

    def key(self) -> str:
        """The key in the backend; no two ids share one."""
        return f"{PREFIX}{quote(self.task, safe='')}/{self.round}/{quote(self.client, safe='')}"

    @classmethod
    def of_key(cls, key: str) -> "UpdateId | None":
        """The update that lies under `key`; None for a key that is no update's."""
        try:
            _, task, number, client = key.split("/")
            update = cls(unquote(task, errors="strict"), int(number), unquote(client, errors="strict"))
        except ValueError:
            return None
        return update if update.key() == key else None


class UpdateLost(StoreError):
    """An update was stored, was not consumed, and is not there: the backend broke its promise.

    `why`: what became of it, and what to do.
    """

    def __init__(self, update: UpdateId, why: str = "gone; use a cache backend that keeps what is pinned") -> None:
        was, now = ("were", "are") if update.client.endswith(_BOXES) else ("was", "is")
        super().__init__(f"{update} in round {update.round} of {update.task} {was} stored and {now} {why}")
        self.update = update


@dataclass(frozen=True, slots=True)
class PinOwner:
    """The round that pins are held for, with how many and how many bytes of values."""

    task: str
    round: int
    updates: int
    bytes: int


@dataclass(frozen=True, slots=True)
class UpdateUsage:
    """What an `UpdateStore` holds right now, `owners` oldest first, and what has happened since it was made."""

    owners: tuple[PinOwner, ...] = ()
    refusals: int = 0
    """Pushes that found no room."""
    lost: int = 0

    @property
    def updates(self) -> int:
        """How many updates are pinned."""
        return sum(owner.updates for owner in self.owners)

    @property
    def pinned_bytes(self) -> int:
        """Bytes of all pinned updates."""
        return sum(owner.bytes for owner in self.owners)

    @property
    def oldest(self) -> PinOwner | None:
        """The round that has held pins for the longest time, if there is one."""
        return self.owners[0] if self.owners else None


def check_round(number: object) -> None:
    """Raise `TypeError` unless it is an int: 1.0, True and "1" would be other rounds under the same key."""
    if type(number) is not int:
        raise TypeError(f"a round of type {type(number).__name__} means nothing; make it a whole number (int)")


def check_name(what: str, name: object) -> None:
    """Raise `TypeError` unless `name` is text, and `ValueError` unless that is UTF-8. `what`: whose name it is."""
    if type(name) is not str:
        raise TypeError(f"a {what} of type {type(name).__name__} means nothing; make it text (str)")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the name of a {what} has a lone surrogate (at {error.start}); give UTF-8 text") from error
