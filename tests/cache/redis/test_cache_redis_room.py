"""Room on a server is given back: where it is full, where a writer was killed, and where a deletion was cut short."""

from collections.abc import Callable
from typing import Any

import pytest
from kit.cache.redis_server import PATIENT, RedisServer, opened_on

from fednode.cache import MISSING, Limits, StoreFull, TooLarge
from fednode.cache.backend import PinLost
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.client import Link
from fednode.cache.redis.index import WriteIndex, WrittenEntry
from fednode.cache.redis.lease import Lease
from fednode.clock import SystemClock
from fednode.errors import ConfigError, StoreError

BIG = bytes(range(256)) * 80


def fill(server: RedisServer) -> None:
    """At its maxmemory, and over it: no transaction is taken any more."""
    client = server.client()
    client.config_set("maxmemory", int(client.info("memory")["used_memory"]) - 100_000)


def test_a_full_server_refuses_with_a_time_to_retry_and_keeps_what_it_has(server: RedisServer) -> None:
    server.client().config_set("maxmemory", "8mb")
    backend = opened_on(server, pins=True, piece_bytes=1 << 16)
    kept = 0
    with pytest.raises(StoreFull, match="maxmemory") as full:
        for number in range(20):
            backend.pin(f"key {number}", bytes([number]) * (1 << 20))
            kept += 1
    assert (kept >= 2, full.value.retry_after, backend.usage().refusals) == (True, PATIENT.retry_after, 1)
    assert all(backend.get(f"key {number}") == bytes([number]) * (1 << 20) for number in range(kept))
    assert backend.get(f"key {kept}") is MISSING
    assert len(server.pieces()) == kept * 17
    with pytest.raises(StoreFull):
        backend.set("key 0", bytes(1 << 22), None)
    assert backend.get("key 0") == bytes(1 << 20)
    backend.delete("key 0")
    backend.pin("key 0", b"fits again")
    assert backend.get("key 0") == b"fits again"


def test_many_that_do_not_all_fit_are_stored_up_to_the_first_refusal(server: RedisServer) -> None:
    backend = opened_on(server, piece_bytes=1 << 20)
    server.client().config_set("maxmemory", "8mb")
    items = {f"key {number}": bytes([number]) * (1 << 18) for number in range(40)}
    with pytest.raises(StoreFull):
        backend.set_many(items, None)
    found = backend.get_many(items)
    assert 0 < len(found) < 40
    assert list(found) == list(items)[: len(found)]
    assert backend.usage().entries == len(found)


def test_a_full_server_lets_go_what_is_deleted(server: RedisServer) -> None:
    backend = opened_on(server, pins=True)
    backend.pin("big", BIG)
    backend.pin("small", b"v")
    backend.set("other", BIG, None)
    fill(server)
    with pytest.raises(StoreFull):
        backend.pin("new", b"v")
    for key in ("big", "small", "other"):
        assert backend.delete(key) and backend.get(key) is MISSING
    assert (server.client().dbsize(), backend.usage().entries) == (0, 0)


def test_a_lease_is_extended_on_a_full_server(server: RedisServer) -> None:
    link = Link(server.address, PATIENT, SystemClock())
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


def breaking(patch: pytest.MonkeyPatch, where: Callable[[Any, bool], bool], error: BaseException) -> None:
    """Commands of which `where` is true reach the server; then `error` comes in the place of their answer."""
    run = Link.run

    def broken(self: Link, commands: Any, *, atomic: bool = False) -> list[Any]:
        replies = run(self, commands, atomic=atomic)
        if where(commands, atomic):
            raise error
        return replies

    patch.setattr(Link, "run", broken)


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
    backend = opened_on(server)
    backend.set("key", BIG, None)
    old = server.pieces()
    breaking(monkeypatch, lambda _, atomic: atomic, Killed())
    with pytest.raises(Killed):
        replace(backend)
    monkeypatch.undo()
    client = server.client()
    assert all(client.pttl(name) != -1 for name in old)
    assert opened_on(server).get("key") in (BIG[::-1], b"small", MISSING)


def test_a_write_whose_answer_never_came_is_the_old_value_or_the_new_one(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened_on(server)
    backend.set("key", BIG, None)
    with monkeypatch.context() as patch:
        breaking(patch, lambda _, atomic: atomic, StoreError("no answer came"))
        with pytest.raises(StoreError, match="no answer"):
            backend.set("key", BIG[::-1], None)
    assert backend.get("key") == BIG[::-1]


@pytest.mark.parametrize("forget", [lambda one: one.delete("key"), lambda one: one.clear()], ids=["delete", "clear"])
def test_a_deletion_whose_answer_never_came_is_no_loss(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, forget: Callable[[RedisBackend], object]
) -> None:
    backend = opened_on(server, pins=True)
    backend.pin("key", b"v")
    with monkeypatch.context() as patch:
        breaking(patch, lambda sent, _: any(one[0] == "UNLINK" for one in sent), StoreError("no answer came"))
        with pytest.raises(StoreError, match="no answer"):
            forget(backend)
    assert (backend.get("key"), backend.losses) == (MISSING, 0)
    backend.pin("key", b"again")
    server.client().flushall()
    with pytest.raises(PinLost):
        backend.get("key")


def test_tuned_limits_refuse_what_is_new_and_keep_what_is_there(server: RedisServer) -> None:
    backend = opened_on(server, limits=Limits(3, 100, 20))
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


def written(size: int, generation: bytes) -> WrittenEntry:
    return WrittenEntry(size, generation, 1)


def test_a_write_that_shrinks_lends_its_room_to_nobody() -> None:
    index = WriteIndex(Limits(10, 1_000, 1_000))
    index.note("key", written(900, b"old"))
    shrunk = written(1, b"new")
    index.admit("key", shrunk, 0.0)
    with pytest.raises(StoreFull):
        index.admit("other", written(900, b"other"), 0.0)
    index.note("key", shrunk)
    other = written(900, b"other")
    index.admit("other", other, 0.0)
    index.release(other)
    index.admit("third", written(999, b"third"), 0.0)


def test_a_write_keeps_its_entry_where_the_old_value_goes_meanwhile() -> None:
    index = WriteIndex(Limits(2, 1_000, 1_000))
    for key in ("key", "other"):
        index.note(key, written(1, key.encode()))
    coming = written(2, b"new")
    index.admit("key", coming, 0.0)
    index.evicted("key")
    with pytest.raises(StoreFull):
        index.admit("third", written(1, b"third"), 0.0)
    index.note("key", coming)
    assert (index.usage().entries, index.usage().bytes, index.usage().refusals) == (2, 3, 1)
