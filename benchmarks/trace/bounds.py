"""What no policy can beat: an infinite cache, and Belady's choice of victim, which knows the future.

L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5 (1966), 78-101.
"""

import heapq
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.trace.reading import read_trace

_NEVER: Final = 1 << 62


def infinite_hits(accesses: Sequence[int]) -> int:
    """Return the hits of a cache that never evicts: every access but the first to each block."""
    return len(accesses) - len(set(accesses))


def belady_hits(accesses: Sequence[int], size: int) -> int:
    """Return the most hits that `size` entries can have where each block read is kept: the best of all."""
    following = next_uses(accesses)
    kept: dict[int, int] = {}
    latest: list[tuple[int, int]] = []
    hits = 0
    for block, then in zip(accesses, following, strict=True):
        if block in kept:
            hits += 1
        elif len(kept) >= size:
            # skip items of blocks that were used since, or are gone
            while kept.get(latest[0][1]) != -latest[0][0]:
                heapq.heappop(latest)
            del kept[heapq.heappop(latest)[1]]
        kept[block] = then
        heapq.heappush(latest, (-then, block))
    return hits


def next_uses(accesses: Sequence[int]) -> list[int]:
    """Return for each access the place of the next one to the same block; a number beyond all places for the last."""
    following = [0] * len(accesses)
    seen: dict[int, int] = {}
    for place in range(len(accesses) - 1, -1, -1):
        following[place] = seen.get(accesses[place], _NEVER)
        seen[accesses[place]] = place
    return following


def work(trace: str, sizes: list[int]) -> dict[str, Any]:
    """Answer the hits without a limit, and Belady's for each of `sizes`."""
    accesses = read_trace(Path(trace)).accesses()
    return {"infinite": infinite_hits(accesses), "belady": [belady_hits(accesses, size) for size in sizes]}
