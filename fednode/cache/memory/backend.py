"""A cache in this process's memory: shards with a lock each, and values that no caller can reach."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from threading import Lock
from typing import Final

from fednode.cache.backend import (
    MISSING,
    Limits,
    Missing,
    TooLarge,
    Usage,
    Value,
    WhenFull,
    check_items,
    check_key,
    check_ttl,
    check_when_full,
    checked_keys,
)
from fednode.cache.fork_safety import refuse_after_fork
from fednode.cache.memory.policies import PolicyMaker, policy_maker
from fednode.cache.memory.shard import MemoryEntry, Shard, find_many
from fednode.cache.values.freeze import freeze, hand_out
from fednode.clock import Clock
from fednode.errors import ConfigError

_MOST_SHARDS: Final = 8
_ENTRIES_PER_SHARD: Final = 1_024
_VALUES_PER_SHARD: Final = 64
"""Values of the largest size that a shard must have room for, or one is full while the next is empty."""
_MOST_PARTS: Final = 64
"""The most shards: `get_many` visits them one after the other."""
_LARGEST_BATCH: Final = 1 << 20


class MemoryBackend:
    """A `CacheBackend` in dicts: absolute monotonic expiry, and limits that hold after every call.

    `policy` is a name of `fednode.cache.memory.policies` or makes a policy. A key belongs to the shard of its hash, and
    each shard has its part of the limits. `shards`: None for as many as leave each a large part, or 1 under
    `WhenFull.REFUSE`; with more, one shard may be full of pins while others have room. Values are copied outside the
    locks. A signal handler or destructor must not call the cache.
    """

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        when_full: WhenFull = WhenFull.EVICT,
        policy: str | PolicyMaker = "adaptive",
        shards: int | None = None,
    ) -> None:
        check_when_full(when_full)
        refuses = when_full is WhenFull.REFUSE
        count = (1 if refuses else _shards_for(limits)) if shards is None else shards
        make = policy_maker(policy) if isinstance(policy, str) else policy
        self._now = clock.now
        self._limits = limits
        self._shards = [Shard(part, make, refuses=refuses) for part in _parts(limits, count)]
        self._count = count
        self._tuning = Lock()
        refuse_after_fork(self, "_tuning")

    def __str__(self) -> str:
        return "this process's memory"

    @property
    def limits(self) -> Limits:
        """The limits as they are now."""
        return self._limits

    def get(self, key: str) -> Value | Missing:
        """The value last set and not expired, or `MISSING`; counts as a use."""
        if type(key) is not str:
            check_key(key)
        entry = self._shards[hash(key) % self._count].find(key, self._now())
        if entry is None:
            return MISSING
        return entry.content if entry.plain else hand_out(entry.content)

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """Those of `keys` that `get` would find, in the order asked. Each shard is locked once."""
        # the caller's iterable may be slow, so it is read before a lock is taken
        asked = checked_keys(keys)
        found = find_many(self._shards, asked, self._now()).get
        return {
            key: entry.content if entry.plain else hand_out(entry.content)
            for key in asked
            if (entry := found(key)) is not None
        }

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """As `CacheBackend.set`."""
        if ttl is not None:
            ttl = check_ttl(ttl)
        if type(key) is not str:
            check_key(key)
        shard = self._shards[hash(key) % self._count]
        entry = self._entry(shard, key, value)
        now = self._now()
        if ttl is not None:
            entry.expires_at = now + ttl
        shard.put(entry, now)

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """`set` for each item in order, up to the first refusal."""
        check_items(items)
        for key, value in items.items():
            self.set(key, value, ttl)

    def pin(self, key: str, value: Value) -> None:
        """As `CacheBackend.pin`."""
        check_key(key)
        shard = self._shards[hash(key) % self._count]
        entry = self._entry(shard, key, value)
        entry.pinned = True
        shard.put(entry, self._now())

    def delete(self, key: str) -> bool:
        """Forget `key`; True if it was there and had not expired."""
        check_key(key)
        return self._shards[hash(key) % self._count].delete(key, self._now())

    def clear(self) -> None:
        """Forget everything."""
        for shard in self._shards:
            shard.clear()

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed. Of the rest it looks at one entry a shard."""
        now = self._now()
        return sum(shard.sweep(now) for shard in self._shards)

    def keys(self, prefix: str = "") -> Iterator[str]:
        """As `CacheBackend.keys`; each shard as it was at one moment of the call."""
        check_key(prefix)
        now = self._now()
        return iter([key for shard in self._shards for key in shard.keys(prefix, now)])

    def usage(self) -> Usage:
        """Entries, bytes and counts so far, over all shards."""
        each = [shard.usage() for shard in self._shards]
        return Usage(*(sum(getattr(one, field.name) for one in each) for field in fields(Usage)))

    def tune(self, limits: Limits | None = None, batch: int | None = None) -> None:
        """Change the limits, and how many candidates the policy chooses a victim from, while the cache is in use.

        Lower limits evict at once, values over a lower `value_bytes` too; pinned entries stay, and new ones are refused
        until there is room. Under `WhenFull.REFUSE` nothing is evicted. Raises `ConfigError` unless `batch` is an int
        from 1 to 2**20, or for limits too low for the shards.
        """
        if batch is not None and (type(batch) is not int or not 1 <= batch <= _LARGEST_BATCH):
            raise ConfigError(f"the eviction batch is {batch!r}; use a whole number from 1 to {_LARGEST_BATCH}")
        with self._tuning:
            # read under the lock: another tune may have changed them a moment ago
            wanted = self._limits if limits is None else limits
            parts = _parts(wanted, self._count)
            self._limits = wanted
            for shard, part in zip(self._shards, parts, strict=True):
                shard.tune(part, batch, self._now())

    def fits_beside_pins(self, sizes: Mapping[str, int]) -> bool:
        """Whether values of these sizes, by key, would fit together if everything that is not pinned were evicted."""
        parts: list[dict[str, int]] = [{} for _ in self._shards]
        for key, size in sizes.items():
            parts[hash(key) % self._count][key] = size
        return all(shard.fits_beside_pins(part) for shard, part in zip(self._shards, parts, strict=True) if part)

    def _entry(self, shard: Shard, key: str, value: Value) -> MemoryEntry:
        """An entry for a copy of `value`, without expiry and not pinned."""
        most = self._limits.value_bytes
        if type(value) is bytes and len(value) <= most:
            return MemoryEntry(key, value, len(value), plain=True)
        try:
            content, size, plain = freeze(value, most)
        except TooLarge:
            shard.refused()
            raise
        return MemoryEntry(key, content, size, plain=plain)


def _shards_for(limits: Limits) -> int:
    by_bytes = limits.total_bytes // (_VALUES_PER_SHARD * limits.value_bytes)
    return max(1, min(_MOST_SHARDS, limits.entries // _ENTRIES_PER_SHARD, by_bytes))


def _parts(limits: Limits, count: int) -> list[Limits]:
    """`limits` divided over `count` shards; the parts add up to them."""
    if not 1 <= count <= min(limits.entries, _MOST_PARTS) or limits.value_bytes > limits.total_bytes // count:
        raise ConfigError(
            f"{limits.entries} entries, {limits.total_bytes} bytes and values of {limits.value_bytes} bytes cannot be "
            f"divided over {count} shards; raise the limits, lower value_bytes, or use fewer shards"
        )
    entries, total = divmod(limits.entries, count), divmod(limits.total_bytes, count)
    return [
        Limits(entries[0] + (number < entries[1]), total[0] + (number < total[1]), limits.value_bytes)
        for number in range(count)
    ]
