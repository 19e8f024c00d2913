"""`RedisBackend` where the server fails: killed, restarted, evicting, slow; junk and half-written values."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import redis
from kit.cache.redis_server import PATIENT, PIECES, RedisServer, opened_on, record_of
from kit.clocks import FakeClock

from fednode.cache import MISSING, Closed, RedisBackend, RedisOptions
from fednode.cache.backend import PinLost
from fednode.cache.redis.client import Link
from fednode.cache.redis.connections import Exchanges, LinkOptions
from fednode.cache.values.pieces import HEAD_BYTES, cut, key_bytes
from fednode.clock import SystemClock
from fednode.errors import ConfigError, StoreError
from fednode.stores import UpdateStore

BIG = bytes(range(256)) * 80


def test_a_killed_server_is_an_error_with_a_sentence_and_the_next_one_is_found(server: RedisServer) -> None:
    clock = FakeClock()
    backend = opened_on(server, clock)
    backend.set("key", b"v", None)
    server.kill()
    before = clock.now()
    with pytest.raises(StoreError, match=str(server.socket)):
        backend.get("key")
    assert clock.now() - before == pytest.approx(sum(PATIENT.pauses))
    server.restart()
    assert backend.get("key") is MISSING
    assert backend.usage().evictions == 1
    backend.set("key", b"new", None)
    assert backend.get("key") == b"new"


def lost(backend: RedisBackend, *keys: str) -> list[str]:
    """Those of the keys whose pinned value is gone."""
    found = []
    for key in keys:
        try:
            backend.get(key)
        except PinLost:
            found.append(key)
    return found


def test_lost_pins_are_reported_until_they_are_deleted_or_set(server: RedisServer) -> None:
    backend = opened_on(server, pins=True)
    for key in ("small", "deleted"):
        backend.pin(key, b"sealed")
    backend.pin("big", BIG)
    assert lost(backend, "big", "deleted", "small") == []
    server.restart()
    assert lost(backend, "big", "deleted", "small") == ["big", "deleted", "small"]
    assert backend.losses == 3
    for _ in range(2):
        with pytest.raises(PinLost, match=f"small.*{server.socket}"):
            backend.get("small")
    assert backend.get_many(["small", "absent", "big"]) == {}
    assert (backend.delete("deleted"), backend.get("deleted")) == (False, MISSING)
    backend.pin("small", b"again")
    assert (backend.get("small"), backend.losses, lost(backend, "big", "small")) == (b"again", 3, ["big"])
    backend.clear()
    assert backend.get("big") is MISSING


def test_every_command_outlives_a_restart(server: RedisServer) -> None:
    clock = FakeClock()
    backend = opened_on(server, clock, pins=True)
    calls: list[Callable[[], object]] = [
        lambda: backend.set("key", BIG, None),
        lambda: backend.pin("key", b"v"),
        backend.clear,
        lambda: list(backend.keys()),
    ]
    for call in calls:
        clock.sleep(11.0)
        server.restart()
        call()
    assert backend.usage().pinned_entries == 0


def test_an_update_store_on_a_server_loses_nothing_unnoticed(server: RedisServer) -> None:
    backend = opened_on(server, pins=True)
    store = UpdateStore(backend, retry_after=3.0)
    for client in ("ann", "bob"):
        store.put("task", 1, client, BIG)
    assert store.get("task", 1, "ann") == BIG
    server.client().delete(record_of("update/task/1/bob"))
    with pytest.raises(StoreError, match="bob"):
        store.get("task", 1, "bob")
    assert len(store.consume("task", 1)) == 2
    assert server.pieces() == server.names()
    assert backend.usage().entries == 0


def test_two_backends_in_one_namespace_see_each_other(shared_server: RedisServer) -> None:
    one, other = opened_on(shared_server, namespace="two"), opened_on(shared_server, namespace="two")
    one.set("key", {"a": [1, b"2"]}, None)
    assert other.get("key") == {"a": [1, b"2"]}
    other.set("key", BIG, None)
    assert (one.get("key"), sorted(one.keys())) == (BIG, ["key"])
    assert one.delete("key")
    # gone before its time, and no loss, since it was not pinned
    assert (other.get("key"), other.usage().evictions, other.losses) == (MISSING, 1, 0)
    assert shared_server.names("two:*") == []


class DyingLink(Link):
    """Stops before one of its commands, as a killed process does."""

    dies_at = math.inf

    def run(self, commands: Any, *, atomic: bool = False) -> list[Any]:
        DyingLink.dies_at -= 1
        if DyingLink.dies_at < 0:
            raise KeyboardInterrupt
        return super().run(commands, atomic=atomic)


@pytest.mark.parametrize("old", [MISSING, b"old", BIG[::-1]])
def test_a_writer_that_dies_leaves_the_old_value_or_the_new_one(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, old: Any
) -> None:
    monkeypatch.setattr("fednode.cache.redis.records._RUN_BYTES", 4 * PIECES)
    monkeypatch.setattr("fednode.cache.redis.backend.Link", DyingLink)
    seen = []
    for point in range(10):
        DyingLink.dies_at = math.inf
        dying, reader = opened_on(server), opened_on(server)
        dying.clear()
        if old is not MISSING:
            dying.set("key", old, None)
        DyingLink.dies_at = point
        died = False
        try:
            dying.set("key", BIG, None)
        except KeyboardInterrupt:
            died = True
        DyingLink.dies_at = math.inf
        seen.append(reader.get("key"))
        assert reader.usage().damaged == 0
        client = server.client()
        loose = [name for name in server.pieces() if client.pttl(name) > 0]
        assert len(loose) in ((0, 4, 8, 11) if died else (0,))
        if not died:
            break
    turn = seen.index(BIG)
    assert turn >= 4
    assert seen == [old] * turn + [BIG] * (len(seen) - turn)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_could_evict_is_refused(server: RedisServer, policy: str) -> None:
    client, clock = server.client(), FakeClock()
    client.config_set("maxmemory-policy", policy)
    opened_on(server, pins=True).close()
    client.config_set("maxmemory", "8mb")
    with pytest.raises(ConfigError, match=policy):
        opened_on(server, pins=True)
    backend = opened_on(server, clock)
    backend.set("key", b"v", None)
    with pytest.raises(ConfigError, match="noeviction"):
        backend.pin("key", b"v")
    client.config_set("maxmemory-policy", "noeviction")
    backend.pin("key", b"v")
    client.config_set("maxmemory-policy", policy)
    clock.sleep(11.0)
    with pytest.raises(ConfigError, match=policy):
        backend.pin("late", b"v")


def test_a_slow_server_is_an_error_and_no_later_answer_is_another_s(server: RedisServer) -> None:
    backend = opened_on(server, link=LinkOptions(timeout=1.0))
    backend.set_many({f"key {number}": number for number in range(20)}, None)
    with server.paused():
        for call in (
            lambda: backend.get("key 1"),
            lambda: backend.get_many(["key 2", "key 3"]),
            lambda: backend.set("key 4", b"late", None),
            lambda: backend.delete("key 5"),
        ):
            with pytest.raises(StoreError, match=r"1(\.0)? s"):
                call()
    assert [backend.get(f"key {number}") for number in range(6, 20)] == list(range(6, 20))
    assert backend.get("key 1") == 1
    # what was cut short may have happened or not
    assert backend.get("key 4") in (4, b"late")
    assert backend.get("key 5") in (5, MISSING)


def flip_last_bit(client: Any, name: bytes) -> None:
    last = 8 * client.strlen(name) - 1
    client.setbit(name, last, 1 - client.getbit(name, last))


DAMAGE: dict[str, Callable[[Any, bytes], object]] = {
    "gone": lambda client, name: client.delete(name),
    "text": lambda client, name: client.set(name, b"hello"),
    "empty": lambda client, name: client.set(name, b""),
    "list": lambda client, name: (client.delete(name), client.rpush(name, b"a")),
    "hash": lambda client, name: (client.delete(name), client.hset(name, "a", "b")),
    "longer": lambda client, name: client.append(name, b"x"),
    "shorter": lambda client, name: client.set(name, client.getrange(name, 0, -2)),
    "head": lambda client, name: client.set(name, client.getrange(name, 0, HEAD_BYTES - 2)),
    "bit": flip_last_bit,
    "swapped": lambda client, name: client.copy(record_of("other"), name, replace=True),
}


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("place", ["small", "record", "piece", "last piece"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_a_counted_miss_and_a_lost_pin(
    shared_server: RedisServer, kind: str, place: str, *, pinned: bool
) -> None:
    if (kind, place) == ("longer", "record"):
        pytest.skip("what stands after a manifest with pieces is nobody's")
    backend = opened_on(shared_server, pins=pinned)
    backend.clear()
    backend.set_many({"other": b"small", "third": b"3"}, 5_000.0)
    value = b"small" if place == "small" else BIG
    backend.pin("key", value) if pinned else backend.set("key", value, 5_000.0)
    assert lost(backend, "key") == []
    name = record_of("key") if place in ("small", "record") else shared_server.pieces()[3 if place == "piece" else -1]
    DAMAGE[kind](shared_server.client(), name)
    absent = kind in ("gone", "empty") and place in ("small", "record")
    stranger = opened_on(shared_server)
    assert stranger.get("key") is MISSING
    assert stranger.get_many(["other", "key", "third"]) == {"other": b"small", "third": b"3"}
    assert stranger.usage().damaged == (0 if absent else 2)
    if pinned:
        with pytest.raises(PinLost) as raised:
            backend.get("key")
        assert (raised.value.damaged, lost(backend, "key"), backend.losses) == (not absent, ["key"], 1)
        backend.pin("key", b"new")
        assert lost(backend, "key") == []
    else:
        assert backend.get("key") is MISSING
        backend.set("key", b"new", None)
    assert stranger.get("key") == b"new"


def test_what_was_written_and_cannot_be_understood_is_a_miss_and_no_damage(server: RedisServer) -> None:
    record = cut(key_bytes("key"), b"FNv9 of a later version", 1_000, bytes(16)).record
    server.client().set(record_of("key"), record)
    backend = opened_on(server)
    assert (backend.get("key"), backend.get_many(["key"]), backend.usage().damaged) == (MISSING, {}, 0)
    assert server.client().exists(record_of("key"))


def test_a_hostile_manifest_makes_the_server_send_no_more_than_a_value(server: RedisServer) -> None:
    backend = opened_on(server)
    backend.set("key", BIG, None)
    client = server.client()
    client.setrange(record_of("junk"), 1 << 28, b"x")
    client.setrange(server.pieces()[0], 1 << 28, b"x")
    limit = 6 * (1 << 24) + 4096
    before = int(client.info("stats")["total_net_output_bytes"])
    assert backend.get_many(["key", "junk"]) == {}
    sent = int(client.info("stats")["total_net_output_bytes"]) - before
    assert sent < 2 * limit + (1 << 20)


def test_the_server_expires_values_and_all_their_pieces_itself(server: RedisServer) -> None:
    backend = opened_on(server, SystemClock())
    backend.set_many({"small": b"v", "big": BIG}, 0.02)
    backend.set("stays", BIG, None)
    client = server.client()
    lives = [client.pttl(name) for name in server.pieces() if b"big" in name]
    assert len(lives) == 11 and all(0 < life <= 10_020 for life in lives)
    assert all(client.pttl(name) == -1 for name in server.names() if b"stays" in name)
    clock = SystemClock()
    until = clock.now() + 10.0
    # asked, not waited for: the server's own clock decides
    while client.exists(record_of("small"), record_of("big")) and clock.now() < until:
        client.ping()
    assert client.exists(record_of("small"), record_of("big")) == 0
    assert backend.get_many(["small", "big", "stays"]) == {"stays": BIG}
    assert (backend.usage().expiries, backend.usage().entries, backend.usage().evictions) == (2, 1, 0)


def test_a_longest_life_is_a_life(server: RedisServer) -> None:
    backend = opened_on(server)
    backend.set("key", b"v", 1e300)
    assert backend.get("key") == b"v"


def test_old_pieces_go_and_nothing_outside_the_namespace_is_touched(server: RedisServer) -> None:
    client = server.client()
    client.set("stranger", b"mine")
    other = opened_on(server, namespace="ns2")
    other.set("key", BIG, None)
    elsewhere = len(server.names())
    backend = opened_on(server)
    for value, pieces in ((BIG, 11), (BIG[::-1], 11), (b"small", 0), (BIG, 11)):
        backend.set("key", value, None)
        assert len(server.names()) == elsewhere + 1 + pieces
    backend.set_many({"key": b"small", "a": BIG, "b": b"small"}, None)
    assert len(server.names()) == elsewhere + 3 + 11
    assert backend.delete("a")
    assert len(server.names()) == elsewhere + 2
    backend.set("key", BIG, 5.0)
    backend.clear()
    assert len(server.names()) == elsewhere
    assert (client.get("stranger"), other.get("key"), list(other.keys())) == (b"mine", BIG, ["key"])


def test_a_write_sent_twice_because_its_answer_was_lost_keeps_its_own_pieces(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened_on(server)
    backend.set("key", BIG[::-1], None)
    run = Exchanges.run
    lost: list[int] = []

    def losing_the_answer(self: Exchanges, commands: Any, *, atomic: bool) -> list[Any]:
        replies = run(self, commands, atomic=atomic)
        if atomic and not lost:
            lost.append(1)
            raise redis.ConnectionError("the answer was lost")
        return replies

    monkeypatch.setattr(Exchanges, "run", losing_the_answer)
    backend.set("key", BIG, None)
    assert (lost, backend.get("key"), len(server.pieces())) == ([1], BIG, 11)


def test_pieces_that_the_server_drops_during_the_write_make_it_fail(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened_on(server)
    run = Link.run

    def dropping(self: Link, commands: Any, *, atomic: bool = False) -> list[Any]:
        if atomic:
            server.client().delete(server.pieces()[0])
        return run(self, commands, atomic=atomic)

    monkeypatch.setattr(Link, "run", dropping)
    with pytest.raises(StoreError, match="lost pieces of key"):
        backend.set("key", BIG, None)
    monkeypatch.undo()
    assert (backend.get("key"), server.names()) == (MISSING, [])


def test_a_write_that_takes_too_long_is_given_up(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    backend = opened_on(server, clock)
    run = Link.run

    def slow(self: Link, commands: Any, *, atomic: bool = False) -> list[Any]:
        clock.sleep(400.0)
        return run(self, commands, atomic=atomic)

    monkeypatch.setattr(Link, "run", slow)
    with pytest.raises(StoreError, match="orphan_seconds"):
        backend.set("key", BIG, None)
    assert server.names() == []


def test_after_its_close_nothing_is_read_or_stored(server: RedisServer) -> None:
    backend = opened_on(server)
    backend.set("key", b"v", None)
    backend.close()
    backend.close()
    calls: list[Callable[[], object]] = [
        lambda: backend.get("key"),
        lambda: backend.get_many(["key"]),
        lambda: backend.set("key", b"w", None),
        lambda: backend.set_many({"key": b"w"}, None),
        lambda: backend.pin("key", b"w"),
        lambda: backend.delete("key"),
        lambda: list(backend.keys()),
        backend.clear,
        backend.sweep,
        backend.follow,
    ]
    for call in calls:
        with pytest.raises(Closed, match=str(server.socket)):
            call()
    with opened_on(server) as again:
        assert again.get("key") == b"v"


@pytest.mark.parametrize(
    "options",
    [
        *({"piece_bytes": given} for given in (1, 1 << 32, 4096.5, "4096", True, None, math.nan)),
        *({"orphan_seconds": given} for given in (0.0, -1.0, 1e13, math.inf)),
        *({"namespace": given} for given in ("", "a:b", "{a}", "a*", "x" * 65)),
    ],
    ids=str,
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RedisOptions(**{"namespace": "ns"} | options)
