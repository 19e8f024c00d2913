"""Errors of a `RedisBackend` name the server: lost and damaged values, a closed cache."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from kit.cache.redis_server import RedisServer
from kit.clocks import FakeClock

from fednode.cache import Closed, Limits, LinkOptions, RedisBackend, RedisOptions
from fednode.cache.redis.address import Names
from fednode.errors import StoreError
from fednode.stores import ParameterStore, UpdateLost, UpdateStore


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as running:
        yield running


def opened(server: RedisServer, *, pins: bool = False) -> RedisBackend:
    options = RedisOptions("ns", Limits(1_000, 1 << 30, 1 << 24), pins=pins, link=LinkOptions(timeout=5.0))
    return RedisBackend(server.address, options, FakeClock())


def record_of(key: str) -> bytes:
    return Names("ns").record(key)


def test_a_lost_update_says_what_keeps_it_and_a_damaged_one_is_not_called_gone(server: RedisServer) -> None:
    backend = opened(server, pins=True)
    store = UpdateStore(backend, retry_after=1.0)
    for client in ("ann", "ann/boxes"):
        store.put("task", 1, client, b"sealed")
    server.client().delete(record_of("update/task/1/ann"))
    server.client().set(record_of("update/task/1/ann%2Fboxes"), b"something else")
    with pytest.raises(UpdateLost, match=rf"ann in round 1 .* gone .*{server.socket}"):
        store.get("task", 1, "ann")
    with pytest.raises(UpdateLost, match=rf"ann in round 1 .* damaged .*{server.socket}"):
        store.get("task", 1, "ann/boxes")


def test_an_overwritten_chunk_of_the_model_is_named_with_its_place(server: RedisServer) -> None:
    store = ParameterStore(opened(server, pins=True), "run")
    for number in (0.0, 1.0):
        store.write({"w": np.full(4, number)}, {})
    server.client().set(record_of("parameters/run/w/0@2"), b"something else")
    with pytest.raises(StoreError, match=rf"parameters/run/w/0@2 .*{server.socket}"):
        store.read()
    assert store.read(1).arrays["w"][0] == 0.0


def test_after_its_close_nothing_is_read_or_stored(server: RedisServer) -> None:
    backend = opened(server)
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
    with opened(server) as again:
        assert again.get("key") == b"v"
