"""Row `updates`: 200 clients' updates in a store beside parameters that evict each other: how many are lost unread.

A round's updates arrive in any order while parameters are read and written. Before the round is opened the next one's
begin to come, until there is no room: a push that is refused comes back after the round was consumed. Lost is an
update that was accepted and cannot be read when its round is opened, or that was never accepted.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Final

from benchmarks.cache import stores
from fednode.cache import MISSING, CacheBackend, Limits, MemoryBackend, StoreFull
from fednode.cache.memory.policies import POLICIES
from fednode.stores import UpdateLost, UpdateStore

ROOM: Final = (1.5, 1.05)
CLIENTS: Final = 200
ROUNDS: Final = 8
UPDATE_BYTES: Final = 20_000
CHUNK_BYTES: Final = 4_000
CHUNKS: Final = 50
STATES: Final = 10
"""Chunks of the client's own state, beside those of the model that all read."""

_TASK: Final = "task"
_SEED: Final = 20_260_103


@dataclass(slots=True)
class UpdateCounts:
    """What happened to the updates of all rounds, and to the parameters beside them."""

    accepted: int = 0
    refused: int = 0
    lost: int = 0
    parameters_refused: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """One run: a policy, and `room`, the cache's bytes against those of one round's updates."""

    policy: str
    room: float
    clients: int = CLIENTS
    rounds: int = ROUNDS

    @property
    def bytes(self) -> int:
        """Return the bytes that the cache holds at most."""
        return int(self.room * self.clients * UPDATE_BYTES)


def work(clients: int, rounds: int) -> dict[str, Any]:
    """Answer the counts by policy and room, with updates pinned and, for comparison, as values like all others."""
    loads = [Load(policy, room, clients, rounds) for policy in POLICIES for room in ROOM]
    return {
        "runs": [
            {**asdict(load), **asdict(pinned(load)), "lost_unpinned": unpinned(load).lost} for load in loads
        ]
    }  # fmt: skip


def pinned(load: Load) -> UpdateCounts:
    """Return the counts with updates in an `UpdateStore`."""
    backend = _backend(load)
    return _Rounds(load, backend, _Pinned(UpdateStore(backend, retry_after=1.0))).run()


def unpinned(load: Load) -> UpdateCounts:
    """Return the counts with updates set as parameters are: what an evicting cache does to them."""
    backend = _backend(load)
    return _Rounds(load, backend, _Unpinned(backend)).run()


def _backend(load: Load) -> MemoryBackend:
    limits = Limits(load.clients * (CHUNKS + STATES), load.bytes, UPDATE_BYTES)
    return stores.tight(stores.ManualClock(), limits, load.policy)


@dataclass(frozen=True, slots=True)
class _Pinned:
    store: UpdateStore

    def push(self, number: int, client: str, payload: bytes) -> None:
        self.store.put(_TASK, number, client, payload)

    def read(self, number: int, client: str) -> object:
        try:
            return self.store.get(_TASK, number, client)
        except UpdateLost:
            return MISSING

    def consume(self, number: int, _clients: Iterable[str]) -> None:
        self.store.consume(_TASK, number)


@dataclass(frozen=True, slots=True)
class _Unpinned:
    backend: CacheBackend

    def push(self, number: int, client: str, payload: bytes) -> None:
        self.backend.set(f"update/{number}/{client}", payload, None)

    def read(self, number: int, client: str) -> object:
        return self.backend.get(f"update/{number}/{client}")

    def consume(self, number: int, clients: Iterable[str]) -> None:
        for client in clients:
            self.backend.delete(f"update/{number}/{client}")


@dataclass(slots=True)
class _Rounds:
    load: Load
    backend: CacheBackend
    updates: _Pinned | _Unpinned
    counts: UpdateCounts = field(default_factory=UpdateCounts)
    choice: Random = field(default_factory=lambda: Random(_SEED))

    def run(self) -> UpdateCounts:
        clients = stores.names(self.load.clients)
        waiting = clients
        for number in range(self.load.rounds):
            self.choice.shuffle(clients)
            left = self._push(number, waiting)
            # whoever is refused with nothing to wait for would be refused for ever
            self.counts.lost += len(left)
            early = clients if number + 1 < self.load.rounds else []
            waiting = self._push(number + 1, early)
            self._open(number, [client for client in clients if client not in set(left)])
        return self.counts

    def _push(self, number: int, clients: Iterable[str]) -> list[str]:
        refused = []
        for client in clients:
            self._parameters(number, client)
            try:
                self.updates.push(number, client, payload(number, client))
            except StoreFull:
                self.counts.refused += 1
                refused.append(client)
            else:
                self.counts.accepted += 1
        return refused

    def _open(self, number: int, clients: list[str]) -> None:
        for client in clients:
            self._parameters(number, client)
            self.counts.lost += self.updates.read(number, client) != payload(number, client)
        self.updates.consume(number, clients)

    def _parameters(self, number: int, client: str) -> None:
        # a client reads some of the model and of its own state, and what is not there is fetched and set again
        chunks = self.choice.sample(range(CHUNKS), 5)
        keys = [f"model/{number}/{chunk}" for chunk in chunks] + [
            f"state/{client}/{chunk % STATES}" for chunk in chunks
        ]
        found = self.backend.get_many(keys)
        for key in keys:
            if key not in found:
                self._set(key)

    def _set(self, key: str) -> None:
        try:
            self.backend.set(key, bytes(CHUNK_BYTES), stores.TTL)
        except StoreFull:
            self.counts.parameters_refused += 1


def payload(number: int, client: str) -> bytes:
    """Return the sealed bytes of a client's update, different for each client and round."""
    return f"{number}/{client}/".encode().ljust(UPDATE_BYTES, b"\x5a")
