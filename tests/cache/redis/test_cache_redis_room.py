"""Room on a server is given back: where it is full, where a writer was killed, and where a deletion was cut short."""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.cache.redis_server import RedisServer
from kit.clocks import FakeClock

from fednode.cache import MISSING, Limits, StoreFull, TooLarge
from fednode.cache.backend import PinLost
from fednode.cache.redis.address import Names
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.client import Link
from fednode.cache.redis.connections import LinkOptions
from fednode.cache.redis.lease import Lease
from fednode.cache.redis.records import RedisOptions
from fednode.clock import SystemClock
from fednode.errors import ConfigError, StoreError
from fednode.stores import ParameterStore, UpdateStore

BIG = bytes(range(256)) * 80
PIECES = 2_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as running:
        yield running


def opened(server: RedisServer, *, pins: bool = False, limits: Limits | None = None) -> RedisBackend:
    limits = limits or Limits(1_000, 1 << 30, 1 << 24)
    return RedisBackend(server.address, RedisOptions("ns", limits, PIECES, pins, link=LinkOptions(20.0)), FakeClock())


def pieces_of(server: RedisServer) -> list[bytes]:
    return sorted(server.client().scan_iter("ns:p:*"))


def fill(server: RedisServer) -> None:
    """At its maxmemory, and over it: no transaction is taken any more."""
    client = server.client()
    client.config_set("maxmemory", int(client.info("memory")["used_memory"]) - 100_000)


def test_a_full_server_lets_go_what_is_deleted(server: RedisServer) -> None:
    backend = opened(server, pins=True)
    backend.pin("big", BIG)
    backend.pin("small", b"v")
    backend.set("other", BIG, None)
    fill(server)
    with pytest.raises(StoreFull):
        backend.pin("new", b"v")
    for key in ("big", "small", "other"):
        assert backend.delete(key) and backend.get(key) is MISSING
    assert (server.client().dbsize(), backend.usage().entries) == (0, 0)


def test_the_stores_that_fill_a_server_can_empty_it(server: RedisServer) -> None:
    updates = UpdateStore(opened(server, pins=True), retry_after=1.0)
    model = ParameterStore(opened(server, pins=True), "model", keep=1)
    for client in range(20):
        updates.put("task", 1, f"client-{client}", os.urandom(20_000))
    model.write({"w": np.zeros(1_000)}, {})
    fill(server)
    with pytest.raises(StoreFull):
        updates.put("task", 1, "late", b"sealed")
    assert len(updates.consume("task", 1)) == 20
    updates.put("task", 2, "client-0", b"sealed")
    model.write({"w": np.ones(1_000)}, {})
    assert model.read().arrays["w"].sum() == 1_000.0
    names = list(server.client().scan_iter("ns:v:*"))
    assert len([name for name in names if b"update" in name]) == 1


def test_a_lease_is_extended_on_a_full_server(server: RedisServer) -> None:
    link = Link(server.address, LinkOptions(20.0), SystemClock())
    lease, client = Lease(link, "run", life=50.0), server.client()
    lease.renew()
    client.pexpire("fednode.run.lease", 5_000)
    fill(server)
    with pytest.raises(StoreError):
        lease.renew()
    assert client.pttl("fednode.run.lease") > 40_000
    client.config_set("maxmemory", 0)
    client.flushall()
    lease.renew()
    assert client.exists("fednode.run.lease", "fednode.run.leased") == 2
    link.close()


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    "replace",
    [
        lambda one: one.set("key", BIG[::-1], None),
        lambda one: one.set("key", b"small", None),
        lambda one: one.set_many({"key": b"small", "more": b"v"}, 50.0),
        lambda one: one.pin("key", BIG[::-1]),
        lambda one: one.delete("key"),
    ],
    ids=["big", "small", "many", "pin", "delete"],
)
def test_whoever_is_killed_after_a_transaction_leaves_no_piece_for_ever(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, replace: Callable[[RedisBackend], object]
) -> None:
    backend = opened(server)
    backend.set("key", BIG, None)
    old = pieces_of(server)
    run = Link.run

    def dies_after(self: Link, commands: Any, *, atomic: bool = False) -> list[Any]:
        replies = run(self, commands, atomic=atomic)
        if atomic:
            raise Killed
        return replies

    monkeypatch.setattr(Link, "run", dies_after)
    with pytest.raises(Killed):
        replace(backend)
    monkeypatch.undo()
    client = server.client()
    assert all(client.pttl(name) != -1 for name in old)
    assert opened(server).get("key") in (BIG[::-1], b"small", MISSING)


def test_a_write_whose_answer_never_came_is_the_old_value_or_the_new_one(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened(server)
    backend.set("key", BIG, None)
    run = Link.run

    def losing(self: Link, commands: Any, *, atomic: bool = False) -> list[Any]:
        replies = run(self, commands, atomic=atomic)
        if atomic:
            raise StoreError("no answer came")
        return replies

    with monkeypatch.context() as patch:
        patch.setattr(Link, "run", losing)
        with pytest.raises(StoreError, match="no answer"):
            backend.set("key", BIG[::-1], None)
    assert backend.get("key") == BIG[::-1]


@pytest.mark.parametrize("forget", [lambda one: one.delete("key"), lambda one: one.clear()], ids=["delete", "clear"])
def test_a_deletion_whose_answer_never_came_is_no_loss(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, forget: Callable[[RedisBackend], object]
) -> None:
    backend = opened(server, pins=True)
    backend.pin("key", b"v")
    run = Link.run

    def losing(self: Link, commands: Any, *, atomic: bool = False) -> list[Any]:
        replies = run(self, commands, atomic=atomic)
        if any(command[0] == "UNLINK" for command in commands):
            raise StoreError("no answer came")
        return replies

    with monkeypatch.context() as patch:
        patch.setattr(Link, "run", losing)
        with pytest.raises(StoreError, match="no answer"):
            forget(backend)
    assert (backend.get("key"), backend.lost_pins(), backend.losses) == (MISSING, (), 0)
    backend.pin("key", b"again")
    server.client().flushall()
    with pytest.raises(PinLost):
        backend.get("key")


DAMAGE: dict[str, Callable[[Any, bytes, list[bytes]], object]] = {
    "list for a piece": lambda client, _, pieces: (client.delete(pieces[3]), client.rpush(pieces[3], b"a")),
    "short piece": lambda client, _, pieces: client.set(pieces[3], b"x" * (PIECES - 1)),
    "long piece": lambda client, _, pieces: client.append(pieces[3], b"x"),
    "long last piece": lambda client, _, pieces: client.append(pieces[-1], b"x"),
    "list for the record": lambda client, record, _: (client.delete(record), client.rpush(record, b"a")),
    "short record": lambda client, record, _: client.set(record, client.getrange(record, 0, 50)),
    "another's record": lambda client, record, _: client.copy(Names("ns").record("small"), record, replace=True),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_pin_that_is_damaged_is_among_the_lost(server: RedisServer, kind: str) -> None:
    backend = opened(server, pins=True)
    backend.pin("key", BIG)
    backend.pin("small", b"v")
    assert backend.lost_pins() == ()
    DAMAGE[kind](server.client(), Names("ns").record("key"), pieces_of(server))
    assert backend.lost_pins() == ("key",)
    with pytest.raises(PinLost):
        backend.get("key")
    assert (backend.lost_pins(), backend.losses) == (("key",), 1)


@pytest.mark.parametrize(("key", "kind"), [("key", "cut"), ("key", "bit"), ("small", "bit"), ("small", "longer")])
def test_a_pin_that_get_found_damaged_stays_among_the_lost_until_it_is_set(
    server: RedisServer, key: str, kind: str
) -> None:
    backend = opened(server, pins=True)
    backend.pin("key", BIG)
    backend.pin("small", b"v")
    name = pieces_of(server)[2] if key == "key" else Names("ns").record("small")
    client = server.client()
    size = client.strlen(name)
    if kind == "longer":
        client.append(name, b"x")
    else:
        client.setrange(name, size - 1, bytes([client.getrange(name, size - 1, size)[0] ^ 1]))
    with pytest.raises(PinLost):
        backend.get(key)
    assert (backend.lost_pins(), backend.losses) == ((key,), 1)
    backend.pin(key, b"again")
    assert backend.lost_pins() == ()


@pytest.mark.parametrize("piece_bytes", [1 << 32, 4096.5, "4096", True, None, math.nan])
def test_pieces_of_no_number_that_a_manifest_holds_are_refused(piece_bytes: Any) -> None:
    with pytest.raises(ConfigError, match="pieces of"):
        RedisOptions("ns", piece_bytes=piece_bytes)


def test_half_a_write_lives_for_as_long_as_a_server_can_count() -> None:
    for seconds in (1e13, math.inf):
        with pytest.raises(ConfigError, match="orphan_seconds"):
            RedisOptions("ns", orphan_seconds=seconds)


def test_tuned_limits_refuse_what_is_new_and_keep_what_is_there(server: RedisServer) -> None:
    backend = opened(server, limits=Limits(3, 100, 20))
    backend.set("a", bytes(20), None)
    backend.set("b", bytes(20), None)
    backend.tune(Limits(2, 50, 10))
    assert backend.limits == Limits(2, 50, 10) and backend.get("a") == bytes(20)
    with pytest.raises(StoreFull):
        backend.set("c", b"1", None)
    with pytest.raises(TooLarge):
        backend.set("a", bytes(11), None)
    with pytest.raises(ConfigError, match="20"):
        backend.tune(Limits(2, 50, 21))
    assert backend.limits == Limits(2, 50, 10)


def test_what_was_written_and_cannot_be_understood_is_a_miss_and_no_damage(server: RedisServer) -> None:
    from fednode.cache.values.pieces import cut, key_bytes

    record = cut(key_bytes("key"), b"FNv9 of a later version", 1_000, bytes(16)).record
    server.client().set(Names("ns").record("key"), record)
    backend = opened(server)
    assert (backend.get("key"), backend.get_many(["key"]), backend.usage().damaged) == (MISSING, {}, 0)
    assert server.client().exists(Names("ns").record("key"))
