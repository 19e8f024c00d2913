"""Which entry is evicted: small policies behind one protocol, found by name."""

from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

from fednode.cache.memory.policies.adaptive import Adaptive
from fednode.cache.memory.policies.lfu import Lfu
from fednode.cache.memory.policies.lru import Lru
from fednode.cache.memory.policies.protocol import Mark, Policy
from fednode.cache.memory.policies.s3fifo import S3Fifo
from fednode.errors import ConfigError

PolicyMaker: TypeAlias = Callable[[], Policy]
"""Makes a fresh policy: each shard of a cache has its own."""

POLICIES: Final = ("lru", "lfu", "adaptive", "s3fifo")
"""The names `policy_maker` knows."""

__all__ = ["POLICIES", "Adaptive", "Lfu", "Lru", "Mark", "Policy", "PolicyMaker", "S3Fifo", "policy_maker"]


def policy_maker(name: str, seed: int = 0) -> PolicyMaker:
    """What makes the policy called `name`; those that draw share one generator of `seed`. Raises `ConfigError`."""
    random = Random(seed).random
    makers: dict[str, PolicyMaker] = {
        "lru": Lru,
        "lfu": Lfu,
        "adaptive": lambda: Adaptive(random),
        "s3fifo": S3Fifo,
    }
    if name not in makers:
        raise ConfigError(f"unknown cache policy {name!r}; use one of {', '.join(POLICIES)}")
    return makers[name]
