"""The caches that are measured, and what is put into them."""

from dataclasses import dataclass
from random import Random
from typing import Final

from fednode.cache import Limits, MemoryBackend
from fednode.cache.memory.policies import policy_maker
from fednode.cache.wrappers.counted import Counted
from fednode.cache.wrappers.stack import nested
from fednode.clock import Clock

TTL: Final = 3_600.0
ENTRIES: Final = 100_000
"""What a cache of short-lived data holds at most where a row does not say: large enough to be divided into shards."""

_BYTES: Final = 1 << 34
_VALUE: Final = 1 << 23
_SEED: Final = 20_260_100


@dataclass(slots=True)
class ManualClock:
    """A clock that stands at `at` seconds until it is moved."""

    at: float = 0.0

    def now(self) -> float:
        """Return `at`."""
        return self.at

    def time(self) -> float:
        """Return `at`; no date is meant."""
        return self.at

    def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self.at += seconds


def memory(clock: Clock, entries: int = ENTRIES) -> MemoryBackend:
    """Return a cache for twice `entries`, as a node has it: default policy, default shards, nothing evicted here."""
    return MemoryBackend(clock, Limits(2 * entries, _BYTES, _VALUE))


def wrapped(clock: Clock) -> Counted:
    """Return the same in its default wrappers."""
    return nested(memory(clock), clock, Random(_SEED).random).cache


def tight(clock: Clock, limits: Limits, policy: str, seed: int = 0) -> MemoryBackend:
    """Return a cache in one shard that holds exactly what `limits` allow."""
    return MemoryBackend(clock, limits, policy=policy_maker(policy, seed), shards=1)


def names(count: int) -> list[str]:
    """Return keys as a node has them, in order."""
    return [f"session/{number:09d}" for number in range(count)]


def values(count: int, size: int) -> list[bytes]:
    """Return values of `size` bytes, up to a thousand different ones."""
    distinct = [number.to_bytes(4, "little").ljust(size, b"\x5a")[:size] for number in range(min(count, 1_000))]
    return [distinct[number % len(distinct)] for number in range(count)]
