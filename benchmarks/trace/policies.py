"""The policies that are replayed."""

from typing import Final

from fednode.cache.memory.policies import POLICIES

REFERENCE: Final = "lru"
"""What all others are compared with."""

SAMPLED: Final = frozenset({"adaptive"})
"""Those that draw their candidates, so that one run is not like another."""

__all__ = ["POLICIES", "REFERENCE", "SAMPLED"]
