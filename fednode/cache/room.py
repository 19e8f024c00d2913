"""Whether a cache that evicts has room for several values at once: asked before the first of them makes others go."""

from collections.abc import Collection, Mapping

from fednode.cache.backend import CacheBackend, Limits, Usage
from fednode.cache.file import FileBackend
from fednode.cache.memory import MemoryBackend


def fits_beside_pins(inner: CacheBackend, sizes: Mapping[str, int]) -> bool:
    """Whether these new keys, with values of these bytes, fit into `inner` once all has gone that is not pinned.

    True where nobody can say: a cache of another kind says so itself, one value after the other.
    """
    if isinstance(inner, MemoryBackend):
        parts: list[list[int]] = [[] for _ in range(inner.shards)]
        for key, size in sizes.items():
            parts[hash(key) % inner.shards].append(size)
        now = inner._now()
        return all(
            _fits(shard._limits, shard.usage(now), part)
            for shard, part in zip(inner._shards, parts, strict=True)
            if part
        )
    if isinstance(inner, FileBackend):
        return _fits(inner.limits, inner.usage(), sizes.values())
    return True


def _fits(limits: Limits, usage: Usage, sizes: Collection[int]) -> bool:
    return usage.pinned_entries + len(sizes) <= limits.entries and usage.pinned_bytes + sum(sizes) <= limits.total_bytes
