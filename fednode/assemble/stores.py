"""Where a run keeps sealed updates and the model: made as `--cache` says, taken away again when the run ends."""

import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

from fednode.assemble.cache_location import server_address
from fednode.assemble.planning import Plan
from fednode.cache import CacheBackend, FileBackend, Limits, MemoryBackend, WhenFull
from fednode.cache.wrappers.counted import Counted
from fednode.cache.wrappers.stack import Nested, near, nested
from fednode.clock import Clock, SystemClock
from fednode.errors import ConfigError, StoreError
from fednode.live import Extras, Inspectable, Knob, Limited, StoreView, guard_knobs, limit_knobs, memory_knobs
from fednode.protocol.chunks import CHUNK_VALUES, Outline
from fednode.stores import ParameterStore, parameter_limits

if TYPE_CHECKING:
    from fednode.cache.redis.client import Link

log = logging.getLogger("fednode.run")

_BATCH = 16
"""Entries that an eviction looks at, until somebody tunes it."""
_KEEP = 1
"""Versions of the model that a round can ask for: the newest. How stale an update may be changes nothing here, since
older versions lie with the clients alone."""
_SUPERSEDED = 60
"""A version that a newer one replaced lives on for this part of a deadline: who is reading it can finish."""
_FRAMES, _FRAMES_BYTES = 64, 16 << 20
"""Requests of rounds that are kept, and the bytes that they may have together."""


class _Limited(CacheBackend, Limited, Protocol):
    """A cache whose limits may change while it is used."""


class Coherence:
    """What the copies that clients hold cost, and how old they may be: counted and changed while the run goes on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.staleness = most
        self.invalidations = 0

    def invalidated(self, copies: int) -> None:
        """So many copies of chunks became stale by a new version."""
        self.invalidations += copies

    def knob(self) -> Knob:
        """`staleness`, from 0 to what the members were told when the run began."""
        means = "versions that the model of an update may lag behind"
        return Knob(
            "staleness",
            lambda: self.staleness,
            self._tune,
            whole=True,
            check=self._check,
            means=means,
            span=f"0 to {self._most}",
        )

    def _check(self, wanted: float) -> None:
        if not 0 <= wanted <= self._most:
            raise ConfigError(
                f"staleness is 0 to {self._most} in this run, which is what its members were told; {wanted:g} is not: "
                "start a run with a higher --staleness"
            )

    def _tune(self, wanted: float) -> None:
        self._check(wanted)
        self.staleness = int(wanted)


@dataclass(frozen=True, slots=True)
class PinnedStore:
    """A cache in which everything that the node cannot do without is pinned; `backend` is what is looked at."""

    cache: Counted
    backend: CacheBackend
    limited: Limited
    least: Limits

    def view(self, extras: Extras, more: tuple[Knob, ...] = (), *, sealed: bool = False) -> StoreView:
        """It as the live view shows it."""
        shown = replace(extras, counts=self.cache.counts, limits=lambda: self.limited.limits)
        return StoreView(self.backend, shown, (*limit_knobs(self.limited, self.least), *more), sealed=sealed)


@dataclass(frozen=True, slots=True)
class Stores:
    """The caches of a run: sealed updates, versions of the model, and what clients are sent of a version.

    `downloads` holds only what can be made again: each entry is loaded when the first client needs it, serves the
    others from memory, and expires or is evicted.
    """

    updates: PinnedStore
    parameters: PinnedStore
    downloads: Nested
    memory: MemoryBackend
    """Where `downloads` lies."""
    coherence: Coherence

    def views(self) -> dict[str, Inspectable]:
        """All for the live view; what is sealed never leaves it."""
        coherence, downloads = self.coherence, self.downloads
        parameters = Extras(
            invalidations=lambda: coherence.invalidations, staleness=lambda: coherence.staleness, version=_version
        )
        sent = Extras(counts=downloads.cache.counts, limits=lambda: self.memory.limits, version=_version)
        knobs = (*guard_knobs(downloads.guard), *memory_knobs(self.memory, _BATCH))
        return {
            "updates": self.updates.view(Extras(), sealed=True),
            "parameters": self.parameters.view(parameters, (coherence.knob(),)),
            "downloads": StoreView(downloads.backend, sent, knobs),
        }

    def parameter_store(self, name: str, deadline: float) -> ParameterStore:
        """The versions of the model in these caches. `deadline`: seconds that a round may last."""
        return ParameterStore(self.parameters.cache, name, _KEEP, deadline / _SUPERSEDED, loading=self.downloads.cache)


@contextmanager
def open_stores(plan: Plan, run_id: str, folder: Path, clock: Clock) -> Iterator[Stores]:
    """The stores of one run, empty. Raises `ConfigError` or `StoreError` where they cannot be had."""
    with ExitStack() as stack:
        match plan.settings.cache:
            case "memory":
                yield _in_memory(plan, clock)
            case "file":
                waiting = stack.enter_context(TemporaryDirectory(prefix=".updates-", dir=folder))
                yield _in_files(plan, clock, Path(waiting), stack)
            case _:
                yield _on_server(plan, run_id, clock, stack)


def update_limits(plan: Plan) -> Limits:
    """Room for every client's sealed update and its boxes, and no more."""
    params, clients = plan.sum_params, plan.settings.clients
    boxes = params.upload_bytes - params.payload_bytes + 64 * params.holders
    return Limits(2 * clients, clients * (params.payload_bytes + boxes), max(params.payload_bytes, boxes))


def model_limits(plan: Plan) -> Limits:
    """Room for the version of the model that is read, one that expires and one that is being written."""
    return parameter_limits(Outline(plan.layout), _KEEP)


def download_limits(plan: Plan) -> Limits:
    """Room for two versions of the model as they travel, with the requests that they go out with."""
    chunks = Outline(plan.layout).chunks()
    model = 4 * sum(chunk.count for chunk in chunks)
    return Limits(2 * len(chunks) + _FRAMES, 2 * model + _FRAMES_BYTES, max(4 * CHUNK_VALUES, _FRAMES_BYTES // 4))


def _in_memory(plan: Plan, clock: Clock) -> Stores:
    # one shard each: all of the room is there for whatever is pinned
    updates = MemoryBackend(clock, update_limits(plan), shards=1)
    model = MemoryBackend(clock, model_limits(plan), shards=1)
    return _stores(plan, clock, updates, model)


def _in_files(plan: Plan, clock: Clock, folder: Path, stack: ExitStack) -> Stores:
    def made(name: str, limits: Limits) -> FileBackend:
        return stack.enter_context(FileBackend(folder / name, clock, limits, WhenFull.REFUSE))

    return _stores(plan, clock, made("updates", update_limits(plan)), made("model", model_limits(plan)))


def _on_server(plan: Plan, run_id: str, clock: Clock, stack: ExitStack) -> Stores:
    from fednode.cache.redis.backend import RedisBackend
    from fednode.cache.redis.client import Link
    from fednode.cache.redis.connections import LinkOptions
    from fednode.cache.redis.lease import Lease, namespace_of
    from fednode.cache.redis.records import RedisOptions

    # a server's time is the machine's, whatever clock the run has
    server_clock, address = SystemClock(), server_address(plan.settings)
    link = Link(address, LinkOptions(), server_clock)
    stack.callback(link.close)
    _sweep_server(link)
    # from before the first key to after the last: no other run takes this one for dead
    lease = stack.enter_context(Lease(link, run_id))

    def made(name: str, limits: Limits) -> RedisBackend:
        options = RedisOptions(namespace_of(run_id, name), limits, pins=True)
        backend = stack.enter_context(RedisBackend(address, options, server_clock))
        stack.callback(_take_away, backend, lease.keep)
        return backend

    updates, model = made("updates", update_limits(plan)), made("model", model_limits(plan))
    tiered = stack.enter_context(near(MemoryBackend(server_clock, model_limits(plan)), model))
    return _stores(plan, clock, updates, model, tiered)


def _stores(
    plan: Plan, clock: Clock, updates: _Limited, model: _Limited, in_front: CacheBackend | None = None
) -> Stores:
    """`in_front`: a near cache of `model`, where there is one."""
    shown = in_front or model
    memory = MemoryBackend(clock, download_limits(plan), shards=1)
    return Stores(
        updates=PinnedStore(Counted(updates), updates, updates, update_limits(plan)),
        parameters=PinnedStore(Counted(shown), shown, model, model_limits(plan)),
        downloads=nested(memory, clock, _draw),
        memory=memory,
        coherence=Coherence(plan.settings.staleness),
    )


def _sweep_server(link: "Link") -> None:
    """Remove what runs left that were killed. That it fails is no reason not to run."""
    from fednode.cache.redis.lease import sweep_dead

    try:
        for run in sweep_dead(link, ("updates", "model")):
            log.info("removed from the cache server what run %s left there: its lease has expired", run)
    except StoreError as error:
        log.warning("keys of runs that were killed may stay on the cache server: %s", error)


def _take_away(backend: CacheBackend, failed: Callable[[], None]) -> None:
    """What the run pinned has no expiry: it goes now, or with a later run."""
    try:
        backend.clear()
    except StoreError as error:
        failed()
        log.warning("keys of this run stay on the cache server until a later run removes them: %s", error)


def _version(key: str) -> int | None:
    """The version that a key of the parameter store names: `.../CHUNK@7`, or `.../7` for what lists the chunks."""
    number = key.rpartition("@" if "@" in key else "/")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def _draw() -> float:
    return secrets.randbelow(1 << 32) / (1 << 32)
