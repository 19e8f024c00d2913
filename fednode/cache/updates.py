"""Sealed updates that wait for their round to be opened: pinned, never evicted, accepted once.

An evicting cache loses updates unread (29 to 96 % on a federated trace), so every update is pinned: no eviction
reaches it, over any backend and any policy, also where others keep evictable entries in the same one. A push that
finds no room is told when to come back. Every loss a backend causes all the same is found by `get` and has a name:
`UpdateLost`.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final
from urllib.parse import quote

from fednode.cache.backend import MISSING, CacheBackend, Missing, StoreFull
from fednode.cache.lost import WHAT_KEEPS_PINS, PinLost
from fednode.errors import PeerFault, StoreError

_BOXES: Final = "/boxes"


@dataclass(frozen=True, slots=True, order=True)
class UpdateId:
    """Whose update, in which round of which task."""

    task: str
    round: int
    client: str

    def __str__(self) -> str:
        """What it is, for a sentence: boxes are kept as a client's with a name of their own."""
        name = self.client.removesuffix(_BOXES)
        return f"the update of {name}" if name == self.client else f"the boxes of {name}"

    def key(self) -> str:
        """The key in the backend; no two ids share one."""
        return f"update/{quote(self.task, safe='')}/{self.round}/{quote(self.client, safe='')}"


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


class UpdateStore:
    """Keeps each update from `put` until `consume`, or `withdraw`; refuses when full, and refuses a repeat.

    `retry_after` is the number of seconds that a refused client is told to wait, unless the backend names one. A
    consumed round and all older ones of its task stay closed for as long as the store lives, which keeps every id of
    them refused at the cost of one number a task. The keys that begin with "update/" belong to this store.
    Thread-safe; the lock is not held while the backend works.
    """

    def __init__(self, backend: CacheBackend, retry_after: float) -> None:
        if not (math.isfinite(retry_after) and retry_after > 0):
            raise ValueError(f"a retry time of {retry_after} s means nothing; give seconds above 0")
        self._backend = backend
        self._retry_after = retry_after
        self._lock = Lock()
        # one thread frees at a time: a second one, with an older list, might delete what was stored since
        self._freeing = Lock()
        self._arriving: set[UpdateId] = set()
        self._stored: dict[tuple[str, int], dict[str, int]] = {}
        self._unfreed: set[UpdateId] = set()
        self._closed: dict[str, int] = {}
        self._refusals = 0
        self._lost: set[UpdateId] = set()

    def put(self, task: str, round_number: int, client: str, payload: bytes) -> None:
        """Store one sealed update and pin it until its round is consumed.

        Raises `StoreFull` where there is no room: nothing older makes way, and the same push may be tried again after
        `retry_after` seconds; that is None where nothing waits here that could make room. Raises `TooLarge` over the
        limit of one value, `TypeError` for a payload that is not bytes, and `PeerFault`: "repeated" if this client's
        update of this round is here already, whatever the bytes, "round-closed" if this round or a later one of the
        task was consumed.
        """
        if type(payload) is not bytes:
            raise TypeError(f"an update of type {type(payload).__name__} is not sealed; give its bytes")
        update = UpdateId(task, round_number, client)
        self._free_leftovers()
        with self._arrival(update):
            try:
                self._backend.pin(update.key(), payload)
            except StoreFull as full:
                raise self._refused(full) from full
            self._settle(update, len(payload))

    def get(self, task: str, round_number: int, client: str) -> bytes | Missing:
        """The sealed bytes, or `MISSING` if they never came or were consumed.

        Raises `UpdateLost` if they came, were not consumed, and the backend does not have them.
        """
        update = UpdateId(task, round_number, client)
        expected = self._holds(update)
        lost: PinLost | None = None
        value: object = MISSING
        try:
            value = self._backend.get(update.key())
        except PinLost as loss:
            lost = loss
        if isinstance(value, bytes):
            return value
        # asked before and after: a push or a `consume` that ran in between is no loss
        if expected and self._holds(update):
            with self._lock:
                self._lost.add(update)
            raise UpdateLost(update, self._fate(lost, there=value is not MISSING))
        return MISSING

    def consume(self, task: str, round_number: int) -> tuple[UpdateId, ...]:
        """Delete the round's updates and close it: it was opened or has failed. Returns their ids, sorted.

        Older rounds of the task take no more updates then; what waits in them stays until they are consumed.
        Consuming a round again, or an empty one, is harmless. What a failing backend does not delete stays in `usage`
        and is tried again at the next `put` or `consume`.
        """
        with self._lock:
            self._closed[task] = max(round_number, self._closed.get(task, round_number))
            gone = sorted(UpdateId(task, round_number, name) for name in self._stored.get((task, round_number), ()))
            self._unfreed.update(gone)
        self._free_leftovers()
        return tuple(gone)

    def withdraw(self, task: str, round_number: int, client: str) -> None:
        """Forget one update that nobody has used, so that it may be pushed again; harmless if it is not here.

        Where a failing backend does not delete it, `put` raises `StoreFull` for it until it is gone.
        """
        update = UpdateId(task, round_number, client)
        with self._lock:
            if client not in self._stored.get((task, round_number), ()):
                return
            self._unfreed.add(update)
        self._free_leftovers()

    def ids(self) -> tuple[UpdateId, ...]:
        """All that are stored and not consumed, sorted."""
        with self._lock:
            return tuple(sorted(set(self._pinned()) - self._unfreed))

    def usage(self) -> UpdateUsage:
        """Who holds pins, and how often there was no room."""
        with self._lock:
            owners = tuple(
                PinOwner(task, number, len(sizes), sum(sizes.values()))
                for (task, number), sizes in self._stored.items()
                if sizes
            )
            return UpdateUsage(owners, self._refusals, len(self._lost))

    def _pinned(self) -> Iterator[UpdateId]:
        return (UpdateId(*owner, client) for owner, sizes in self._stored.items() for client in sizes)

    def _holds(self, update: UpdateId) -> bool:
        with self._lock:
            return update.client in self._stored.get((update.task, update.round), ()) and update not in self._unfreed

    @contextmanager
    def _arrival(self, update: UpdateId) -> Iterator[None]:
        with self._lock:
            self._refuse_closed(update)
            if update in self._unfreed:
                self._refusals += 1
                wait = self._retry_after
                raise StoreFull(f"{update} was withdrawn and still takes up its room; retry in {wait:g} s", wait)
            known = self._stored.get((update.task, update.round), {})
            if update in self._arriving or update.client in known:
                raise PeerFault("repeated", f"{update} in round {update.round} came before")
            self._arriving.add(update)
        try:
            yield
        finally:
            with self._lock:
                self._arriving.discard(update)

    def _refused(self, full: StoreFull) -> StoreFull:
        with self._lock:
            self._refusals += 1
            waits = any(self._pinned())
        wait = full.retry_after
        if wait is None and waits:
            wait = self._retry_after
        return StoreFull(str(full) if wait is None else f"{full}; retry in {wait:g} s", wait)

    def _fate(self, lost: PinLost | None, *, there: bool) -> str:
        if lost is not None:
            return f"{'damaged on' if lost.damaged else 'gone from'} {lost.place}; {WHAT_KEEPS_PINS}"
        if there:
            return f"damaged in {self._backend}: something else stands there; see who else writes to it"
        return f"gone from {self._backend}, or damaged; use a cache backend that keeps what is pinned"

    def _is_closed(self, update: UpdateId) -> bool:
        return update.task in self._closed and update.round <= self._closed[update.task]

    def _refuse_closed(self, update: UpdateId) -> None:
        if self._is_closed(update):
            raise PeerFault(
                "round-closed",
                f"round {update.round} or a later one was opened or has failed; {update} came too late",
            )

    def _settle(self, update: UpdateId, size: int) -> None:
        owner = (update.task, update.round)
        with self._lock:
            self._stored.setdefault(owner, {})[update.client] = size
            if not self._is_closed(update):
                return
            # the round was consumed while the backend worked: nobody else would ever delete this value
            self._unfreed.add(update)
        self._free_leftovers()
        self._refuse_closed(update)

    def _free_leftovers(self) -> None:
        """Delete what was consumed; what the backend cannot delete now is left for the next time."""
        if not self._unfreed:
            return
        with self._freeing:
            with self._lock:
                leftovers = tuple(self._unfreed)
            for update in leftovers:
                with suppress(StoreError):
                    self._backend.delete(update.key())
                    self._freed(update)

    def _freed(self, update: UpdateId) -> None:
        owner = (update.task, update.round)
        with self._lock:
            self._unfreed.discard(update)
            self._stored.get(owner, {}).pop(update.client, None)
            if not self._stored.get(owner, True):
                del self._stored[owner]
