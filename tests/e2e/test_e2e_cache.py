"""A run over each cache ends with the same bits, leaves nothing behind, and can be looked at while it lasts."""

import shutil
import socket
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from kit.cache.redis_server import Authority, RedisServer, free_port
from kit.crypto.insecure import InsecureRng
from kit.smallrun import report_of, small_run, small_settings

from fednode.assemble.inprocess_run import run_inproc
from fednode.assemble.session import Environment
from fednode.clock import SystemClock
from fednode.errors import ConfigError, StoreError
from fednode.live import SOCKET_NAME, LiveNode
from fednode.observer import Observer, StopFlag

ROUNDS = 3
PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def server():
    folder = Path(tempfile.mkdtemp(prefix="fn-"))
    try:
        with RedisServer(folder, "--requirepass", PASSWORD) as running:
            yield running
    finally:
        shutil.rmtree(folder)


def seeded():
    seeds = count(1)
    return Environment(rng=lambda: InsecureRng(next(seeds)))


def place_of(kind: str, server: RedisServer, folder: Path) -> dict[str, object]:
    if kind != "redis":
        return {"cache": kind}
    secret = folder / "password"
    secret.write_text(PASSWORD + "\n")
    return {"cache": f"unix://{server.socket}", "cache_password_file": secret}


@pytest.fixture(scope="module")
def models(server, tmp_path_factory):
    """model.safetensors of the same seeded run over each cache."""
    found = {}
    for kind in ("file", "memory", "redis"):
        folder = tmp_path_factory.mktemp(kind)
        # bfv: its noise comes from the generators of the members alone, which are seeded here; only what is released
        # at the first round, under ring, would be the same
        result = small_run(folder, seeded(), scheme="bfv", rounds=ROUNDS, **place_of(kind, server, folder))
        assert result.error is None
        assert PASSWORD not in "".join(path.read_text("utf-8", "replace") for path in result.folder.glob("*"))
        assert not list(result.folder.glob(".updates-*")) and not (result.folder / SOCKET_NAME).exists()
        report = report_of(result.folder)
        found[kind] = ((result.folder / "model.safetensors").read_bytes(), [r["survivors"] for r in report["rounds"]])
    return found


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_run_over_each_cache_ends_with_the_same_bits(models, kind):
    assert model_bits(models[kind]) == model_bits(models["file"])
    assert len(models[kind][1]) == ROUNDS


def model_bits(found):
    """The arrays of a model file: its header names the run."""
    data, survivors = found
    size = int.from_bytes(data[:8], "little")
    return data[8 + size :], survivors


def test_nothing_of_a_run_stays_on_the_server(models, server):
    assert models and server.client(password=PASSWORD).dbsize() == 0


def test_a_run_over_tls_with_its_own_authority(tmp_path):
    folder = Path(tempfile.mkdtemp(prefix="fn-"))
    try:
        authority = Authority(folder)
        port = free_port()
        with RedisServer(folder, port=port, tls=authority):
            certificate, key = authority.client
            given = {"cache_ca": authority.ca, "cache_certificate": certificate, "cache_key": key}
            result = small_run(tmp_path, rounds=1, cache=f"rediss://127.0.0.1:{port}", **given)
            assert result.error is None
    finally:
        shutil.rmtree(folder)


def test_a_server_that_is_not_there_ends_the_run_before_keys_are_made(tmp_path):
    result = small_run(tmp_path, cache="unix:///nowhere/redis.sock")
    assert isinstance(result.error, StoreError) and "\n" not in str(result.error)
    assert report_of(result.folder)["rounds"] == []


def test_a_wrong_password_ends_the_run_before_keys_are_made(tmp_path, server):
    phases = []

    class Phases(Observer):
        def phase(self, words):
            phases.append(words)

    secret = tmp_path / "password"
    secret.write_text("guess")
    settings = small_settings(tmp_path, cache=f"unix://{server.socket}", cache_password_file=secret)
    result = run_inproc(settings, Phases(), StopFlag())
    assert isinstance(result.error, StoreError) and "guess" not in str(result.error)
    assert "making keys" not in phases


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cache": "redis://localhost", "cache_password_file": Path("/nowhere/password")}, "--cache-password-file"),
        ({"cache": "redis://localhost", "cache_password_file": Path("/dev/null")}, "--cache-password-file"),
        ({"cache": "redis://ann@localhost"}, "--cache-password-file"),
        ({"cache": "rediss://localhost", "cache_ca": Path("/nowhere/ca.pem")}, "ca.pem is not a file"),
        ({"cache": "rediss://localhost", "cache_ca": Path(__file__)}, "--cache-ca"),
        (
            {"cache": "rediss://localhost", "cache_certificate": Path(__file__), "cache_key": Path(__file__)},
            "--cache-key",
        ),
    ],
)
def test_files_of_the_cache_are_read_before_there_is_a_folder(tmp_path, changes, words):
    with pytest.raises(ConfigError, match=words) as refused:
        small_run(tmp_path, **changes)
    assert "\n" not in str(refused.value) and not (tmp_path / "runs").exists()


def test_a_server_that_could_evict_is_refused(tmp_path, server):
    client = server.client(password=PASSWORD)
    before = client.config_get("maxmemory*")
    client.config_set("maxmemory", "64mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        result = small_run(tmp_path, **place_of("redis", server, tmp_path))
    finally:
        client.config_set("maxmemory", before["maxmemory"])
        client.config_set("maxmemory-policy", before["maxmemory-policy"])
    assert isinstance(result.error, ConfigError) and "noeviction" in str(result.error)


class AtEachRound(Observer):
    """Calls `ask` with the number of each round that is over and a connection to the running node."""

    def __init__(self, root: Path, ask: Callable[[int, LiveNode], object]) -> None:
        self._root, self._ask = root, ask

    def round_done(self, progress):
        (folder,) = (self._root / "runs").glob("2*")
        with LiveNode(folder) as node:
            self._ask(progress.round, node)


def watched(root: Path, ask: Callable[[int, LiveNode], object], **changes: object) -> Path:
    """The folder of a run that went well while it was watched."""
    result = run_inproc(small_settings(root, **changes), AtEachRound(root, ask), StopFlag())
    assert result.error is None
    return result.folder


@pytest.mark.parametrize("kind", ["file", "memory", "redis"])
def test_a_running_node_tells_its_numbers_and_shows_no_update(tmp_path, server, kind):
    seen = {}

    def watch(number, node):
        seen[number], seen["keys"] = node.stats()[1], node.ask("keys")["keys"]

    watched(tmp_path, watch, rounds=2, **place_of(kind, server, tmp_path))
    assert seen[2]["parameters"].hits > 0 and seen[2]["parameters"].pinned_bytes > 0
    assert seen[2]["updates"].pinned_entries == 0 and seen[2]["updates"].sets > 0
    assert {store for store, _ in seen["keys"]} == {"parameters", "downloads"}


def test_a_default_run_loads_once_serves_from_memory_and_lets_versions_expire(tmp_path):
    seen = []

    def watch(_number, node):
        seen.append(node.stats()[1])
        # a superseded version lives for a sixtieth of the deadline
        SystemClock().sleep(0.2)

    watched(tmp_path, watch, rounds=4, deadline=6.0)
    last, before = seen[-1], seen[-2]
    # a round loads each of the two arrays of the model once, and serves all clients from memory
    assert last["downloads"].loads - before["downloads"].loads == 2
    assert last["downloads"].hits - before["downloads"].hits == 2 * (small_settings(tmp_path).clients - 1)
    assert last["parameters"].hits > 0 and last["parameters"].expiries >= 6
    assert last["parameters"].deletes == 0 and last["parameters"].invalidations > 0
    assert last["parameters"].pinned_entries == 3


def test_a_run_can_be_scraped_while_it_lasts_and_not_afterwards(tmp_path):
    port, pages = free_port(), []

    class Scraping(Observer):
        def round_done(self, progress):
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
                pages.append(page.read().decode())

    result = run_inproc(small_settings(tmp_path, rounds=1, metrics=port), Scraping(), StopFlag())
    assert result.error is None
    assert f'fednode_run_info{{run="{result.folder.name}"}} 1.0' in pages[0]
    assert "fednode_rounds_done 1.0" in pages[0] and "fednode_round_survivors 4.0" in pages[0]
    assert 'fednode_cache_loads_total{store="downloads"} 2.0' in pages[0]
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20)


def test_an_address_that_is_taken_ends_the_run_before_a_client_is_asked(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = small_run(tmp_path, rounds=1, metrics=f"127.0.0.1:{port}")
    assert isinstance(result.error, ConfigError) and str(port) in str(result.error)
    assert report_of(result.folder)["rounds"] == []


def test_staleness_is_tuned_within_what_the_members_were_told(tmp_path):
    seen = {}

    def tune(number, node):
        seen[number] = node.stats()[1]["parameters"]
        if number == 1:
            node.ask("tune", changes=[["parameters", "staleness", 0]])
            with pytest.raises(ConfigError, match="0 to 1"):
                node.ask("tune", changes=[["parameters", "staleness", 2]])

    folder = watched(tmp_path, tune, rounds=3, staleness=1)
    assert [seen[number].staleness for number in (1, 2, 3)] == [1, 0, 0]
    assert 0 < seen[1].invalidations < seen[3].invalidations
    assert any("staleness" in one for one in report_of(folder)["deviations"]), "not in the report"
    assert "staleness" in (folder / "run.log").read_text()


def test_limits_that_a_round_needs_are_not_lowered(tmp_path):
    clients, refused = small_settings(tmp_path).clients, []

    def tune(_number, node):
        for store, name, value, _, span in node.ask("knobs")["knobs"]:
            if store == "downloads" or name not in ("entries", "total_bytes", "value_bytes"):
                continue
            assert span == f"{value} or more"
            with pytest.raises(ConfigError, match="what a round needs"):
                node.ask("tune", changes=[[store, name, value - 1]])
            refused.append((store, name))
        node.ask("tune", changes=[["updates", "entries", 1_000]])
        node.ask("tune", changes=[["updates", "entries", 2 * clients]])

    watched(tmp_path, tune, rounds=2, cache="memory")
    assert len(set(refused)) == 6
