"""What goes around a backend: loading, pieces, counters, tiers."""
