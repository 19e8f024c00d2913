"""Who may reach the server and how: addresses, passwords that are told to nobody, ACL users, TLS, clusters."""

import logging
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.cache.backend import BackendKit
from kit.cache.redis_server import Authority, RedisServer, free_port
from kit.clocks import FakeClock

from fednode.cache import Limits, MemoryBackend
from fednode.cache.redis import redis_py
from fednode.cache.redis.address import Names, RedisAddress, TlsFiles
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.connections import LinkOptions
from fednode.cache.redis.eviction_check import check_no_eviction
from fednode.cache.redis.records import RedisOptions
from fednode.cache.wrappers.tiered import Tiered
from fednode.clock import SystemClock
from fednode.errors import ConfigError, StoreError

SECRET = "s3cret/of:ours"
PLAIN = "hunter"
QUOTED = "s3cret%2Fof%3Aours"
BIG = bytes(range(256)) * 1_000


def opened(address: RedisAddress, *, pins: bool = False) -> RedisBackend:
    options = RedisOptions("ns", piece_bytes=100_000, pins=pins, link=LinkOptions(timeout=5.0, pauses=(0.01,)))
    return RedisBackend(address, options, FakeClock())


def said_by(error: BaseException) -> str:
    """All that a log or a screen could show of it."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(error.__cause__) + repr(error.__context__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://host", RedisAddress("host")),
        ("redis://host:7000/3", RedisAddress("host", 7000, db=3)),
        (f"redis://:{PLAIN}@host", RedisAddress("host", password=PLAIN)),
        (f"redis://ann:{QUOTED}@[::1]:1", RedisAddress("::1", 1, user="ann", password=SECRET)),
        ("rediss://host", RedisAddress("host", tls=TlsFiles())),
        ("unix:///run/redis/s", RedisAddress(socket=Path("/run/redis/s"))),
        (f"unix://:{PLAIN}@/run/s?db=2", RedisAddress(socket=Path("/run/s"), db=2, password=PLAIN)),
    ],
)
def test_an_address_is_read(text: str, expected: RedisAddress) -> None:
    assert RedisAddress.parse(text) == expected
    assert PLAIN not in repr(expected) and SECRET not in repr(expected) + str(expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:6379",
        "http://host",
        "redis://",
        "redis://host:x",
        "redis://host:99999999",
        "redis://host/a",
        "redis://host?db=1",
        "redis://ann@host",
        "unix://host/s",
        "unix:s",
        "unix:///s?x=1",
        "unix:///s?db=1&db=2",
        "unix://:5/s",
        "unix:///s%00",
        "redis://host:0",
        "redis://host/３",
        "redis://[host",
    ],
)
def test_an_address_of_another_form_is_a_sentence_without_it(text: str) -> None:
    with pytest.raises(ConfigError, match=r"cache server|unix socket") as refusal:
        RedisAddress.parse(text.replace("//", f"//:{QUOTED}@", 1) if "ann" not in text else text)
    assert "s3cret" not in said_by(refusal.value)


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pem").touch()
    for arguments in ({"certificate": tmp_path / "pem"}, {"key": tmp_path / "pem"}, {"ca": tmp_path / "absent"}):
        with pytest.raises(ConfigError, match=r"both or none|not a file"):
            TlsFiles(**arguments)
    with pytest.raises(ConfigError, match="without TLS"):
        RedisAddress.parse("redis://host", TlsFiles())
    with pytest.raises(ConfigError, match="database 0"):
        RedisAddress.parse("redis://host/1", cluster=True)
    with pytest.raises(ConfigError, match="no cluster"):
        RedisAddress.parse("unix:///s", cluster=True)


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(), max_size=20), st.text(st.characters(), max_size=20))
def test_every_text_is_a_key_of_its_own_in_one_slot_and_no_glob(key: str, other: str) -> None:
    names = Names("ns")
    record, (piece,) = names.record(key), names.pieces(key, bytes(16), 1)
    assert names.key(record) == key
    assert (record == names.record(other)) is (key == other)
    assert record[record.index(b"{") : record.index(b"}")] == piece[piece.index(b"{") : piece.index(b"}")] != b"{"
    assert not set(b"*?[]\\^ \r\n") & set(names.record(key) + names.beginning(key)[:-1])
    assert names.key(names.probe("a")) is names.key(piece) is None
    assert names.beginning("")[:-1] in record and names.beginning(key)[:-1] in names.record(key + other)


@pytest.mark.parametrize("name", [b"ns:v:{k%FF}", b"ns:v:{k%61}", b"ns:v:{k", b"ns:v:", b"other:v:{ka}", b"\xff"])
def test_a_stranger_s_name_is_no_key(name: bytes) -> None:
    assert Names("ns").key(name) is None


@pytest.mark.parametrize(
    ("memory", "passes"),
    [
        ({"maxmemory": "0", "maxmemory_policy": "allkeys-lru"}, True),
        ({"maxmemory": "100", "maxmemory_policy": "noeviction"}, True),
        ({"maxmemory": "100", "maxmemory_policy": "volatile-lru"}, False),
        ({"maxmemory": "a lot", "maxmemory_policy": "noeviction"}, False),
        ({"maxmemory": "100"}, False),
        ({}, False),
    ],
)
def test_only_a_server_that_cannot_evict_passes(memory: dict[str, str], passes: bool) -> None:
    with nullcontext() if passes else pytest.raises(ConfigError, match="host:1"):
        check_no_eviction(memory, "host:1")


def test_a_wrong_password_is_a_sentence_and_no_password_is_ever_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with RedisServer(tmp_path, "--requirepass", SECRET) as server:
        told = []
        for password in (None, "wr0ng-0ne"):
            with pytest.raises(StoreError, match="refuses this user") as refusal:
                opened(RedisAddress(socket=server.socket, password=password))
            told.append(said_by(refusal.value))
        with opened(RedisAddress.parse(f"unix://:{QUOTED}@{server.socket}")) as backend:
            backend.set("key", b"v", None)
            assert backend.get("key") == b"v"
            client = redis_py.client_of(backend._link._address, LinkOptions())
            told += [repr(client), repr(client.connection_pool)]
            told += [repr(client.connection_pool.connection_kwargs), repr(backend._link._server())]
            told += map(repr, backend._link._server().nodes()[0]._idle)
            server.kill()
            with pytest.raises(StoreError) as refusal:
                backend.get("key")
            told.append(said_by(refusal.value))
    assert not any(word in "".join([*told, caplog.text]) for word in (SECRET, QUOTED, "wr0ng"))


@pytest.mark.parametrize("may", ["+config|get", ""])
def test_a_user_who_may_do_only_a_part(server: RedisServer, may: str) -> None:
    rules = ["on", f">{SECRET}", "~ns:*", "+@all", "-info", "-config", "-unlink", *([may] if may else [])]
    server.client().execute_command("ACL", "SETUSER", "node", *rules)
    address = RedisAddress(socket=server.socket, user="node", password=SECRET)
    if not may:
        with pytest.raises(ConfigError, match="INFO"):
            opened(address, pins=True)
        return
    with opened(address, pins=True) as backend:
        backend.set("a", 1, None)
        with pytest.raises(StoreError, match="refuses this user") as refusal:
            backend.delete("a")
        assert backend.get("a") == 1 and SECRET not in said_by(refusal.value)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def test_tls_with_an_authority_and_a_certificate_of_ones_own(authority: Authority, tmp_path: Path) -> None:
    port = free_port()
    stranger = Authority(tmp_path / "stranger")
    wrong: list[tuple[TlsFiles, str]] = [
        (TlsFiles(), "verify failed"),
        (TlsFiles(stranger.ca, *authority.client), "verify failed"),
        (TlsFiles(authority.ca), "TLS"),
        (TlsFiles(authority.ca, *stranger.client), "TLS"),
    ]
    with RedisServer(tmp_path, port=port, tls=authority):
        for files, reason in wrong:
            with pytest.raises(StoreError, match=f"could not reach .*{reason}"):
                opened(RedisAddress.parse(f"rediss://127.0.0.1:{port}", files))
        with pytest.raises(StoreError, match="could not reach"):
            opened(RedisAddress.parse(f"redis://127.0.0.1:{port}"))
        with pytest.raises(StoreError, match="verify failed"):
            opened(RedisAddress.parse(f"rediss://localhost:{port}", authority.files()))
        with opened(RedisAddress.parse(f"rediss://127.0.0.1:{port}", authority.files())) as backend:
            backend.set("key", BIG, None)
            assert backend.get("key") == BIG
            with opened(RedisAddress.parse(f"rediss://127.0.0.1:{port}", authority.files())) as other:
                feed = other.follow()
                feed.probe()
                changes = feed.wait(5.0)
                assert changes is not None and changes.probed
                feed.close()


@pytest.mark.parametrize("tls", [False, True])
def test_what_is_no_cluster_is_one_sentence(authority: Authority, tmp_path: Path, *, tls: bool) -> None:
    port = free_port()
    scheme, files = ("rediss", authority.files()) if tls else ("redis", None)
    nowhere = RedisAddress.parse(f"{scheme}://127.0.0.1:{port}", files, cluster=True)
    with pytest.raises(StoreError, match=f"could not reach .*127.0.0.1:{port}"):
        opened(nowhere)
    with RedisServer(tmp_path, port=port, tls=authority if tls else None) as server:
        with pytest.raises(StoreError, match=f"127.0.0.1:{port} is in no cluster"):
            opened(nowhere)
        other = (
            RedisAddress.parse(f"redis://127.0.0.1:{port}") if tls else RedisAddress("127.0.0.1", port, tls=TlsFiles())
        )
        with pytest.raises(StoreError, match=r"(could not reach|did not answer) .* TLS"):
            opened(replace(other, cluster=True))
        server.client().config_set("requirepass", SECRET)
        with pytest.raises(StoreError, match="refuses this user") as refusal:
            opened(replace(nowhere, password=PLAIN))
        assert PLAIN not in said_by(refusal.value)


def test_a_cluster_that_serves_no_keys_and_a_name_that_is_none_are_sentences(tmp_path: Path) -> None:
    port = free_port()
    with RedisServer(tmp_path, *cluster_options(), port=port) as server:
        with pytest.raises(StoreError, match=f"127.0.0.1:{port} is not whole"):
            opened(RedisAddress("127.0.0.1", port, cluster=True))
        server.client().execute_command("ACL", "SETUSER", "node", "on", f">{SECRET}", "~*", "+@all", "-cluster|slots")
        with pytest.raises(StoreError, match="refuses this user"):
            opened(RedisAddress("127.0.0.1", port, user="node", password=SECRET, cluster=True))
    for cluster in (False, True):
        with pytest.raises(StoreError, match="could not reach"):
            opened(RedisAddress("a" * 70, port, cluster=cluster))


@pytest.mark.parametrize("cluster", [False, True])
def test_a_certificate_for_localhost_is_checked_against_that_name(tmp_path: Path, *, cluster: bool) -> None:
    port = free_port()
    named = Authority(tmp_path / "tls", x509.DNSName("localhost"))
    options = ["--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname"]
    options = cluster_options("--tls-cluster", "yes", *options)
    with RedisServer(tmp_path, *(options if cluster else ()), port=port, tls=named) as server:
        if cluster:
            server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            _until(lambda: _information(server.client())["cluster_state"] == "ok")
        with opened(RedisAddress.parse(f"rediss://localhost:{port}", named.files(), cluster=cluster)) as backend:
            backend.set("key", BIG, None)
            assert backend.get("key") == BIG and list(backend.keys()) == ["key"]
        with pytest.raises(StoreError, match=r"could not reach .*verify failed"):
            opened(RedisAddress.parse(f"rediss://127.0.0.1:{port}", named.files(), cluster=cluster))


def cluster_options(*more: str) -> list[str]:
    return ["--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--bind", "127.0.0.1", *more]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisAddress]:
    """Three nodes that share the slots."""
    with ExitStack() as stack:
        servers = (RedisServer(tmp_path_factory.mktemp("c"), *cluster_options(), port=free_port()) for _ in range(3))
        nodes = [stack.enter_context(server) for server in servers]
        clients = [node.client() for node in nodes]
        for number, client in enumerate(clients):
            slots = (number * 5461, 16383 if number == 2 else number * 5461 + 5460)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
            if number:
                bus = int(clients[0].config_get("cluster-port")["cluster-port"])
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, bus)
        _until(lambda: all(_knows_all(client) for client in clients))
        yield RedisAddress("127.0.0.1", nodes[0].port, cluster=True)


def _information(client: Any) -> dict[str, str]:
    told = client.execute_command("CLUSTER", "INFO")
    return told if isinstance(told, dict) else dict(line.split(":") for line in told.decode().split())


def _knows_all(client: Any) -> bool:
    told = _information(client)
    return (told["cluster_state"], told["cluster_known_nodes"], told["cluster_slots_ok"]) == ("ok", "3", "16384")


def _until(condition: Any) -> None:
    clock = SystemClock()
    deadline = clock.now() + 30.0
    while not condition():
        if clock.now() > deadline:
            pytest.fail("the cluster did not come together")
        clock.sleep(0.02)


class TestRedisCluster(BackendKit):
    @pytest.fixture(autouse=True)
    def place(self, cluster: RedisAddress) -> Iterator[None]:
        self.address, self.made = cluster, list[RedisBackend]()
        yield
        for backend in self.made:
            backend.close()

    def make(self, clock: FakeClock, limits: Limits) -> RedisBackend:
        options = RedisOptions("kit", limits, piece_bytes=64, pins=True)
        backend = RedisBackend(self.address, options, clock)
        backend.clear()
        self.made.append(backend)
        return backend

    def test_a_near_cache_over_a_cluster_lives_by_time_alone(self, clock: FakeClock) -> None:
        limits = Limits(10, 1 << 20, 1 << 16)
        with Tiered(MemoryBackend(clock, limits), self.make(clock, limits)) as tiered:
            tiered.set("key", b"v", None)
            assert (tiered.get("key"), tiered.near.followed) == (b"v", False)
