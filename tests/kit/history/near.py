"""What may be read from near copies of a cache that several nodes share: less than linearizable, and exactly this.

Writes, deletions and misses are answered by the server, so some order explains them. What is read may come from a near
copy, which may be old until the server's message about it has arrived. But it was written, it began to be written
before the read ended, it has not outlived its time, and no write or deletion that this node itself had completed before
the read began came after it. Once every message has arrived each node reads what the server has.
"""

from collections import defaultdict
from collections.abc import Iterable

from kit.history.history import NEVER, Seen, unexplained

from fednode.cache import MISSING


def unexplained_near(calls: Iterable[Seen], final: Iterable[Seen]) -> list[str]:
    """One sentence for each read that is not explained, and for each key whose other calls no order explains.

    `final` are reads of every node from when all messages had arrived: they are held against the server's order.
    """
    history = list(calls)
    hits = [call for call in history if call.kind == "get" and call.value is not MISSING]
    told = [call for call in history if call.kind != "get" or call.value is MISSING]
    # the clock, which another thread moves, is looked at once for what is left and once more when the copy is kept
    slack: dict[tuple[int, str], float] = defaultdict(float)
    for call in hits:
        slack[call.node, call.key] = max(slack[call.node, call.key], call.latest - call.earliest)
    changes: dict[str, list[Seen]] = defaultdict(list)
    for call in told:
        if call.kind in ("set", "delete"):
            changes[call.key].append(call)
    found = [words for read in hits if (words := _wrong(read, changes[read.key], slack[read.node, read.key]))]
    return found + unexplained([*told, *final])


def _wrong(read: Seen, changes: list[Seen], slack: float) -> str:
    writes = [one for one in changes if one.kind == "set" and one.value == read.value and one.start < read.end]
    what = f"{read.key}: node {read.node} read {read.value!r} at {read.start} to {read.end}"
    if not writes:
        return f"{what}, which nobody had written"
    lasting = [one for one in writes if read.earliest < one.latest + (NEVER if one.ttl is None else one.ttl) + slack]
    if not lasting:
        return f"{what}, which had expired"
    mine = [one for one in changes if one.node == read.node and one.end < read.start]
    if all(any(write.end < own.start for own in mine) for write in lasting):
        return f"{what}, which that node itself had replaced"
    return ""
