"""A cache for short-lived data that is read often: values by key until they expire, within limits. Not an archive.

A `CacheBackend` stores values; wrappers around one load, count, cut into pieces, and keep near copies. `docs/cache.md`
shows each. Importing this imports neither redis-py nor torch.
"""

from fednode.cache.backend import (
    MISSING,
    CacheBackend,
    Closed,
    Limits,
    Missing,
    PinLost,
    StoreFull,
    TooLarge,
    Usage,
    Value,
    WhenFull,
)
from fednode.cache.files.backend import FileBackend
from fednode.cache.memory.backend import MemoryBackend
from fednode.cache.memory.policies import POLICIES, policy_maker
from fednode.cache.redis.address import RedisAddress, TlsFiles
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.connections import LinkOptions
from fednode.cache.redis.records import RedisOptions
from fednode.cache.wrappers.chunked import Chunked
from fednode.cache.wrappers.counted import Counted
from fednode.cache.wrappers.loading import Guarded, GuardSettings, StillLoading
from fednode.cache.wrappers.stack import Nested, Wrapping, near, nested
from fednode.cache.wrappers.tiered import Tiered, TierOptions

__all__ = [
    "MISSING",
    "POLICIES",
    "CacheBackend",
    "Chunked",
    "Closed",
    "Counted",
    "FileBackend",
    "GuardSettings",
    "Guarded",
    "Limits",
    "LinkOptions",
    "MemoryBackend",
    "Missing",
    "Nested",
    "PinLost",
    "RedisAddress",
    "RedisBackend",
    "RedisOptions",
    "StillLoading",
    "StoreFull",
    "TierOptions",
    "Tiered",
    "TlsFiles",
    "TooLarge",
    "Usage",
    "Value",
    "WhenFull",
    "Wrapping",
    "near",
    "nested",
    "policy_maker",
]
