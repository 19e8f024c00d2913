"""Short-lived, often-read data: found by key until it expires, gone afterwards, bounded in size. Not the archive.

`CacheBackend` is where bytes live; `UpdateStore` and `ParameterStore` stand on top of one and give their promises.
"""

from fednode.cache.backend import MISSING, CacheBackend, Limits, Missing, StoreFull, TooLarge, Usage
from fednode.cache.file import FileBackend
from fednode.cache.memory import MemoryBackend, WhenFull
from fednode.cache.parameters import ParameterSnapshot, ParameterStore, parameter_limits
from fednode.cache.policies import POLICIES, policy_maker
from fednode.cache.updates import PinOwner, UpdateId, UpdateLost, UpdateStore, UpdateUsage

__all__ = [
    "MISSING",
    "POLICIES",
    "CacheBackend",
    "FileBackend",
    "Limits",
    "MemoryBackend",
    "Missing",
    "ParameterSnapshot",
    "ParameterStore",
    "PinOwner",
    "StoreFull",
    "TooLarge",
    "UpdateId",
    "UpdateLost",
    "UpdateStore",
    "UpdateUsage",
    "Usage",
    "WhenFull",
    "parameter_limits",
    "policy_maker",
]
