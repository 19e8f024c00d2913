"""Sealed updates that wait for their round to be opened: pinned, never evicted, accepted once.

An evicting cache loses updates unread (29 to 96 % on a federated trace), so every update is pinned, in any backend and
under any policy, also beside evictable entries. A push that finds no room is refused with a time to retry. If the
backend loses an update all the same, `get` raises `UpdateLost`.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final

from fednode.cache.backend import MISSING, WHAT_KEEPS_PINS, CacheBackend, Missing, PinLost, StoreFull, TooLarge
from fednode.cache.fork_safety import refuse_after_fork
from fednode.errors import PeerFault, StoreError
from fednode.reasons import Reason
from fednode.stores.update_ids import PREFIX, PinOwner, UpdateId, UpdateLost, UpdateUsage, check_name, check_round

__all__ = ["PinOwner", "UpdateId", "UpdateLost", "UpdateStore", "UpdateUsage"]

_STRIPES: Final = 64
_FAILURES: Final = 3
"""Failed deletions after which a call stops: the server is away, so the rest would fail too."""


@dataclass(frozen=True, slots=True, eq=False)
class _Stored:
    """One accepted update, compared by identity: a later one under the same id is another object."""

    size: int


class UpdateStore:
    """Keeps each update from `put` until `consume` or `withdraw`; refuses repeats, and pushes beyond its room.

    A refused client is asked to wait `retry_after` seconds, unless the backend names another time. A consumed round and
    all older ones of its task stay closed while the store lives, at the cost of one number a task. Keys that begin with
    "update/" belong to this store.

    If an earlier store was killed, the new one adopts its updates: `ids` and `usage` list them until `consume` frees
    them; a new task consumes all of `usage().owners`. The earlier store's consumed rounds are not known, so its task
    must not be continued.

    Thread-safe; the lock is not held while the backend works. Raises `ValueError` for a retry time that is not finite
    and above 0, `StoreError` if the backend cannot list its keys.
    """

    def __init__(self, backend: CacheBackend, retry_after: float) -> None:
        self._backend = backend
        self._retry_after = _seconds(retry_after)
        self._lock = Lock()
        # serialises pin and delete per update, so that a late delete cannot remove a newer value
        self._stripes = tuple(Lock() for _ in range(_STRIPES))
        self._stored: dict[tuple[str, int], dict[str, _Stored]] = {}
        # a queue of updates to delete, which may still be in the backend
        self._unfreed: dict[UpdateId, None] = {}
        self._closed: dict[str, int] = {}
        self._refusals = self._losses = 0
        self._lost: set[UpdateId] = set()
        self._adopt()
        refuse_after_fork(self, "_lock", "_stripes")

    def put(self, task: str, round_number: int, client: str, payload: bytes) -> None:
        """Store one sealed update and pin it until its round is consumed.

        Raises `StoreFull` without room: nothing is evicted, and the push may be retried after `retry_after` seconds
        (None if no update here could make room). Raises `TooLarge` over the limit of one value, `TypeError` for a
        payload that is not bytes, and `PeerFault`: REPEATED if this client's update of this round is here already,
        whatever the bytes; ROUND_CLOSED if this round or a later one of the task was consumed. An update that `get`
        found lost may be sent again.

        How a push and the end of its round interleave:

        1. A pushes: its round is open, so A pins the value in the backend.
        2. B consumes the round. A's update is not listed yet, so B does not delete it.
        3. A's pin returns. A finds its round closed, marks its own value to be deleted, and is refused.
        """
        if type(payload) is not bytes:
            raise TypeError(f"an update must be sealed bytes, not {type(payload).__name__}")
        update = UpdateId(task, round_number, client)
        self._free_leftovers()
        with self._stripe(update):
            self._admit(update)
            try:
                self._backend.pin(update.key(), payload)
            except StoreFull as full:
                raise self._refused(full) from full
            except TooLarge:
                raise
            except StoreError:
                self._not_known(update)
                raise
            in_time = self._take(update, len(payload))
        if not in_time:
            self._free_leftovers()
            raise _closed(update)

    def get(self, task: str, round_number: int, client: str) -> bytes | Missing:
        """The sealed bytes, or `MISSING` if they never came or were consumed.

        Raises `UpdateLost` if the backend lost them.
        """
        update = UpdateId(task, round_number, client)
        with self._lock:
            expected = self._find(update)
        lost: PinLost | None = None
        value: object = MISSING
        try:
            value = self._backend.get(update.key())
        except PinLost as loss:
            lost = loss
        if isinstance(value, bytes):
            return value
        with self._lock:
            # the same object before and after: no push or `consume` ran in between, so the value is lost
            if expected is None or self._find(update) is not expected:
                return MISSING
            if update not in self._lost:
                self._lost.add(update)
                self._losses += 1
        raise UpdateLost(update, self._fate(lost, there=value is not MISSING))

    def consume(self, task: str, round_number: int) -> tuple[UpdateId, ...]:
        """Delete the updates of a round that was opened or has failed, and close it. Returns their ids, sorted.

        Older rounds of the task are closed too, but keep their updates until they are consumed. Consuming a round
        again, or an empty one, is harmless. Updates that a failing backend does not delete stay in `usage`; the next
        `put` or `consume` tries again.
        """
        check_name("task", task)
        check_round(round_number)
        with self._lock:
            self._closed[task] = max(round_number, self._closed.get(task, round_number))
            owned = {UpdateId(task, round_number, name) for name in self._stored.get((task, round_number), ())}
            # without those that were withdrawn or consumed before and are still to be deleted
            gone = sorted(owned - self._unfreed.keys())
            self._unfreed |= dict.fromkeys(owned)
        self._free_leftovers()
        return tuple(gone)

    def withdraw(self, task: str, round_number: int, client: str) -> None:
        """Forget one unused update, so that it may be pushed again; harmless if it is not here.

        If a failing backend does not delete it, `put` raises `StoreFull` for it until it is gone.
        """
        update = UpdateId(task, round_number, client)
        with self._lock:
            if client not in self._stored.get((task, round_number), ()):
                return
            self._unfreed[update] = None
        self._free_leftovers()

    def ids(self) -> tuple[UpdateId, ...]:
        """All updates that are stored and not consumed, sorted."""
        with self._lock:
            return tuple(sorted(set(self._pinned()) - self._unfreed.keys()))

    def usage(self) -> UpdateUsage:
        """The rounds that hold pins, and the counts of refused pushes and lost updates."""
        with self._lock:
            owners = tuple(
                PinOwner(task, number, len(held), sum(one.size for one in held.values()))
                for (task, number), held in self._stored.items()
                if held
            )
            return UpdateUsage(owners, self._refusals, self._losses)

    def _adopt(self) -> None:
        for key in tuple(self._backend.keys(PREFIX)):
            update = UpdateId.of_key(key)
            if update is None:
                continue
            value: object = b""
            # a lost update is listed; `get` reports it
            with suppress(PinLost):
                value = self._backend.get(key)
            if isinstance(value, bytes):
                self._stored.setdefault((update.task, update.round), {})[update.client] = _Stored(len(value))

    def _stripe(self, update: UpdateId) -> Lock:
        return self._stripes[hash(update) % _STRIPES]

    # --- under the lock

    def _pinned(self) -> Iterator[UpdateId]:
        return (UpdateId(*owner, client) for owner, held in self._stored.items() for client in held)

    def _find(self, update: UpdateId) -> _Stored | None:
        found = self._stored.get((update.task, update.round), {}).get(update.client)
        return None if update in self._unfreed else found

    def _is_closed(self, update: UpdateId) -> bool:
        return update.task in self._closed and update.round <= self._closed[update.task]

    # --- under an update's stripe

    def _admit(self, update: UpdateId) -> None:
        """Raise unless the update may come in."""
        self._free(update)
        with self._lock:
            if self._is_closed(update):
                raise _closed(update)
            if update in self._unfreed:
                self._refusals += 1
                wait = self._retry_after
                raise StoreFull(f"{update} was withdrawn and still takes up its room; retry in {wait:g} s", wait)
            if self._find(update) is not None and update not in self._lost:
                raise PeerFault(Reason.REPEATED, f"{update} in round {update.round} came before")

    def _not_known(self, update: UpdateId) -> None:
        """After a backend failure the value may be there or not: mark it to be deleted, unless the update is listed."""
        with self._lock:
            if self._find(update) is None:
                self._unfreed[update] = None

    def _take(self, update: UpdateId, size: int) -> bool:
        """List it as stored; False if its round was consumed meanwhile, which marks it to be deleted."""
        with self._lock:
            closed = self._is_closed(update)
            if closed:
                self._unfreed[update] = None
            self._lost.discard(update)
            self._stored.setdefault((update.task, update.round), {})[update.client] = _Stored(size)
        return not closed

    def _free(self, update: UpdateId) -> bool:
        """Delete it if it is marked; False if the backend cannot, which moves it to the end of the queue."""
        if update not in self._unfreed:
            return True
        try:
            self._backend.delete(update.key())
        except StoreError:
            with self._lock:
                self._unfreed[update] = self._unfreed.pop(update, None)
            return False
        owner = (update.task, update.round)
        with self._lock:
            self._stored.get(owner, {}).pop(update.client, None)
            if not self._stored.get(owner, True):
                del self._stored[owner]
            self._lost.discard(update)
            self._unfreed.pop(update, None)
        return True

    def _free_leftovers(self) -> None:
        """Delete every marked update; those that the backend cannot delete now stay marked."""
        with self._lock:
            left = tuple(self._unfreed)
        failures = 0
        for update in left:
            with self._stripe(update):
                failures += not self._free(update)
            if failures == _FAILURES:
                return

    def _refused(self, full: StoreFull) -> StoreFull:
        with self._lock:
            self._refusals += 1
            waits = any(True for _ in self._pinned())
        wait = full.retry_after
        if wait is None and waits:
            wait = self._retry_after
        return StoreFull(str(full) if wait is None else f"{full}; retry in {wait:g} s", wait)

    def _fate(self, lost: PinLost | None, *, there: bool) -> str:
        if lost is not None:
            return f"{'damaged on' if lost.damaged else 'gone from'} {lost.place}; {WHAT_KEEPS_PINS}"
        if there:
            return f"damaged in {self._backend}: another value is under its key; check what else writes there"
        return f"gone from {self._backend}, or damaged; use a cache backend that keeps what is pinned"


def _closed(update: UpdateId) -> PeerFault:
    return PeerFault(
        Reason.ROUND_CLOSED, f"round {update.round} or a later one was opened or has failed; {update} came too late"
    )


def _seconds(retry_after: float) -> float:
    try:
        seconds = float(retry_after)
    except OverflowError:
        seconds = math.inf
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"retry_after is {seconds} s; it must be finite and above 0")
    return seconds
