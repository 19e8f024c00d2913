"""The node's answers as lines for people. Names and keys are unchanged: print each line through `visible` (errors)."""

from collections.abc import Iterator, Mapping

from fednode.live.schema import FoundValue
from fednode.live.stats import StoreStats


def stats_lines(run: str, stores: Mapping[str, StoreStats]) -> Iterator[str]:
    """A block for each store, without the numbers that it does not know."""
    yield f"run {run}"
    if not stores:
        yield "no store is in use yet"
    for name, stats in stores.items():
        yield ""
        yield name
        rows = [(what, words) for what, words in _rows(stats) if words]
        yield from (f"  {what:<14}{words}" for what, words in rows)


def facts_lines(found: FoundValue) -> Iterator[str]:
    """The facts of one value."""
    yield f"store    {found.store}{', sealed: its bytes stay in the node' if found.sealed else ''}"
    shaped = "" if found.dtype is None else f" of {found.dtype}, shape {tuple(found.shape or ())}"
    yield f"kind     {found.kind}{shaped}"
    yield f"size     {found.size} bytes"
    if found.ttl_left is not None:
        yield f"ttl left {found.ttl_left:.1f} s"
    if found.version is not None:
        yield f"version  {found.version}"
    yield f"sha256   {found.digest}"


def _rows(stats: StoreStats) -> list[tuple[str, str]]:
    ratio = stats.hit_ratio
    pinned = f"{stats.pinned_bytes} bytes in {stats.pinned_entries}" if stats.pinned_entries else "none"
    return [
        ("entries", _of(stats.entries, stats.limit_entries)),
        ("bytes", _of(stats.bytes, stats.limit_bytes)),
        ("pinned", pinned),
        ("hit ratio", "" if ratio is None else f"{100 * ratio:.1f} % of {(stats.hits or 0) + (stats.misses or 0)}"),
        ("sets", _known(stats.sets)),
        ("deletes", _known(stats.deletes)),
        ("loads", _known(stats.loads)),
        ("evictions", str(stats.evictions)),
        ("expiries", str(stats.expiries)),
        ("refusals", str(stats.refusals)),
        ("damaged", str(stats.damaged)),
        ("invalidations", _known(stats.invalidations)),
        ("staleness", _versions(stats.staleness)),
    ]


def _of(count: int, limit: int | None) -> str:
    return str(count) if limit is None else f"{count} of {limit}"


def _versions(count: int | None) -> str:
    return "" if count is None else f"{count} version{'' if count == 1 else 's'} at most"


def _known(count: int | None) -> str:
    return "" if count is None else str(count)
