"""The names of sealed updates, and the usage of a store of them."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from fednode.errors import StoreError

PREFIX: Final = "update/"
"""The prefix of every update's key."""
_BOXES: Final = "/boxes"


@dataclass(frozen=True, slots=True, order=True)
class UpdateId:
    """The task, round and client of an update.

    Raises `TypeError` for a round that is not an int or a name that is not a str, `ValueError` for a lone surrogate.
    """

    task: str
    round: int
    client: str

    def __post_init__(self) -> None:
        check_name("task", self.task)
        check_round(self.round)
        check_name("client", self.client)

    def __str__(self) -> str:
        """The update for a sentence; a client's boxes are stored under a name of their own."""
        name = self.client.removesuffix(_BOXES)
        return f"the update of {name}" if name == self.client else f"the boxes of {name}"

    def key(self) -> str:
        """The key in the backend; no two ids share one."""
        return f"{PREFIX}{quote(self.task, safe='')}/{self.round}/{quote(self.client, safe='')}"

    @classmethod
    def of_key(cls, key: str) -> "UpdateId | None":
        """The update that `key` names; None for any other key."""
        try:
            _, task, number, client = key.split("/")
            update = cls(unquote(task, errors="strict"), int(number), unquote(client, errors="strict"))
        except ValueError:
            return None
        return update if update.key() == key else None


class UpdateLost(StoreError):
    """The backend lost an update that was stored and not consumed. `why` completes the sentence and says what to do."""

    def __init__(self, update: UpdateId, why: str = "gone; use a cache backend that keeps what is pinned") -> None:
        was, now = ("were", "are") if update.client.endswith(_BOXES) else ("was", "is")
        super().__init__(f"{update} in round {update.round} of {update.task} {was} stored and {now} {why}")
        self.update = update


@dataclass(frozen=True, slots=True)
class PinOwner:
    """A round that holds pins, with their number and the bytes of their values."""

    task: str
    round: int
    updates: int
    bytes: int


@dataclass(frozen=True, slots=True)
class UpdateUsage:
    """What an `UpdateStore` holds now, `owners` oldest first, and its counts since it was made."""

    owners: tuple[PinOwner, ...] = ()
    refusals: int = 0
    """Pushes that found no room."""
    lost: int = 0

    @property
    def updates(self) -> int:
        """The number of pinned updates."""
        return sum(owner.updates for owner in self.owners)

    @property
    def pinned_bytes(self) -> int:
        """Bytes of all pinned updates."""
        return sum(owner.bytes for owner in self.owners)


def check_round(number: object) -> None:
    """Raise `TypeError` unless it is an int: True and "1" would be other rounds under the same key."""
    if type(number) is not int:
        raise TypeError(f"a round must be an int, not {type(number).__name__}")


def check_name(what: str, name: object) -> None:
    """Raise `TypeError` unless `name` is a str, `ValueError` if it has a lone surrogate."""
    if type(name) is not str:
        raise TypeError(f"the name of a {what} must be a str, not {type(name).__name__}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the name of a {what} has a lone surrogate (at {error.start}); give UTF-8 text") from error
