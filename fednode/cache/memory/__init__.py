"""A cache in memory: shards, limits, eviction policies."""
