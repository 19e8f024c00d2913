"""Replay of a recorded trace of block accesses: hit ratios of the policies beside what is possible at all."""
