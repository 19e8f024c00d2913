"""The numbers of a run and of its stores for Prometheus: as text, and on an HTTP endpoint while a run lasts."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fednode.errors import ConfigError, visible
from fednode.live.bounded_server import BoundedServer
from fednode.live.stats import Inspectable, StoreStats


class _Family(NamedTuple):
    name: str
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    help: str
    read: Callable[[StoreStats], float | None]


_COUNTER, _GAUGE = CounterMetricFamily, GaugeMetricFamily
_FAMILIES: Final = (
    _Family("entries", _GAUGE, "Entries held, not yet swept ones included.", lambda s: s.entries),
    _Family("bytes", _GAUGE, "Bytes of the values held.", lambda s: s.bytes),
    _Family("limit_entries", _GAUGE, "Entries that may be held.", lambda s: s.limit_entries),
    _Family("limit_bytes", _GAUGE, "Bytes that may be held.", lambda s: s.limit_bytes),
    _Family("pinned_entries", _GAUGE, "Entries that no eviction reaches.", lambda s: s.pinned_entries),
    _Family("pinned_bytes", _GAUGE, "Bytes that no eviction reaches.", lambda s: s.pinned_bytes),
    _Family("hits", _COUNTER, "Reads that found a value.", lambda s: s.hits),
    _Family("misses", _COUNTER, "Reads that found nothing.", lambda s: s.misses),
    _Family("hit_ratio", _GAUGE, "Hits among reads since the start, 0 to 1.", lambda s: s.hit_ratio),
    _Family("sets", _COUNTER, "Values stored.", lambda s: s.sets),
    _Family("deletes", _COUNTER, "Values deleted.", lambda s: s.deletes),
    _Family("loads", _COUNTER, "Loaders that ran.", lambda s: s.loads),
    _Family("evictions", _COUNTER, "Entries that made way for others.", lambda s: s.evictions),
    _Family("expiries", _COUNTER, "Entries that expired.", lambda s: s.expiries),
    _Family("refusals", _COUNTER, "Values refused for want of room or for their size.", lambda s: s.refusals),
    _Family("damaged", _COUNTER, "Values that were not what was stored.", lambda s: s.damaged),
    _Family("invalidations", _COUNTER, "Copies at clients that were invalidated.", lambda s: s.invalidations),
    _Family("staleness_versions", _GAUGE, "Versions that an update may lag behind.", lambda s: s.staleness),
)


class RunNumbers(NamedTuple):
    """What a run has spent and done so far; each is a gauge of its name."""

    privacy_epsilon_spent: float
    privacy_epsilon_limit: float
    privacy_rounds_left: int
    """How many more rounds like the last fit the limit."""
    rounds_done: int
    round_survivors: int
    """Clients whose updates were in the last round."""


Numbers = Callable[[], RunNumbers] | None


class _RunCollector(Collector):
    """Reads the numbers anew for each page."""

    def __init__(self, run: str, stores: Callable[[], Mapping[str, StoreStats]], numbers: Numbers) -> None:
        self._run, self._stores, self._numbers = run, stores, numbers

    def describe(self) -> list[Metric]:
        """Nothing: no store is read when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """A family for each number that some store knows, a sample for each store that knows it."""
        info = GaugeMetricFamily("fednode_run_info", "The run that these numbers are of.", labels=("run",))
        info.add_metric((_label(self._run),), 1)
        yield info
        for name, value in self._numbers()._asdict().items() if self._numbers else ():
            yield GaugeMetricFamily(f"fednode_{name}", f"{name.replace('_', ' ').capitalize()}.", value=value)
        stores = self._stores()
        for name, kind, text, read in _FAMILIES:
            known = [(store, value) for store, stats in stores.items() if (value := read(stats)) is not None]
            if known:
                family = kind(f"fednode_cache_{name}", text, labels=("store",))
                for store, value in known:
                    family.add_metric((_label(store),), value)
                yield family


def exposition(run: str, stores: Mapping[str, StoreStats]) -> str:
    """The numbers in the text format of Prometheus."""
    return generate_latest(_registry(run, lambda: stores, None)).decode()


@contextmanager
def metrics_served(address: str, run: str, stores: Mapping[str, Inspectable], numbers: Numbers = None) -> Iterator[int]:
    """Serve the `numbers` of the run and those of `stores` at http://ADDRESS/metrics inside the block; gives the port.

    `address` is HOST:PORT; port 0 takes any that is free. Nothing but numbers and names of stores leaves the node.
    Raises `ConfigError` for an address that cannot be used.
    """
    host, _, port = address.rpartition(":")
    registry = _registry(run, lambda: {name: store.stats() for name, store in dict(stores).items()}, numbers)
    try:
        server = _MetricsServer(host.strip("[]"), int(port), registry)
        server.start("fednode-metrics")
    except (OSError, OverflowError, RuntimeError) as error:
        raise ConfigError(f"no metrics can be served at {address} ({error}); give a free HOST:PORT") from error
    try:
        yield server.server_port
    finally:
        server.end()


class _MetricsServer(BoundedServer, WSGIServer):
    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, place = found[0]
        super().__init__((str(place[0]), port), _Quiet)
        self.set_app(make_wsgi_app(registry))


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing: a scrape is no event of the run."""


def _registry(run: str, stores: Callable[[], Mapping[str, StoreStats]], numbers: Numbers) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_RunCollector(run, stores, numbers))
    return registry


def _label(text: str) -> str:
    """`text` as a terminal may show it; a newline is escaped by the format itself."""
    return visible(text, keep="\n")
