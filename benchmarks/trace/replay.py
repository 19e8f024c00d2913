"""One policy on one trace: each block is read, and stored where it was missing, at the trace's own time."""

from pathlib import Path
from typing import Any

from benchmarks.cache.stores import ManualClock, tight
from benchmarks.trace.reading import Trace, read_trace
from fednode.cache import MISSING, CacheBackend, Limits


def work(trace: str, sizes: list[int], policy: str, seed: int) -> dict[str, Any]:
    """Answer the hits of `policy` with `seed` for each of `sizes`."""
    found = read_trace(Path(trace))
    names = {block: str(block) for block in found.accesses()}
    return {"hits": [hits(found, names, size, (policy, seed)) for size in sizes]}


def hits(trace: Trace, names: dict[int, str], size: int, policy: tuple[str, int]) -> int:
    """Return the hits of a cache of `size` entries in one shard; `policy` is a name and a seed."""
    clock = ManualClock()
    return replay(trace, names, tight(clock, Limits(size, size, 1), *policy), clock)


def replay(trace: Trace, names: dict[int, str], backend: CacheBackend, clock: ManualClock) -> int:
    """Return how many accesses find their block in `backend`, which runs on `clock`."""
    found = 0
    for request in trace.requests:
        clock.at = request.at
        for block in request.blocks:
            key = names[block]
            if backend.get(key) is MISSING:
                backend.set(key, b"", None)
            else:
                found += 1
    return found
