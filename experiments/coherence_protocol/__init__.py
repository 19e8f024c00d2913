"""The coherence protocol among caches that may all write, as pure machines without a transport.

`docs/coherence.md` has its states, messages and tables; `tests/cache/coherence` searches all interleavings of small
instances for a broken invariant. A federated run has one writer, and uses `fednode.cache.round_directory`.
"""
