"""Whether a cache that evicts has room for several values at once: asked before the first of them makes others go."""

from collections.abc import Callable, Mapping
from typing import Protocol

from fednode.cache.backend import CacheBackend, Limits, Usage
from fednode.cache.files.backend import FileBackend
from fednode.cache.memory.backend import MemoryBackend


class _Entry(Protocol):
    @property
    def size(self) -> int: ...

    @property
    def pinned(self) -> bool: ...


def fits_beside_pins(inner: CacheBackend, sizes: Mapping[str, int]) -> bool:
    """Whether these keys, with values of these bytes, fit into `inner` once all has gone that is not pinned.

    True where nobody can say: a cache of another kind says so itself, one value after the other.
    """
    if isinstance(inner, MemoryBackend):
        parts: list[dict[str, int]] = [{} for _ in range(inner.shards)]
        for key, size in sizes.items():
            parts[hash(key) % inner.shards][key] = size
        now = inner._now()
        return all(
            _fits(shard._limits, shard.usage(now), part, shard._entries.get)
            for shard, part in zip(inner._shards, parts, strict=True)
            if part
        )
    if isinstance(inner, FileBackend):
        return _fits(inner.limits, inner.usage(), sizes, inner._book.entries.get)
    return True


def _fits(limits: Limits, usage: Usage, sizes: Mapping[str, int], found: Callable[[str], _Entry | None]) -> bool:
    # what is pinned under one of these keys is replaced
    old = [entry.size for key in sizes if (entry := found(key)) is not None and entry.pinned]
    return (
        usage.pinned_entries - len(old) + len(sizes) <= limits.entries
        and usage.pinned_bytes - sum(old) + sum(sizes.values()) <= limits.total_bytes
    )
