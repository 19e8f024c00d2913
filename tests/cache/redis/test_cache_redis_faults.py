"""`RedisBackend` where the server fails: killed, restarted, full, evicting, slow; junk and half-written values."""

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from kit.cache.redis_server import RedisServer
from kit.clocks import FakeClock

from fednode.cache import MISSING, Limits, StoreFull
from fednode.cache.backend import PinLost
from fednode.cache.redis.address import Names, RedisAddress
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.client import Link
from fednode.cache.redis.connections import Exchanges, LinkOptions
from fednode.cache.redis.records import RedisOptions
from fednode.cache.values.pieces import HEAD_BYTES
from fednode.clock import SystemClock
from fednode.errors import ConfigError, StoreError
from fednode.stores import UpdateStore

BIG = bytes(range(256)) * 80
PIECES = 2_000
QUICK = LinkOptions(timeout=1.0)
PATIENT = LinkOptions(timeout=20.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as running:
        yield running


def opened(
    server: RedisServer,
    clock: Any = None,
    *,
    piece_bytes: int = PIECES,
    pins: bool = False,
    namespace: str = "ns",
    link: LinkOptions = PATIENT,
) -> RedisBackend:
    limits = Limits(1_000, 1 << 30, 1 << 24)
    options = RedisOptions(namespace, limits, piece_bytes, pins, link=link)
    return RedisBackend(server.address, options, clock or FakeClock())


def names_of(server: RedisServer) -> list[bytes]:
    return sorted(server.client().scan_iter("*"))


def record_of(key: str) -> bytes:
    return Names("ns").record(key)


def pieces_of(server: RedisServer) -> list[bytes]:
    return [name for name in names_of(server) if b":p:" in name]


def test_a_killed_server_is_an_error_with_a_sentence_and_the_next_one_is_found(server: RedisServer) -> None:
    clock = FakeClock()
    backend = opened(server, clock)
    backend.set("key", b"v", None)
    server.kill()
    before = clock.now()
    with pytest.raises(StoreError, match="could not reach"):
        backend.get("key")
    assert clock.now() - before == pytest.approx(sum(PATIENT.pauses))
    server.restart()
    assert backend.get("key") is MISSING
    assert backend.usage().evictions == 1
    backend.set("key", b"new", None)
    assert backend.get("key") == b"new"


def test_a_command_outlives_a_restart_between_two(server: RedisServer) -> None:
    backend = opened(server)
    for _ in range(3):
        server.restart()
        backend.set("key", BIG, None)
        assert backend.get("key") == BIG


def test_lost_pins_are_reported_once_each_until_they_are_deleted_or_set(server: RedisServer) -> None:
    backend = opened(server, pins=True)
    for key in ("small", "deleted"):
        backend.pin(key, b"sealed")
    backend.pin("big", BIG)
    assert backend.lost_pins() == ()
    server.restart()
    assert backend.lost_pins() == ("big", "deleted", "small")
    assert backend.losses == 3
    for _ in range(2):
        with pytest.raises(PinLost, match="small is gone"):
            backend.get("small")
    assert backend.get_many(["small", "absent", "big"]) == {}
    assert (backend.delete("deleted"), backend.get("deleted")) == (False, MISSING)
    backend.pin("small", b"again")
    assert (backend.get("small"), backend.losses, backend.lost_pins()) == (b"again", 3, ("big",))
    backend.clear()
    assert (backend.get("big"), backend.lost_pins()) == (MISSING, ())


def test_what_asks_the_server_itself_outlives_a_restart_too(server: RedisServer) -> None:
    clock = FakeClock()
    backend = opened(server, clock, pins=True)
    for call in (lambda: backend.pin("key", b"v"), backend.clear, lambda: list(backend.keys()), backend.lost_pins):
        clock.sleep(11.0)
        server.restart()
        call()
    assert backend.usage().pinned_entries == 0


def test_an_update_store_on_a_server_loses_nothing_unnoticed(server: RedisServer) -> None:
    backend = opened(server, pins=True)
    store = UpdateStore(backend, retry_after=3.0)
    for client in ("ann", "bob"):
        store.put("task", 1, client, BIG)
    assert store.get("task", 1, "ann") == BIG
    server.client().delete(Names("ns").record("update/task/1/bob"))
    with pytest.raises(StoreError, match="bob"):
        store.get("task", 1, "bob")
    assert len(store.consume("task", 1)) == 2
    assert names_of(server) == [] or pieces_of(server) == names_of(server)
    assert backend.usage().entries == 0


def test_a_pin_without_one_of_its_pieces_is_lost(server: RedisServer) -> None:
    backend = opened(server)
    backend.pin("big", BIG)
    server.client().delete(pieces_of(server)[4])
    assert backend.lost_pins() == ("big",)
    with pytest.raises(PinLost):
        backend.get("big")


def test_another_s_deletion_of_what_is_not_pinned_is_a_miss(server: RedisServer) -> None:
    backend, other = opened(server), opened(server)
    backend.set("key", b"v", None)
    assert other.get("key") == b"v" and other.delete("key")
    assert (backend.get("key"), backend.usage().evictions, backend.losses) == (MISSING, 1, 0)


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
        dying, reader = opened(server), opened(server)
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
        loose = [name for name in pieces_of(server) if client.pttl(name) > 0]
        assert len(loose) in ((0, 4, 8, 11) if died else (0,))
        if not died:
            break
    turn = seen.index(BIG)
    assert turn >= 4
    assert seen == [old] * turn + [BIG] * (len(seen) - turn)


def test_a_server_killed_during_a_write_leaves_no_half_value(server: RedisServer) -> None:
    clock = FakeClock()
    backend = opened(server, clock, piece_bytes=1 << 20)
    backend.set("other", b"v", None)
    errors: list[StoreError] = []

    def write() -> None:
        try:
            backend.set("key", bytes(1 << 24), None)
        except StoreError as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    with server.paused():
        writer.start()
        server.kill()
    writer.join()
    assert len(errors) == 1
    server.restart()
    assert (backend.get("key"), backend.usage().damaged) == (MISSING, 0)
    backend.set("key", b"new", None)
    assert backend.get("key") == b"new"


def test_a_full_server_refuses_with_a_time_to_retry_and_keeps_what_it_has(server: RedisServer) -> None:
    server.client().config_set("maxmemory", "8mb")
    backend = opened(server, pins=True, piece_bytes=1 << 16)
    kept = 0
    with pytest.raises(StoreFull, match="maxmemory") as full:
        for number in range(20):
            backend.pin(f"key {number}", bytes([number]) * (1 << 20))
            kept += 1
    assert (kept >= 2, full.value.retry_after, backend.usage().refusals) == (True, PATIENT.retry_after, 1)
    assert all(backend.get(f"key {number}") == bytes([number]) * (1 << 20) for number in range(kept))
    assert backend.get(f"key {kept}") is MISSING
    assert len(pieces_of(server)) == kept * 17
    with pytest.raises(StoreFull):
        backend.set("key 0", bytes(1 << 22), None)
    assert backend.get("key 0") == bytes(1 << 20)
    backend.delete("key 0")
    backend.pin("key 0", b"fits again")
    assert backend.get("key 0") == b"fits again"


def test_many_that_do_not_all_fit_are_stored_up_to_the_first_refusal(server: RedisServer) -> None:
    backend = opened(server, piece_bytes=1 << 20)
    server.client().config_set("maxmemory", "8mb")
    items = {f"key {number}": bytes([number]) * (1 << 18) for number in range(40)}
    with pytest.raises(StoreFull):
        backend.set_many(items, None)
    found = backend.get_many(items)
    assert 0 < len(found) < 40
    assert list(found) == list(items)[: len(found)]
    assert backend.usage().entries == len(found)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_could_evict_is_refused(server: RedisServer, policy: str) -> None:
    client = server.client()
    client.config_set("maxmemory-policy", policy)
    opened(server, pins=True).close()
    client.config_set("maxmemory", "8mb")
    with pytest.raises(ConfigError, match=policy):
        opened(server, pins=True)
    backend = opened(server)
    backend.set("key", b"v", None)
    with pytest.raises(ConfigError, match="noeviction"):
        backend.pin("key", b"v")
    client.config_set("maxmemory-policy", "noeviction")
    backend.pin("key", b"v")


def test_a_policy_changed_under_our_feet_is_found_out(server: RedisServer) -> None:
    clock = FakeClock()
    backend = opened(server, clock, pins=True, piece_bytes=1 << 16)
    pinned = [f"key {number}" for number in range(5)]
    for key in pinned:
        backend.pin(key, bytes(1 << 20))
    client = server.client()
    client.config_set("maxmemory-policy", "allkeys-random")
    client.config_set("maxmemory", "4mb")
    lost = backend.lost_pins()
    assert lost and set(lost) <= set(pinned)
    for key in pinned:
        if key in lost:
            with pytest.raises(PinLost):
                backend.get(key)
    assert backend.losses >= len(lost)
    clock.sleep(11.0)
    with pytest.raises(ConfigError, match="noeviction"):
        backend.pin("late", b"v")


def test_a_slow_server_is_an_error_and_no_later_answer_is_another_s(server: RedisServer) -> None:
    backend = opened(server, link=QUICK)
    backend.set_many({f"key {number}": number for number in range(20)}, None)
    with server.paused():
        for call in (
            lambda: backend.get("key 1"),
            lambda: backend.get_many(["key 2", "key 3"]),
            lambda: backend.set("key 4", b"late", None),
            lambda: backend.delete("key 5"),
        ):
            with pytest.raises(StoreError, match=r"did not answer within 1(\.0)? s"):
                call()
    assert [backend.get(f"key {number}") for number in range(6, 20)] == list(range(6, 20))
    assert backend.get("key 1") == 1
    # what was cut short may have happened or not
    assert backend.get("key 4") in (4, b"late")
    assert backend.get("key 5") in (5, MISSING)


def test_an_interrupted_read_takes_its_connection_along(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = opened(server)
    backend.set_many({"a": b"a", "b": b"b"}, None)

    class Interrupt(BaseException):
        pass

    def raising(*_: Any, **__: Any) -> Any:
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr("redis.connection.AbstractConnection.read_response", raising)
        with pytest.raises(Interrupt):
            backend.get("a")
    assert (backend.get("b"), backend.get("a")) == (b"b", b"a")


JUNK: dict[str, Any] = {
    "text": lambda client, name: client.set(name, b"hello"),
    "empty": lambda client, name: client.set(name, b""),
    "list": lambda client, name: (client.delete(name), client.rpush(name, b"a")),
    "hash": lambda client, name: (client.delete(name), client.hset(name, "a", "b")),
    "longer": lambda client, name: client.append(name, b"x"),
    "shorter": lambda client, name: client.set(name, client.getrange(name, 0, HEAD_BYTES - 2)),
    "bit": lambda client, name: client.setbit(name, 8 * 70, 1 - client.getbit(name, 8 * 70)),
    "swapped": lambda client, name: client.copy(Names("ns").record("other"), name, replace=True),
}


@pytest.mark.parametrize("kind", JUNK)
@pytest.mark.parametrize("value", [b"small", BIG])
def test_junk_under_our_keys_is_a_miss_that_is_counted(server: RedisServer, kind: str, value: bytes) -> None:
    backend = opened(server)
    backend.set_many({"key": value, "other": b"small", "third": b"3"}, 50.0)
    if kind == "longer" and value == BIG:
        pytest.skip("what stands after a manifest with pieces is nobody's")
    JUNK[kind](server.client(), record_of("key"))
    stranger = opened(server)
    assert stranger.get("key") is MISSING
    assert stranger.get_many(["other", "key", "third"]) == {"other": b"small", "third": b"3"}
    assert stranger.usage().damaged == (0 if kind == "empty" else 2)
    assert backend.get("key") is MISSING
    backend.set("key", b"new", None)
    assert stranger.get("key") == b"new"


def test_junk_in_the_place_of_a_piece_is_a_miss(server: RedisServer) -> None:
    for kind in ("text", "list", "longer", "bit"):
        backend = opened(server)
        backend.clear()
        backend.set("key", BIG, 50.0)
        JUNK[kind](server.client(), pieces_of(server)[2])
        assert (backend.get("key"), backend.usage().damaged > 0) == (MISSING, True)


def test_a_hostile_manifest_makes_the_server_send_no_more_than_a_value(server: RedisServer) -> None:
    backend = opened(server, link=PATIENT)
    backend.set("key", BIG, None)
    client = server.client()
    client.setrange(record_of("junk"), 1 << 28, b"x")
    client.setrange(pieces_of(server)[0], 1 << 28, b"x")
    limit = 6 * (1 << 24) + 4096
    before = int(client.info("stats")["total_net_output_bytes"])
    assert backend.get_many(["key", "junk"]) == {}
    sent = int(client.info("stats")["total_net_output_bytes"]) - before
    assert sent < 2 * limit + (1 << 20)


def test_the_server_expires_values_and_all_their_pieces_itself(server: RedisServer) -> None:
    backend = opened(server, SystemClock())
    backend.set_many({"small": b"v", "big": BIG}, 0.02)
    backend.set("stays", BIG, None)
    client = server.client()
    lives = [client.pttl(name) for name in pieces_of(server) if b"big" in name]
    assert len(lives) == 11 and all(0 < life <= 10_020 for life in lives)
    assert all(client.pttl(name) == -1 for name in names_of(server) if b"stays" in name)
    clock = SystemClock()
    until = clock.now() + 10.0
    # asked, not waited for: the server's own clock decides
    while client.exists(record_of("small"), record_of("big")) and clock.now() < until:
        client.ping()
    assert client.exists(record_of("small"), record_of("big")) == 0
    assert backend.get_many(["small", "big", "stays"]) == {"stays": BIG}
    assert (backend.usage().expiries, backend.usage().entries, backend.usage().evictions) == (2, 1, 0)


def test_a_longest_life_is_a_life(server: RedisServer) -> None:
    backend = opened(server)
    backend.set("key", b"v", 1e300)
    assert backend.get("key") == b"v"


def test_old_pieces_go_and_nothing_outside_the_namespace_is_touched(server: RedisServer) -> None:
    client = server.client()
    client.set("stranger", b"mine")
    other = opened(server, namespace="ns2")
    other.set("key", BIG, None)
    elsewhere = len(names_of(server))
    backend = opened(server)
    for value, pieces in ((BIG, 11), (BIG[::-1], 11), (b"small", 0), (BIG, 11)):
        backend.set("key", value, None)
        assert len(names_of(server)) == elsewhere + 1 + pieces
    backend.set_many({"key": b"small", "a": BIG, "b": b"small"}, None)
    assert len(names_of(server)) == elsewhere + 3 + 11
    assert backend.delete("a")
    assert len(names_of(server)) == elsewhere + 2
    backend.set("key", BIG, 5.0)
    backend.clear()
    assert len(names_of(server)) == elsewhere
    assert (client.get("stranger"), other.get("key"), list(other.keys())) == (b"mine", BIG, ["key"])


def test_a_write_sent_twice_because_its_answer_was_lost_keeps_its_own_pieces(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened(server)
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
    assert (lost, backend.get("key"), len(pieces_of(server))) == ([1], BIG, 11)


def test_pieces_that_the_server_drops_during_the_write_make_it_fail(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened(server)
    run = Link.run

    def dropping(self: Link, commands: Any, *, atomic: bool = False) -> list[Any]:
        if atomic:
            server.client().delete(pieces_of(server)[0])
        return run(self, commands, atomic=atomic)

    monkeypatch.setattr(Link, "run", dropping)
    with pytest.raises(StoreError, match="lost pieces of key"):
        backend.set("key", BIG, None)
    monkeypatch.undo()
    assert (backend.get("key"), names_of(server)) == (MISSING, [])


def test_a_write_that_takes_too_long_is_given_up(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    backend = opened(server, clock)
    run = Link.run

    def slow(self: Link, commands: Any, *, atomic: bool = False) -> list[Any]:
        clock.sleep(400.0)
        return run(self, commands, atomic=atomic)

    monkeypatch.setattr(Link, "run", slow)
    with pytest.raises(StoreError, match="orphan_seconds"):
        backend.set("key", BIG, None)
    assert names_of(server) == []


def test_two_backends_in_one_namespace_see_each_other(server: RedisServer) -> None:
    one, other = opened(server), opened(server)
    one.set("key", {"a": [1, b"2"]}, None)
    assert other.get("key") == {"a": [1, b"2"]}
    other.set("key", BIG, None)
    assert (one.get("key"), sorted(one.keys())) == (BIG, ["key"])
    assert one.delete("key")
    assert (other.get("key"), names_of(server)) == (MISSING, [])


def test_no_server_is_an_error_at_once() -> None:
    with pytest.raises(StoreError, match="/nowhere/s"):
        RedisBackend(RedisAddress(socket=Path("/nowhere/s")), RedisOptions("ns", link=QUICK), FakeClock())


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_times_and_names_that_mean_nothing_are_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="wait of"):
        LinkOptions(timeout=seconds)
    with pytest.raises(ConfigError, match="orphan_seconds"):
        RedisOptions("ns", orphan_seconds=seconds)
    with pytest.raises(ConfigError, match="too small"):
        RedisOptions("ns", piece_bytes=1)
    for name in ("", "a:b", "{a}", "a*", "x" * 65):
        with pytest.raises(ConfigError, match="namespace"):
            RedisOptions(name)
