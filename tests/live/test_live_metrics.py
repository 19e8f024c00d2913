"""The numbers for Prometheus, read back by Prometheus's own parser, and scraped while they are served."""

import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from kit.clocks import FakeClock
from prometheus_client import parser

from fednode.cache import Limits, MemoryBackend
from fednode.errors import ConfigError
from fednode.live import RunNumbers, StoreStats, StoreView, exposition, metrics_served
from fednode.live.bounded_server import BoundedServer

FULL = StoreStats(
    entries=3,
    bytes=100,
    pinned_entries=1,
    pinned_bytes=40,
    evictions=5,
    expiries=6,
    refusals=7,
    damaged=8,
    hits=30,
    misses=10,
    sets=11,
    deletes=12,
    loads=13,
    invalidations=14,
    staleness=2,
    limit_entries=50,
    limit_bytes=1_000,
)


def families(page: str) -> dict[str, object]:
    return {family.name: family for family in parser.text_string_to_metric_families(page)}


def test_every_number_is_there_under_its_type() -> None:
    found = families(exposition("run-1", {"parameters": FULL}))
    values = {sample.name: sample.value for family in found.values() for sample in family.samples}  # type: ignore[attr-defined]
    assert values.pop("fednode_run_info") == 1
    assert values == {
        "fednode_cache_entries": 3,
        "fednode_cache_bytes": 100,
        "fednode_cache_pinned_entries": 1,
        "fednode_cache_pinned_bytes": 40,
        "fednode_cache_evictions_total": 5,
        "fednode_cache_expiries_total": 6,
        "fednode_cache_refusals_total": 7,
        "fednode_cache_damaged_total": 8,
        "fednode_cache_hits_total": 30,
        "fednode_cache_misses_total": 10,
        "fednode_cache_hit_ratio": 0.75,
        "fednode_cache_sets_total": 11,
        "fednode_cache_deletes_total": 12,
        "fednode_cache_loads_total": 13,
        "fednode_cache_invalidations_total": 14,
        "fednode_cache_staleness_versions": 2,
        "fednode_cache_limit_entries": 50,
        "fednode_cache_limit_bytes": 1_000,
    }
    for name, family in found.items():
        counts = any(sample.name.endswith("_total") for sample in family.samples)  # type: ignore[attr-defined]
        assert (family.type, bool(family.documentation)) == ("counter" if counts else "gauge", True), name  # type: ignore[attr-defined]


def test_what_a_store_does_not_know_has_no_sample() -> None:
    page = exposition("run-1", {"parameters": FULL, "updates": StoreStats(0, 0)})
    found = families(page)
    stores = {
        name: [sample.labels.get("store") for sample in family.samples]  # type: ignore[attr-defined]
        for name, family in found.items()
    }
    assert stores["fednode_cache_hits"] == ["parameters"]
    assert stores["fednode_cache_evictions"] == ["parameters", "updates"]


@pytest.mark.parametrize("run", ['a"b', "a\\b", "a\nb", "a\\nb", 'ü"\\\n', "plain"])
def test_labels_are_escaped(run: str) -> None:
    page = exposition(run, {run: FULL})
    found = families(page)
    assert found["fednode_run_info"].samples[0].labels == {"run": run}  # type: ignore[attr-defined]
    assert found["fednode_cache_bytes"].samples[0].labels == {"store": run}  # type: ignore[attr-defined]
    assert page.endswith("\n")


def test_no_store_is_a_page_all_the_same() -> None:
    assert list(families(exposition("run-1", {}))) == ["fednode_run_info"]


def scraped(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        found = families(answer.read().decode())
    return {sample.name: sample.value for family in found.values() for sample in family.samples}  # type: ignore[attr-defined]


def test_the_numbers_are_served_as_they_are_when_they_are_asked_for() -> None:
    before = threading.active_count()
    memory = MemoryBackend(FakeClock(), Limits(10, 1_000, 100))
    with metrics_served("127.0.0.1:0", "run-1", {"parameters": StoreView(memory)}) as port:
        assert scraped(port)["fednode_cache_entries"] == 0
        memory.pin("k", b"12345")
        found = scraped(port)
        assert (found["fednode_cache_entries"], found["fednode_cache_pinned_bytes"]) == (1, 5)
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"), metrics_served(f"127.0.0.1:{port}", "run-2", {}):
            pass
    assert threading.active_count() == before
    with pytest.raises(ConnectionError), socket.create_connection(("127.0.0.1", port), 20):
        pass


def hung_up(connection: socket.socket) -> bool:
    """Whether the other end hangs up, within 20 seconds and without an answer."""
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionError:
        return True


@pytest.mark.thorough
def test_idle_connections_are_few_and_stop_no_scrape_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    with metrics_served("127.0.0.1:0", "run-1", {}) as port, ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 20)) for _ in range(60)]
        assert all(map(hung_up, idle[BoundedServer.most :]))
        assert threading.active_count() <= before + 1 + BoundedServer.most
        with pytest.raises((URLError, ConnectionError)):
            scraped(port)
    monkeypatch.setattr(BoundedServer, "patience", 0.2)
    with metrics_served("127.0.0.1:0", "run-1", {}) as port, ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 20)) for _ in range(60)]
        assert all(map(hung_up, idle))
        assert scraped(port)["fednode_run_info"] == 1


def test_a_request_that_trickles_in_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedServer, "patience", 0.2)
    pause = threading.Event()
    with metrics_served("127.0.0.1:0", "run-1", {}) as port:
        with socket.create_connection(("127.0.0.1", port), 20) as slow, pytest.raises(ConnectionError):
            for _ in range(400):
                slow.sendall(b"G")
                pause.wait(0.02)
        assert scraped(port)["fednode_run_info"] == 1


def test_without_a_thread_nothing_is_served_and_the_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    open_before = len(list(Path("/dev/fd").iterdir()))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(ConfigError, match=r"127\.0\.0\.1:0"), metrics_served("127.0.0.1:0", "run-1", {}):
            pass
    assert len(list(Path("/dev/fd").iterdir())) == open_before


def test_what_the_run_has_spent_and_done_is_served_with_it() -> None:
    numbers = [RunNumbers(0.0, 8.0, 20, 0, 0), RunNumbers(1.5, 8.0, 19, 1, 17)]
    with metrics_served("127.0.0.1:0", "run-1", {}, lambda: numbers.pop(0)) as port:
        assert scraped(port)["fednode_privacy_rounds_left"] == 20
        found = scraped(port)
    assert found == {
        "fednode_run_info": 1,
        "fednode_privacy_epsilon_spent": 1.5,
        "fednode_privacy_epsilon_limit": 8,
        "fednode_privacy_rounds_left": 19,
        "fednode_rounds_done": 1,
        "fednode_round_survivors": 17,
    }
