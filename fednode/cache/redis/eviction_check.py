"""Whether a server could evict pinned values, from its memory settings."""

from collections.abc import Mapping

from fednode.errors import ConfigError


def check_no_eviction(memory: Mapping[str, object], server: str) -> None:
    """Raise `ConfigError` if a server with this INFO memory (or CONFIG GET maxmemory*) could evict pinned values."""
    policy = _text(memory, "maxmemory_policy", "maxmemory-policy")
    limit = _text(memory, "maxmemory", "maxmemory")
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


def _text(memory: Mapping[str, object], *names: str) -> str | None:
    found = [memory[name] for name in names if name in memory]
    if not found:
        return None
    return found[0].decode() if isinstance(found[0], bytes) else str(found[0])
