"""Short-lived, often-read data: found by key until it expires, gone afterwards, bounded in size. Not the archive.

`CacheBackend` is where bytes live; `UpdateStore` and `ParameterStore` stand on top of one and give their promises.
`docs/cache.md` shows each at work. Importing this imports neither redis-py nor torch.
"""

from fednode.cache.backend import MISSING, CacheBackend, Closed, Limits, Missing, StoreFull, TooLarge, Usage, Value
from fednode.cache.chunked import Chunked
from fednode.cache.counted import Counted
from fednode.cache.file import FileBackend
from fednode.cache.guarded import Guarded, GuardSettings, StillLoading
from fednode.cache.lost import PinLost
from fednode.cache.memory import MemoryBackend, WhenFull
from fednode.cache.nest import Nested, Wrapping, near, nested
from fednode.cache.parameters import ParameterSnapshot, ParameterStore, parameter_limits
from fednode.cache.policies import POLICIES, policy_maker
from fednode.cache.redis import LinkOptions
from fednode.cache.redis_address import RedisAddress, TlsFiles
from fednode.cache.redis_backend import RedisBackend
from fednode.cache.redis_values import RedisOptions
from fednode.cache.tiered import Tiered, TierOptions
from fednode.cache.updates import PinOwner, UpdateId, UpdateLost, UpdateStore, UpdateUsage

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
    "ParameterSnapshot",
    "ParameterStore",
    "PinLost",
    "PinOwner",
    "RedisAddress",
    "RedisBackend",
    "RedisOptions",
    "StillLoading",
    "StoreFull",
    "TierOptions",
    "Tiered",
    "TlsFiles",
    "TooLarge",
    "UpdateId",
    "UpdateLost",
    "UpdateStore",
    "UpdateUsage",
    "Usage",
    "Value",
    "WhenFull",
    "Wrapping",
    "near",
    "nested",
    "parameter_limits",
    "policy_maker",
]
