"""One policy on one trace: each block is read, and stored where it was not there, at the trace's own time."""

from pathlib import Path
from typing import Any

from benchmarks.cache.stores import Standing, tight
from benchmarks.trace.reading import Trace, read_trace
from fednode.cache import MISSING, CacheBackend, Limits


def work(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer the hits of `policy` with `seed` for each of `sizes`."""
    trace = read_trace(Path(asked["trace"]))
    names = {block: str(block) for request in trace.requests for block in request.blocks}
    return {"hits": [hits(trace, names, size, (asked["policy"], asked["seed"])) for size in asked["sizes"]]}


def hits(trace: Trace, names: dict[int, str], size: int, policy: tuple[str, int]) -> int:
    """Return the hits of a cache of `size` entries in one shard; `policy` is a name and a seed."""
    clock = Standing()
    return replay(trace, names, tight(clock, Limits(size, size, 1), *policy), clock)


def replay(trace: Trace, names: dict[int, str], backend: CacheBackend, clock: Standing) -> int:
    """Return how many accesses find their block in `backend`, which is on `clock`."""
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
