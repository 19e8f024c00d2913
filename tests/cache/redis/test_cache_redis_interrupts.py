"""A call of `RedisBackend` that Ctrl-C or the end of the stack cuts short: no later command reads its answers, and what
it changed is the old value or the new one."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from kit.cache.backend import same
from kit.cache.interrupts import after_every_depth, interrupted, nothing_held
from kit.cache.redis_server import RedisServer
from kit.clocks import FakeClock

from fednode.cache import MISSING, Limits
from fednode.cache.redis.address import RedisAddress
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.client import LinkOptions
from fednode.cache.redis.records import RedisOptions

# what was interrupted in a destructor has no caller to tell
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
BIG, BIGGER = bytes(range(200)), bytes(range(240))
OLD: dict[str, Any] = {"key": BIG, "pinned": [1, [2]], "other": b"other"}
Call = Callable[[RedisBackend], object]
NAMES = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("r")) as running:
        yield running


@dataclass
class World:
    backend: RedisBackend
    namespace: str


def made(server: RedisServer, database: int = 0) -> World:
    namespace = f"ns{next(NAMES)}"
    with server.client() as client:
        client.flushall()
    options = RedisOptions(namespace, Limits(10, 10_000, 1_000), 100, pins=True, link=LinkOptions(timeout=20.0))
    backend = RedisBackend(RedisAddress(socket=server.socket, db=database), options, FakeClock())
    for key in ("key", "other"):
        backend.set(key, OLD[key], None)
    backend.pin("pinned", OLD["pinned"])
    return World(backend, namespace)


def after_interrupts(make: Callable[[], World], call: Callable[[World], object], stride: int = 17) -> Iterator[World]:
    """As `kit.cache.interrupts.after_every_interrupt`, but at every so-manieth step: redis-py has thousands."""
    for at in itertools.count(1, stride):
        world = make()
        went_off = interrupted(lambda: call(world), at)  # noqa: B023 - called at once
        yield world
        if not went_off:
            return


CALLS: dict[str, tuple[Call, dict[str, tuple[object, ...]]]] = {
    "get": (lambda one: one.get("key"), {}),
    "set": (lambda one: one.set("key", BIGGER, None), {"key": (BIGGER,)}),
    "small": (lambda one: one.set("key", b"small", 5.0), {"key": (b"small",)}),
    "set_many": (
        lambda one: one.set_many({"key": b"1", "new": b"2"}, None),
        {"key": (b"1",), "new": (b"2", MISSING)},
    ),
    "pin": (lambda one: one.pin("new", BIG), {"new": (BIG, MISSING)}),
    "delete": (lambda one: one.delete("key"), {"key": (MISSING,)}),
    "unpin": (lambda one: one.delete("pinned"), {"pinned": (MISSING,)}),
    "keys": (lambda one: list(one.keys()), {}),
    "lost_pins": (lambda one: one.lost_pins(), {}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("cut_short", [after_interrupts, after_every_depth])
def test_a_call_that_was_cut_short_is_done_or_not_done(server: RedisServer, name: str, cut_short: Any) -> None:
    call, changes = CALLS[name]
    seen = 0
    for world in cut_short(lambda: made(server), lambda world: call(world.backend)):
        seen += 1
        may_be = {key: (OLD.get(key, MISSING), *changes.get(key, ())) for key in {*OLD, *changes}}
        found = check_settled(server, world, may_be)
    assert seen > 2
    # the last one came to its end
    assert all(same(found[key], wanted[0]) for key, wanted in changes.items())


def check_settled(server: RedisServer, world: World, may_be: dict[str, tuple[object, ...]]) -> dict[str, object]:
    backend = world.backend
    nothing_held(backend)
    found = {key: backend.get(key) for key in may_be}
    assert all(any(same(found[key], one) for one in allowed) for key, allowed in may_be.items()), found
    assert (backend.lost_pins(), backend.losses, backend.usage().damaged) == ((), 0, 0)
    # pieces that belong to nothing do not stay
    standing = 3 * sum(type(value) is bytes and len(value) > 100 for value in found.values())
    with server.client() as client:
        pieces = [name for name in client.keys(f"{world.namespace}:p:*") if client.pttl(name) < 0]
    assert len(pieces) == standing
    # room that was held is free again, and the account is right once each key was written anew
    for key in may_be:
        backend.set(key, b"last", None)
    usage = backend.usage()
    assert (usage.entries, usage.bytes, usage.pinned_entries) == (len(may_be), 4 * len(may_be), 0)
    assert not list(backend._book._coming)
    backend.close()
    return found


@pytest.mark.parametrize("cut_short", [after_interrupts, after_every_depth])
def test_clear_that_was_cut_short_leaves_whole_values_or_none_and_no_lost_pin(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, cut_short: Any
) -> None:
    monkeypatch.setattr("fednode.cache.redis.backend._STRIPES", 3)
    for world in cut_short(lambda: made(server), lambda world: world.backend.clear()):
        nothing_held(world.backend)
        found = {key: world.backend.get(key) for key in ("other", "pinned")}
        assert all(same(found[key], OLD[key]) or found[key] is MISSING for key in found)
        assert (world.backend.lost_pins(), world.backend.losses) == ((), 0)
        world.backend.clear()
        assert list(world.backend.keys()) == [] and world.backend.usage().entries == 0
        world.backend.close()


def test_a_connection_that_an_interrupt_left_half_made_is_never_used(server: RedisServer) -> None:
    """One that was not told its database yet would write to another."""

    def fresh() -> World:
        world = made(server, database=3)
        link = world.backend._link
        link._server().close()
        link._made = None
        return world

    for world in after_interrupts(fresh, lambda world: world.backend.get("other"), 7):
        assert world.backend.get("other") == b"other" and world.backend.get("absent") is MISSING
        world.backend.close()
        with server.client() as client:
            assert not client.keys()


def test_whoever_reads_after_an_interrupted_one_reads_his_own(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as where the answer comes late: that it is there already gives such a connection away
    monkeypatch.setattr("redis.connection.AbstractConnection.can_read", lambda *_, **__: False)
    world = made(server)
    for number in range(5):
        world.backend.set(f"key {number}", number, None)
    for at, _ in enumerate(after_interrupts(lambda: world, lambda one: one.backend.get("key"), 1)):
        assert [world.backend.get(f"key {number}") for number in range(5)] == list(range(5)), at
    world.backend.close()
