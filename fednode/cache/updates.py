"""Sealed updates that wait for their round to be opened: pinned, never evicted, accepted once.

An evicting cache loses updates unread (29 to 96 % on a federated trace), so this store stands on a backend that refuses
when it is full, and a push that finds no room is asked to come back. Every loss a backend causes all the same is found
by `get` and has a name: `UpdateLost`.
"""

import math
from dataclasses import dataclass
from threading import Lock
from urllib.parse import quote

from fednode.cache.backend import CacheBackend, Missing, StoreFull
from fednode.errors import PeerFault, StoreError


@dataclass(frozen=True, slots=True, order=True)
class UpdateId:
    """Whose update, in which round of which task."""

    task: str
    round: int
    client: str

    def key(self) -> str:
        """The key in the backend; no two ids share one."""
        return f"update/{quote(self.task, safe='')}/{self.round}/{quote(self.client, safe='')}"


class UpdateLost(StoreError):
    """An update was stored, was not consumed, and is not there: the backend broke its promise."""

    def __init__(self, update: UpdateId) -> None:
        super().__init__(
            f"the update of {update.client} in round {update.round} of {update.task} was stored and is gone; "
            "use a cache backend that does not evict"
        )
        self.update = update


class UpdateStore:
    """Keeps each update from `put` until `consume`; refuses when full, and refuses a repeat.

    `backend` must refuse when it is full (`MemoryBackend` with `WhenFull.REFUSE`) and belong to this store alone.
    `retry_after` is the number of seconds that a refused client is told to wait. A consumed round stays closed for as
    long as the store lives, which keeps every id of it refused at the cost of one number a round. Thread-safe; the
    lock is not held while the backend works.
    """

    def __init__(self, backend: CacheBackend, retry_after: float) -> None:
        if not (math.isfinite(retry_after) and retry_after > 0):
            raise ValueError(f"a retry time of {retry_after} s means nothing; give seconds above 0")
        self._backend = backend
        self._retry_after = retry_after
        self._lock = Lock()
        self._arriving: set[UpdateId] = set()
        self._stored: set[UpdateId] = set()
        self._closed: set[tuple[str, int]] = set()

    def put(self, task: str, round_number: int, client: str, payload: bytes) -> None:
        """Store one sealed update and pin it until its round is consumed.

        Raises `StoreFull` with `retry_after` where there is no room: nothing older makes way, and the same push may be
        tried again. Raises `TooLarge` over the limit of one value, and `PeerFault`: "repeated" if this client's update
        of this round is here already (whatever the bytes), "round-closed" if the round was consumed.
        """
        update = UpdateId(task, round_number, client)
        with self._lock:
            self._refuse_closed(update)
            if update in self._arriving or update in self._stored:
                raise PeerFault("repeated", f"{client} already sent its update of round {round_number}")
            self._arriving.add(update)
        try:
            self._backend.set(update.key(), payload, None)
        except StoreFull as full:
            self._forget(update)
            raise StoreFull(f"{full}; retry in {self._retry_after:g} s", self._retry_after) from full
        except BaseException:
            self._forget(update)
            raise
        self._settle(update)

    def get(self, task: str, round_number: int, client: str) -> bytes | Missing:
        """The sealed bytes, or `MISSING` if they never came or were consumed.

        Raises `UpdateLost` if they came, were not consumed, and the backend does not have them.
        """
        update = UpdateId(task, round_number, client)
        expected = self._holds(update)
        value = self._backend.get(update.key())
        # asked before and after: a push or a `consume` that ran in between is no loss
        if isinstance(value, Missing) and expected and self._holds(update):
            raise UpdateLost(update)
        return value

    def consume(self, task: str, round_number: int) -> tuple[UpdateId, ...]:
        """Delete the round's updates and close the round: it was opened or has failed. Returns the ids deleted, sorted.

        Consuming a round again, or an empty one, is harmless.
        """
        with self._lock:
            self._closed.add((task, round_number))
            gone = sorted(update for update in self._stored if (update.task, update.round) == (task, round_number))
            self._stored.difference_update(gone)
        for update in gone:
            self._backend.delete(update.key())
        return tuple(gone)

    def ids(self) -> tuple[UpdateId, ...]:
        """All that are stored and not consumed, sorted."""
        with self._lock:
            return tuple(sorted(self._stored))

    def _holds(self, update: UpdateId) -> bool:
        with self._lock:
            return update in self._stored

    def _refuse_closed(self, update: UpdateId) -> None:
        if (update.task, update.round) in self._closed:
            raise PeerFault(
                "round-closed", f"round {update.round} was opened or has failed; {update.client} is too late"
            )

    def _forget(self, update: UpdateId) -> None:
        with self._lock:
            self._arriving.discard(update)

    def _settle(self, update: UpdateId) -> None:
        with self._lock:
            self._arriving.discard(update)
            if (update.task, update.round) not in self._closed:
                self._stored.add(update)
                return
        # the round was consumed while the backend worked: nobody would ever delete this value
        self._backend.delete(update.key())
        self._refuse_closed(update)
