"""Each row of the cache's benchmark, small: what it compares, and that it checks before it times."""

import socket
import threading
from importlib import import_module

import numpy as np
import pytest

from benchmarks.cache import array, columns, frozen, hot, invalidation, many, peers, stores, sweep, updates
from benchmarks.cache.sharer import ECHO, PARCEL, REPLY, receive, send, serve
from benchmarks.cache.updates import Load
from fednode.cache import MISSING, StoreFull
from fednode.cache.coherence.round_directory import Parcel, pack
from fednode.cache.memory.policies import POLICIES
from fednode.clock import SystemClock
from fednode.stores import UpdateId, UpdateLost, UpdateStore

pytestmark = pytest.mark.thorough


def sides(found):
    assert all(0 < spread["low"] <= spread["middle"] and spread["windows"] == 5 for spread in found["spreads"].values())
    return set(found["spreads"])


def test_a_hot_get_is_timed_bare_wrapped_and_beside_a_locked_ttl_cache():
    pytest.importorskip("cachetools")
    assert sides(hot.work(windows=5)) == {hot.BARE, hot.WRAPPED, hot.LOCKED, hot.BY_ITEM}


def without(monkeypatch, module, *missing):
    def find(name):
        if name in missing:
            raise ImportError(name)
        return import_module(name)

    monkeypatch.setattr(module, "import_module", find)


def test_without_cachetools_the_hot_get_is_timed_alone(monkeypatch):
    without(monkeypatch, hot, "cachetools")
    assert sides(hot.work(windows=5)) == {hot.BARE, hot.WRAPPED}


def test_get_many_is_timed_beside_the_loop_it_agrees_with(monkeypatch):
    assert sides(many.work(windows=5)) == {many.TOGETHER, many.LOOP}
    monkeypatch.setattr(stores.MemoryBackend, "get_many", lambda self, keys: {})
    with pytest.raises(RuntimeError, match="do not find the same"):
        many.work(windows=5)


def test_an_array_is_timed_only_if_it_is_isolated(monkeypatch):
    assert sides(array.work(windows=5)) == {array.SET, array.KEPT, array.FRESH}
    held = {}
    monkeypatch.setattr(stores.MemoryBackend, "set", lambda self, key, value, ttl: held.update({key: value}))
    monkeypatch.setattr(stores.MemoryBackend, "get", lambda self, key: held[key])
    with pytest.raises(RuntimeError, match="reaches what is stored"):
        array.work(windows=5)


SWEEP = {"entries": 1_000, "expired": 100, "repeats": 5, "windows": 5}


def test_a_sweep_frees_what_is_due_and_nothing_else(monkeypatch):
    found = sweep.work(**SWEEP)
    assert sides(found) == {sweep.SWEEP, sweep.BARE, sweep.IDLE, sweep.EMPTY} and found["freed_idle"] == 0
    monkeypatch.setattr(stores.MemoryBackend, "sweep", lambda self: 99)
    with pytest.raises(RuntimeError, match="99 of 100"):
        sweep.work(**SWEEP)


@pytest.mark.parametrize("room", updates.ROOM)
@pytest.mark.parametrize("policy", POLICIES)
def test_pinned_updates_are_refused_and_retried_and_none_is_lost(policy, room):
    found = updates.run(Load(policy, room, clients=20, rounds=3), pinned=True)
    assert (found.lost, found.accepted) == (0, 60) and found.refused > 0


def test_what_is_not_pinned_is_lost():
    assert updates.run(Load("lru", 1.05, clients=20, rounds=2), pinned=False).lost > 0


def test_an_update_that_is_gone_or_changed_or_never_taken_counts_as_lost(monkeypatch):
    load = Load("lru", 1.5, clients=5, rounds=2)

    def gone(self, task, number, client):
        raise UpdateLost(UpdateId(task, number, client))

    for get in (gone, lambda self, *names: b"other", lambda self, *names: MISSING):
        monkeypatch.setattr(UpdateStore, "get", get)
        assert updates.run(load, pinned=True).lost == 10

    def refuse(self, *arguments):
        raise StoreFull("full")

    monkeypatch.undo()
    monkeypatch.setattr(UpdateStore, "put", refuse)
    found = updates.run(load, pinned=True)
    assert (found.lost, found.accepted) == (10, 0)


def test_every_policy_is_loaded_at_both_sizes():
    found = updates.work(clients=5, rounds=1)["runs"]
    assert [(run["policy"], run["room"]) for run in found] == [(p, room) for p in POLICIES for room in updates.ROOM]
    assert {run["lost"] for run in found} == {0}


def test_columns_of_what_is_installed_have_every_line(monkeypatch):
    monkeypatch.setattr(columns, "PEERS", {name: peers.PEERS[name] for name in ("dict", "cachetools LRU")})
    monkeypatch.setattr(columns, "MEGABYTE", 1_000)
    without(monkeypatch, peers, "cachetools")
    found = columns.work(cold_keys=500, windows=5)
    assert list(found["lines"]) == [cell.name for cell in columns.cells(500)]
    assert {column for line in found["lines"].values() for column in line} == {"FedNode", "dict"}
    assert found["left_out"] == ["cachetools LRU is left out: cachetools is not installed"]


PACKAGES = {"cachetools LRU": "cachetools", "cachetools TTL": "cachetools", "theine": "theine", "moka-py": "moka_py",
            "diskcache": "diskcache", "Redis": "redis"}  # fmt: skip


@pytest.mark.parametrize("name", peers.PEERS)
def test_a_peer_gives_back_what_it_was_given(name):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    try:
        with peers.PEERS[name](100, SystemClock()) as peer:
            peer.fill({"a": b"1", "b": b"2"})
            peer.set("b", b"3")
            found = [peer.get(key) for key in "ab"]
    except peers.NotInstalled as error:
        pytest.skip(str(error))
    assert found == ([(b"1", True), (b"3", True)] if name == "theine" else [b"1", b"3"])


@pytest.mark.parametrize("name", PACKAGES)
def test_a_peer_that_is_not_installed_says_which_package(monkeypatch, name):
    without(monkeypatch, peers, *PACKAGES.values())
    with pytest.raises(peers.NotInstalled, match="not installed"), peers.PEERS[name](1, SystemClock()):
        pass


def test_without_a_server_redis_is_left_out(monkeypatch):
    pytest.importorskip("redis")
    monkeypatch.setattr(peers.shutil, "which", lambda name: None)
    with pytest.raises(peers.NotInstalled, match="redis-server"), peers.redis(1, SystemClock()):
        pass


def test_values_have_their_size_and_differ():
    found = stores.values(1_500, 64)
    assert {len(value) for value in found} == {64} and len(set(found)) == 1_000
    assert len(set(stores.names(1_500))) == 1_500
    assert np.frombuffer(stores.values(1, 1 << 20)[0], np.uint8).size == 1 << 20


def test_a_frozen_half_over_twenty_rounds_costs_little_more_than_half():
    found = frozen.work(rounds=20, half=8_000)
    first, *later = found["rounds"]
    assert len(later) == 19 and first > 2 * 4 * 8_000 and max(later) < 0.55 * first
    assert 0.5 < found["ratio"] <= 0.55 and found["ratio"] == pytest.approx(sum(found["rounds"]) / (20 * first))


def test_a_batch_of_invalidations_is_timed_beside_a_round_trip_and_key_by_key():
    found = invalidation.work(batches=5)
    assert sides(found) == {invalidation.BATCH, invalidation.ROUND_TRIP, invalidation.ONE_BY_ONE}
    assert found["spreads"][invalidation.ONE_BY_ONE]["middle"] > found["spreads"][invalidation.BATCH]["middle"]
    assert found["bytes_back"] == REPLY.size and 64 // 8 < found["bytes_out"] < 1_024


def test_a_sharer_answers_echoes_unread_and_parcels_once_taken():
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs,))
    thread.start()
    with ours, theirs:
        for sent, answer in (
            (ECHO + b"anything at all", (ECHO, 0)),
            (PARCEL + pack(Parcel(7, 0, 0, 0b11)), (PARCEL, 7)),
            (PARCEL + pack(Parcel(6, 0b11, 0, 0)), (PARCEL, 7)),
        ):
            send(ours, sent)
            assert REPLY.unpack(receive(ours)) == answer
        ours.shutdown(socket.SHUT_RDWR)
        thread.join()
