"""A cache on a Redis or Valkey server."""
