"""A cache on a Redis or Valkey server: whole values or misses, and a pinned value that is lost is reported."""

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import accumulate
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
)
from fednode.cache.fork_safety import refuse_after_fork
from fednode.cache.redis.address import RedisAddress
from fednode.cache.redis.client import Link
from fednode.cache.redis.eviction_check import check_no_eviction
from fednode.cache.redis.index import WriteIndex, WrittenEntry
from fednode.cache.redis.records import Lasting, RedisOptions, RedisValues
from fednode.cache.redis.tracking import Feed
from fednode.cache.values.codec import encode_counted
from fednode.cache.values.pieces import GENERATION_BYTES, Cut, Damaged, Manifest, cut, encoded_limit, key_bytes
from fednode.clock import Clock
from fednode.errors import ConfigError

_STRIPES: Final = 64
_BATCH: Final = 256
_BATCH_BYTES: Final = 8 << 20
_POLICY_SECONDS: Final = 10.0
"""For how long a pin trusts the last check of the server's eviction policy."""


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
        self._draw = draw
        self._server = str(address)
        self._place_name = f"the cache server {address}"
        self._limit = encoded_limit(options.limits.value_bytes)
        self._index = WriteIndex(options.limits)
        self._stripes = tuple(Lock() for _ in range(_STRIPES))
        self._trusted_until = -math.inf
        self._link = Link(address, options.link, clock)
        self._values = RedisValues(self._link, options, clock)
        self._names = self._values.names
        try:
            self._link.run([self._values.head("")])
            if options.pins:
                self.require_no_eviction()
        except BaseException:
            self._link.close()
            raise
        refuse_after_fork(self, "_stripes")

    def __repr__(self) -> str:
        return f"RedisBackend({self._server}, {self._options.namespace})"

    def __str__(self) -> str:
        return f"{self._place_name} (namespace {self._options.namespace})"

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

    def require_no_eviction(self) -> None:
        """Raise `ConfigError` if the server, or a primary of the cluster, could evict a pinned value."""
        for memory in self._link.memory():
            check_no_eviction(memory, self._server)
        self._trusted_until = self._clock.now() + _POLICY_SECONDS

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
        found = self._read((key,))[0]
        return self._explain(key) if found is None else found

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """As `CacheBackend.get_many`, in a round trip for each 256 keys."""
        return {key: found.value for key, found in self.get_many_lasting(keys).items()}

    def get_many_lasting(self, keys: Iterable[str]) -> dict[str, Lasting]:
        """`get_many`, with the seconds until the values expire."""
        asked = tuple(keys)
        for key in asked:
            check_key(key)
        wanted = tuple(dict.fromkeys(asked))
        found: dict[str, Lasting] = {}
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            for key, read in zip(batch, self._read(batch), strict=True):
                one: Lasting | Missing = MISSING
                with suppress(PinLost):
                    one = self._explain(key) if read is None else read
                if not isinstance(one, Missing):
                    found[key] = one
        return found

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """As `CacheBackend.set`; whole on the server when this returns. Raises `StoreFull`."""
        ttl = check_ttl(ttl)
        self._place(key, *self._prepared(key, value, ttl, pinned=False), ttl)

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """As `CacheBackend.set_many`; small values are sent together."""
        check_items(items)
        ttl = check_ttl(ttl)
        batch: dict[str, tuple[Cut, WrittenEntry]] = {}
        waiting = 0
        try:
            for key, value in items.items():
                ready, noted = self._prepared(key, value, ttl, pinned=False)
                if ready.pieces or not self._link.batches:
                    self._flush(batch, ttl)
                    self._place(key, ready, noted, ttl)
                    continue
                self._index.admit(key, noted, self._clock.now())
                waiting = waiting * bool(batch) + ready.manifest.size
                batch[key] = (ready, noted)
                if len(batch) >= _BATCH // 2 or waiting > _BATCH_BYTES:
                    self._flush(batch, ttl)
        except Exception:
            self._flush(batch, ttl)
            raise
        self._flush(batch, ttl)

    def pin(self, key: str, value: Value) -> None:
        """As `CacheBackend.pin`. Raises `ConfigError` for a server that could evict, `StoreFull` for a full one."""
        if self._clock.now() >= self._trusted_until:
            self.require_no_eviction()
        self._place(key, *self._prepared(key, value, None, pinned=True), None)

    def delete(self, key: str) -> bool:
        """As `CacheBackend.delete`. If the connection breaks meanwhile, False may be wrong."""
        with self._stripe(key):
            noted = self._index.entry(key)
            self._index.deleting(key)
            manifest = self._values.delete(key, noted)
            self._index.forget(key)
        self._free(key, manifest, noted)
        return manifest is not None and manifest.expires_at > self._clock.time()

    def clear(self) -> None:
        """Forget everything in this namespace, whoever wrote it, and nothing outside it."""
        with self._all_of(self._stripes):
            self._index.deleting_all()
            for pattern in self._names.everything:
                for names in self._link.scan(pattern):
                    if names:
                        self._link.run([("UNLINK", name) for name in names])
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

    def lost_pins(self) -> tuple[str, ...]:
        """The keys of pinned values that are gone, sorted. Asks the server for each, without fetching it.

        A value that was changed but not in its length is found by `get` only, and is among them from then on.
        """
        lost: list[str] = []
        pins = self._index.pins()
        for start in range(0, len(pins), _BATCH):
            batch = pins[start : start + _BATCH]
            whole = self._values.whole([(key, noted.generation) for key, noted in batch])
            suspects = [key for (key, noted), fine in zip(batch, whole, strict=True) if not fine or noted.lost]
            for key in suspects:
                try:
                    self._explain(key)
                except PinLost:
                    lost.append(key)
        return tuple(sorted(lost))

    def follow(self) -> Feed:
        """A connection of its own that reports every change in this namespace. Raises `StoreError`."""
        probe = self._names.probe(self._draw(GENERATION_BYTES).hex())

        def write_probe() -> None:
            self._link.run([("SET", probe, b"", "PX", 1000)])

        return Feed(self._link.track(self._names.records), self._names, write_probe)

    def _read(self, keys: tuple[str, ...]) -> list[Lasting | None]:
        found: list[Lasting | None] = []
        for one in self._values.read(keys):
            if isinstance(one, Damaged):
                self._index.damaged()
            found.append(None if isinstance(one, Damaged) else one)
        return found

    def _explain(self, key: str) -> Lasting | Missing:
        """Find out why `key` was missed: it was not there, it expired, or the server lost it."""
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
                raise PinLost(key, self._place_name, damaged=isinstance(found, Damaged))
            self._index.evicted(key)
            return MISSING

    def _prepared(self, key: str, value: Value, ttl: float | None, *, pinned: bool) -> tuple[Cut, WrittenEntry]:
        """Encode a value for writing. Raises `TooLarge`, and as `encode_counted` does."""
        try:
            data, size = encode_counted(value, self._index.limits.value_bytes)
            if len(data) > self._limit:
                raise TooLarge(len(data), self._limit)
        except TooLarge:
            self._index.refused()
            raise
        life = math.inf if ttl is None else ttl
        generation = self._draw(GENERATION_BYTES)
        ready = cut(key_bytes(key), data, self._options.piece_bytes, generation, self._clock.time() + life)
        return ready, WrittenEntry(size, generation, ready.manifest.count, self._clock.now() + life, pinned=pinned)

    def _place(self, key: str, ready: Cut, noted: WrittenEntry, ttl: float | None) -> None:
        self._index.admit(key, noted, self._clock.now())
        try:
            with self._stripe(key):
                before = self._index.entry(key)
                manifest = self._values.write(key, ready, ttl, before)
                self._index.note(key, noted)
        except StoreFull:
            self._index.refused()
            raise
        finally:
            self._index.release(noted)
        self._free(key, manifest, before, noted.generation)

    def _flush(self, batch: dict[str, tuple[Cut, WrittenEntry]], ttl: float | None) -> None:
        """Store the values in `batch` together and empty it; if that is refused, one by one up to the first refusal."""
        items = dict(batch)
        batch.clear()
        try:
            self._place_together(items, ttl)
        except StoreFull:
            for key, ready in items.items():
                self._place(key, *ready, ttl)

    def _place_together(self, items: Mapping[str, tuple[Cut, WrittenEntry]], ttl: float | None) -> None:
        numbers = sorted({hash(key) % _STRIPES for key in items})
        try:
            with self._all_of(self._stripes[number] for number in numbers):
                replaced = self._replaced(items, ttl)
            for key, manifest, old in replaced:
                self._free(key, manifest, old, items[key][1].generation)
        finally:
            for _, noted in items.values():
                self._index.release(noted)

    def _replaced(
        self, items: Mapping[str, tuple[Cut, WrittenEntry]], ttl: float | None
    ) -> list[tuple[str, Manifest | None, WrittenEntry | None]]:
        """Write all in one transaction; for each the manifest that was there, and our entry of it."""
        if not items:
            return []
        before = [self._index.entry(key) for key in items]
        each = zip(items.items(), before, strict=True)
        writes = [self._values.commit(key, ready, ttl, old) for (key, (ready, _)), old in each]
        replies = self._link.run([one for write in writes for one in write], atomic=True)
        for key, (_, noted) in items.items():
            self._index.note(key, noted)
        # the first command of each write asks for the old manifest
        starts = accumulate((len(write) for write in writes[:-1]), initial=0)
        manifests = [self._values.manifest(replies[start]) for start in starts]
        return list(zip(items, manifests, before, strict=True))

    @contextmanager
    def _all_of(self, stripes: Iterable[Lock]) -> Iterator[None]:
        """Hold these stripes for the block. They are taken in the order of `_stripes`, so no two calls deadlock."""
        with ExitStack() as held:
            for stripe in stripes:
                held.enter_context(stripe)
            yield

    def _free(self, key: str, manifest: Manifest | None, noted: WrittenEntry | None, new: bytes = b"") -> None:
        # the manifest and the entry: a transaction sent again after a lost answer finds the manifest of its first try
        old = {(one.generation, one.count) for one in (manifest, noted) if one is not None and one.generation != new}
        self._values.unlink_pieces(key, old)

    def _stripe(self, key: str) -> Lock:
        return self._stripes[hash(key) % _STRIPES]
