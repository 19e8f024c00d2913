"""Short-lived, often-read data: found by key until it expires, gone afterwards, bounded in size. Not the archive.

`CacheBackend` is where bytes live; `UpdateStore` and `ParameterStore` stand on top of one and give their promises.
"""

from fednode.cache.backend import MISSING, CacheBackend, Limits, Missing, StoreFull, TooLarge
from fednode.cache.file import FileBackend
from fednode.cache.memory import MemoryBackend, Usage, WhenFull
from fednode.cache.parameters import ParameterSnapshot, ParameterStore, parameter_digest
from fednode.cache.updates import UpdateId, UpdateLost, UpdateStore

__all__ = [
    "MISSING",
    "CacheBackend",
    "FileBackend",
    "Limits",
    "MemoryBackend",
    "Missing",
    "ParameterSnapshot",
    "ParameterStore",
    "StoreFull",
    "TooLarge",
    "UpdateId",
    "UpdateLost",
    "UpdateStore",
    "Usage",
    "WhenFull",
    "parameter_digest",
]
