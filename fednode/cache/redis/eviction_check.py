"""Whether a server could evict pinned values, from its memory settings."""

from collections.abc import Mapping
from math import inf
from typing import Final

from fednode.cache.redis.address import RedisAddress
from fednode.cache.redis.client import Link
from fednode.clock import Clock
from fednode.errors import ConfigError

_TRUSTED_SECONDS: Final = 10.0
"""For how long the last check is trusted."""


class EvictionCheck:
    """Checks a server's eviction policy now and then, because its operator may change it."""

    def __init__(self, link: Link, address: RedisAddress, clock: Clock) -> None:
        self._link, self._address, self._clock = link, address, clock
        self._trusted_until = -inf

    def require(self) -> None:
        """Raise `ConfigError` if the server, or a primary of the cluster, could evict a pinned value."""
        if self._clock.now() >= self._trusted_until:
            for memory in self._link.memory():
                check_no_eviction(memory, self._address)
            self._trusted_until = self._clock.now() + _TRUSTED_SECONDS


def check_no_eviction(memory: Mapping[str, str], server: object) -> None:
    """Raise `ConfigError` if a server with these memory settings, as INFO names them, could evict pinned values."""
    policy, limit = memory.get("maxmemory_policy"), memory.get("maxmemory")
    if policy is None or limit is None or not limit.isdigit():
        raise ConfigError(
            f"the cache server {server} does not report whether it could evict sealed updates; let this user run "
            "INFO or CONFIG GET"
        )
    if policy != "noeviction" and int(limit) > 0:
        raise ConfigError(
            f"the cache server {server} would evict sealed updates (maxmemory {limit}, maxmemory-policy {policy}); "
            "set maxmemory-policy to noeviction, or use another server for them"
        )
