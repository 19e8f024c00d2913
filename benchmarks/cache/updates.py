"""Row `updates`: 200 clients' updates in a store beside parameters that evict each other; how many are lost unread.

A round's updates arrive in any order while parameters are read and written. Before the round is opened the next one's
begin to come, until there is no room: a push that is refused comes back after the round was consumed. Lost is an
update that was accepted and cannot be read when its round is opened, or that was never accepted.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

from benchmarks.cache import stores
from fednode.cache import MISSING, CacheBackend, Limits, StoreFull
from fednode.cache.memory.policies import POLICIES
from fednode.stores import UpdateLost, UpdateStore

ROOM: Final = (1.5, 1.05)
UPDATE_BYTES: Final = 20_000
CHUNK_BYTES: Final = 4_000
CHUNKS: Final = 50
STATES: Final = 10
"""Chunks of the client's own state, beside those of the model that all read."""

_TASK: Final = "task"
_SEED: Final = 20_260_103


@dataclass(frozen=True, slots=True)
class Load:
    """One run: a policy, and `room`, the cache's bytes against those of one round's updates."""

    policy: str
    room: float
    clients: int
    rounds: int


@dataclass(slots=True)
class UpdateCounts:
    """What happened to the updates of all rounds, and to the parameters beside them."""

    accepted: int = 0
    refused: int = 0
    lost: int = 0
    parameters_refused: int = 0


def work(clients: int, rounds: int) -> dict[str, Any]:
    """Answer the counts by policy and room, with updates pinned and, for comparison, as values like all others."""
    loads = [Load(policy, room, clients, rounds) for policy in POLICIES for room in ROOM]
    return {
        "runs": [
            {**asdict(load), **asdict(run(load, pinned=True)), "lost_unpinned": run(load, pinned=False).lost}
            for load in loads
        ]
    }


def run(load: Load, *, pinned: bool) -> UpdateCounts:
    """Return the counts with updates in an `UpdateStore`, or set as parameters are, for an evicting cache to drop."""
    limits = Limits(load.clients * (CHUNKS + STATES), int(load.room * load.clients * UPDATE_BYTES), UPDATE_BYTES)
    backend = stores.tight(stores.ManualClock(), limits, load.policy)
    return _Rounds(load, backend, UpdateStore(backend, retry_after=1.0) if pinned else _Unpinned(backend)).run()


@dataclass(frozen=True, slots=True)
class _Unpinned:
    """Updates as values like all others, behind the verbs of an UpdateStore."""

    backend: CacheBackend

    def put(self, _task: str, number: int, client: str, payload: bytes) -> None:
        self.backend.set(f"update/{number}/{client}", payload, None)

    def get(self, _task: str, number: int, client: str) -> object:
        return self.backend.get(f"update/{number}/{client}")

    def consume(self, _task: str, number: int) -> None:
        for key in list(self.backend.keys(f"update/{number}/")):
            self.backend.delete(key)


class _Rounds:
    def __init__(self, load: Load, backend: CacheBackend, updates: UpdateStore | _Unpinned) -> None:
        self._load, self._backend, self._updates = load, backend, updates
        self._counts, self._choice = UpdateCounts(), Random(_SEED)

    def run(self) -> UpdateCounts:
        clients = stores.names(self._load.clients)
        waiting = clients
        for number in range(self._load.rounds):
            self._choice.shuffle(clients)
            left = self._push(number, waiting)
            # whoever is refused with nothing to wait for would be refused for ever
            self._counts.lost += len(left)
            early = clients if number + 1 < self._load.rounds else []
            waiting = self._push(number + 1, early)
            self._open(number, [client for client in clients if client not in set(left)])
        return self._counts

    def _push(self, number: int, clients: Iterable[str]) -> list[str]:
        refused = []
        for client in clients:
            self._parameters(number, client)
            try:
                self._updates.put(_TASK, number, client, payload(number, client))
            except StoreFull:
                self._counts.refused += 1
                refused.append(client)
            else:
                self._counts.accepted += 1
        return refused

    def _open(self, number: int, clients: list[str]) -> None:
        for client in clients:
            self._parameters(number, client)
            self._counts.lost += self._read(number, client) != payload(number, client)
        self._updates.consume(_TASK, number)

    def _read(self, number: int, client: str) -> object:
        try:
            return self._updates.get(_TASK, number, client)
        except UpdateLost:
            return MISSING

    def _parameters(self, number: int, client: str) -> None:
        # a client reads some of the model and of its own state; missing chunks are fetched and set again
        chunks = self._choice.sample(range(CHUNKS), 5)
        keys = [f"model/{number}/{chunk}" for chunk in chunks] + [
            f"state/{client}/{chunk % STATES}" for chunk in chunks
        ]
        found = self._backend.get_many(keys)
        for key in keys:
            if key not in found:
                try:
                    self._backend.set(key, bytes(CHUNK_BYTES), stores.TTL)
                except StoreFull:
                    self._counts.parameters_refused += 1


def payload(number: int, client: str) -> bytes:
    """Return the sealed bytes of a client's update, different for each client and round."""
    return f"{number}/{client}/".encode().ljust(UPDATE_BYTES, b"\x5a")
