"""The numbers of the stores in the text format of Prometheus, version 0.0.4.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from fednode.live.render import visible
from fednode.live.stats import StoreStats


class _Family(NamedTuple):
    name: str
    kind: str
    help: str
    read: Callable[[StoreStats], float | None]


_FAMILIES: Final = (
    _Family("entries", "gauge", "Entries held, not yet swept ones included.", lambda s: s.entries),
    _Family("bytes", "gauge", "Bytes of the values held.", lambda s: s.bytes),
    _Family("limit_entries", "gauge", "Entries that may be held.", lambda s: s.limit_entries),
    _Family("limit_bytes", "gauge", "Bytes that may be held.", lambda s: s.limit_bytes),
    _Family("pinned_entries", "gauge", "Entries that no eviction reaches.", lambda s: s.pinned_entries),
    _Family("pinned_bytes", "gauge", "Bytes that no eviction reaches.", lambda s: s.pinned_bytes),
    _Family("hits_total", "counter", "Reads that found a value.", lambda s: s.hits),
    _Family("misses_total", "counter", "Reads that found nothing.", lambda s: s.misses),
    _Family("hit_ratio", "gauge", "Hits among reads since the start, 0 to 1.", lambda s: s.hit_ratio),
    _Family("sets_total", "counter", "Values stored.", lambda s: s.sets),
    _Family("deletes_total", "counter", "Values deleted.", lambda s: s.deletes),
    _Family("loads_total", "counter", "Loaders that ran.", lambda s: s.loads),
    _Family("evictions_total", "counter", "Entries that made way for others.", lambda s: s.evictions),
    _Family("expiries_total", "counter", "Entries whose time was up.", lambda s: s.expiries),
    _Family("refusals_total", "counter", "Values refused for want of room or for their size.", lambda s: s.refusals),
    _Family("damaged_total", "counter", "Values that were not what was stored.", lambda s: s.damaged),
    _Family("invalidations_total", "counter", "Copies at clients that were invalidated.", lambda s: s.invalidations),
    _Family("staleness_versions", "gauge", "Versions that an update may lag behind.", lambda s: s.staleness),
)


def exposition(run: str, stores: Mapping[str, StoreStats]) -> str:
    """The whole page: a family for each number that some store knows, a sample for each store that knows it."""
    return "".join(f"{one}\n" for one in _lines(run, stores))


def _lines(run: str, stores: Mapping[str, StoreStats]) -> Iterator[str]:
    yield from _head("fednode_run_info", "gauge", "The run that these numbers are of.")
    yield f'fednode_run_info{{run="{_escaped(run)}"}} 1'
    for family in _FAMILIES:
        known = [(store, value) for store, stats in stores.items() if (value := family.read(stats)) is not None]
        if known:
            name = f"fednode_cache_{family.name}"
            yield from _head(name, family.kind, family.help)
            yield from (f'{name}{{store="{_escaped(store)}"}} {value!r}' for store, value in known)


def _head(name: str, kind: str, words: str) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"


def _escaped(label: str) -> str:
    # the format knows a newline, a quote and a backslash; whatever else moves a cursor is shown as what it is
    plain = "\n".join(map(visible, label.split("\n")))
    return plain.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
