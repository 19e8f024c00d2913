"""A cache on a Redis or Valkey server: whole values or misses, and a pinned value that is lost is reported."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final, Self

from fednode.cache.backend import (
    MISSING,
    Limits,
    Missing,
    PinLost,
    StoreFull,
    TooLarge,
    Usage,
    Value,
    check_items,
    check_key,
    check_ttl,
    checked_keys,
)
from fednode.cache.fork_safety import refuse_after_fork
from fednode.cache.redis.address import RedisAddress
from fednode.cache.redis.client import Link
from fednode.cache.redis.eviction_check import EvictionCheck
from fednode.cache.redis.index import WriteIndex
from fednode.cache.redis.records import Lasting, PreparedWrite, RedisOptions, RedisValues
from fednode.cache.redis.tracking import Feed
from fednode.cache.values.pieces import Damaged
from fednode.clock import Clock
from fednode.errors import ConfigError

_STRIPES: Final = 64
_BATCH: Final = 256
_BATCH_BYTES: Final = 8 << 20


class RedisBackend:
    """A `CacheBackend` on a Redis (6.2 and later) or Valkey server; several processes may share a namespace.

    A value comes back whole and as it was stored, or is a miss: a half-written, changed or foreign value is counted in
    `damaged` and stays until it is overwritten or expires. Nodes that share a namespace need wall clocks that agree
    within a time to live. Beyond `options.limits`, or the server's maxmemory, it raises `StoreFull`; it never evicts.
    The server frees what expires; `sweep` only updates this backend's counts. `usage` counts what this backend wrote.

    Pins have no expiry. A value that this backend pinned and the server lost, for instance by a restart without its
    disk, raises `PinLost` from `get` (`get_many` leaves it out) until it is deleted or set again; `losses` counts each
    once.

    Raises `StoreError` if the server cannot be reached, refuses, or is too slow; a `set`, `pin` or `delete` may then
    have happened or not, and pieces that it left expire. `Closed` after `close`. With `options.pins`, or at the first
    pin, `ConfigError` for a server that could evict.
    """

    def __init__(
        self,
        address: RedisAddress,
        options: RedisOptions,
        clock: Clock,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._options = options
        self._clock = clock
        self._address = address
        self._index = WriteIndex(options.limits)
        self._stripes = tuple(Lock() for _ in range(_STRIPES))
        self._link = Link(address, options.link, clock)
        self._eviction = EvictionCheck(self._link, address, clock)
        self._values = RedisValues(self._link, options, clock, draw)
        self._names = self._values.names
        try:
            self._link.run([self._values.head("")])
            if options.pins:
                self._eviction.require()
        except BaseException:
            self._link.close()
            raise
        refuse_after_fork(self, "_stripes")

    def __str__(self) -> str:
        return f"the cache server {self._address} (namespace {self._options.namespace})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def losses(self) -> int:
        """Pinned values that were found gone."""
        return self._index.losses

    @property
    def limits(self) -> Limits:
        """The limits as they are now."""
        return self._index.limits

    def tune(self, limits: Limits) -> None:
        """Change the limits while the cache is in use: nothing is evicted, new values are refused until there is room.

        Raises `ConfigError` for a higher `value_bytes` than it was opened with: that sizes its reads.
        """
        most = self._options.limits.value_bytes
        if limits.value_bytes > most:
            raise ConfigError(f"value_bytes is at most {most} here; open the cache with a larger limit")
        self._index.tune(limits)

    def close(self) -> None:
        """Close the connections; everything stays on the server. Closing twice is allowed."""
        self._link.close()

    def get(self, key: str) -> Value | Missing:
        """As `CacheBackend.get`. Raises `PinLost` for a pinned value that is gone, `StoreError`."""
        found = self.get_lasting(key)
        return found if isinstance(found, Missing) else found.value

    @property
    def clock(self) -> Clock:
        """The clock that lives are measured by."""
        return self._clock

    def get_lasting(self, key: str) -> Lasting | Missing:
        """`get`, with the seconds until the value expires."""
        return self._explained(key, self._values.read((key,))[0])

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """As `CacheBackend.get_many`, in a round trip for each 256 keys."""
        return {key: found.value for key, found in self.get_many_lasting(keys).items()}

    def get_many_lasting(self, keys: Iterable[str]) -> dict[str, Lasting]:
        """`get_many`, with the seconds until the values expire."""
        wanted = tuple(dict.fromkeys(checked_keys(keys)))
        found: dict[str, Lasting] = {}
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            for key, read in zip(batch, self._values.read(batch), strict=True):
                with suppress(PinLost):
                    one = self._explained(key, read)
                    if not isinstance(one, Missing):
                        found[key] = one
        return found

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """As `CacheBackend.set`; whole on the server when this returns. Raises `StoreFull`."""
        self._set(key, value, check_ttl(ttl), pinned=False)

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """As `CacheBackend.set_many`; small values are sent together."""
        check_items(items)
        ttl = check_ttl(ttl)
        batch: list[PreparedWrite] = []
        waiting = 0
        try:
            for key, value in items.items():
                write = self._prepared(key, value, ttl, pinned=False)
                alone = bool(write.cut.pieces) or not self._link.batches
                if alone:
                    self._flush(batch, ttl)
                self._index.admit(key, write.entry, self._clock.now())
                batch.append(write)
                waiting += write.cut.manifest.size
                if alone or len(batch) >= _BATCH // 2 or waiting > _BATCH_BYTES:
                    self._flush(batch, ttl)
                    waiting = 0
        finally:
            self._flush(batch, ttl)

    def pin(self, key: str, value: Value) -> None:
        """As `CacheBackend.pin`. Raises `ConfigError` for a server that could evict, `StoreFull` for a full one."""
        self._eviction.require()
        self._set(key, value, None, pinned=True)

    def delete(self, key: str) -> bool:
        """As `CacheBackend.delete`. If the connection breaks meanwhile, False may be wrong."""
        with self._stripe(key):
            noted = self._index.entry(key)
            self._index.deleting(key)
            manifest = self._values.delete(key, noted)
            self._index.forget(key)
        return manifest is not None and manifest.expires_at > self._clock.time()

    def clear(self) -> None:
        """Forget everything in this namespace, whoever wrote it, and nothing outside it."""
        with self._all_of(self._stripes):
            self._index.deleting()
            self._link.remove(self._names.everything)
            self._index.clear()

    def sweep(self) -> int:
        """The number of this backend's values that expired since the last sweep; the server has freed them."""
        self._link.require_open()
        return self._index.sweep(self._clock.now())

    def keys(self, prefix: str = "") -> Iterator[str]:
        """As `CacheBackend.keys`, of this namespace, whoever wrote them; the server is scanned step by step."""
        check_key(prefix)
        self._link.require_open()
        return self._keys(prefix)

    def _keys(self, prefix: str) -> Iterator[str]:
        seen: set[str] = set()
        for names in self._link.scan(self._names.beginning(prefix)):
            told = {key for name in names if (key := self._names.key(name)) is not None}
            yield from self._values.living(told - seen)
            seen |= told

    def usage(self) -> Usage:
        """What this backend wrote and still counts as there, and its counts since it was made."""
        return self._index.usage()

    def follow(self) -> Feed:
        """A connection of its own that reports every change in this namespace. Raises `StoreError`."""
        return self._values.follow()

    def _explained(self, key: str, read: Lasting | Damaged | None) -> Lasting | Missing:
        """What was read, or why `key` was missed: it was not there, it expired, or the server lost it."""
        if isinstance(read, Lasting):
            return read
        if read is not None:
            self._index.damaged()
        if self._index.entry(key) is None:
            return MISSING
        with self._stripe(key):
            noted = self._index.entry(key)
            if noted is None:
                return MISSING
            if noted.expires_at <= self._clock.now():
                self._index.sweep(self._clock.now())
                return MISSING
            # with the stripe held no thread here writes it: if it is missing this time, it was lost
            found = self._values.read((key,))[0]
            if isinstance(found, Lasting):
                return found
            if noted.deleting:
                # not lost: a deletion whose answer did not come had happened
                self._index.forget(key)
                return MISSING
            if noted.pinned:
                self._index.lost(noted)
                raise PinLost(key, f"the cache server {self._address}", damaged=isinstance(found, Damaged))
            self._index.evicted(key)
            return MISSING

    def _prepared(self, key: str, value: Value, ttl: float | None, *, pinned: bool) -> PreparedWrite:
        try:
            return self._values.prepared(key, value, ttl, self._index.limits.value_bytes, pinned=pinned)
        except TooLarge:
            self._index.refused()
            raise

    def _set(self, key: str, value: Value, ttl: float | None, *, pinned: bool) -> None:
        write = self._prepared(key, value, ttl, pinned=pinned)
        self._index.admit(key, write.entry, self._clock.now())
        self._store([write], ttl)

    def _flush(self, batch: list[PreparedWrite], ttl: float | None) -> None:
        """Store the values in `batch` and empty it."""
        writes = tuple(batch)
        batch.clear()
        if writes:
            self._store(writes, ttl)

    def _store(self, writes: Sequence[PreparedWrite], ttl: float | None) -> None:
        """Store these together, or if the server has no room for all, one by one up to the first refusal."""
        numbers = sorted({hash(one.key) % _STRIPES for one in writes})
        stripes = [self._stripes[number] for number in numbers]
        try:
            with stripes[0] if len(stripes) == 1 else self._all_of(stripes):
                self._values.write(writes, [self._index.entry(one.key) for one in writes], ttl)
                for one in writes:
                    self._index.note(one.key, one.entry)
        except StoreFull:
            if len(writes) == 1:
                self._index.refused()
                raise
            for one in writes:
                self._store([one], ttl)
        finally:
            for one in writes:
                self._index.release(one.entry)

    @contextmanager
    def _all_of(self, stripes: Iterable[Lock]) -> Iterator[None]:
        """Hold these stripes for the block. They are taken in the order of `_stripes`, so no two calls deadlock."""
        held: list[Lock] = []
        try:
            for stripe in stripes:
                stripe.acquire()
                held.append(stripe)
            yield
        finally:
            for stripe in held:
                stripe.release()

    def _stripe(self, key: str) -> Lock:
        return self._stripes[hash(key) % _STRIPES]
