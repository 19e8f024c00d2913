"""Each row of the cache's benchmark, small: what it compares, and that it checks before it times."""

import sys
from unittest.mock import Mock

import pytest

from benchmarks.cache import array, columns, frozen, hot, invalidation, many, peers, stores, sweep, updates
from benchmarks.cache.updates import Load
from fednode.cache import StoreFull
from fednode.cache.memory.policies import POLICIES
from fednode.stores import UpdateId, UpdateLost, UpdateStore

pytestmark = pytest.mark.thorough


def sides(found):
    assert all(0 < spread["low"] <= spread["middle"] and spread["windows"] == 5 for spread in found["spreads"].values())
    return set(found["spreads"])


def test_a_hot_get_is_timed_bare_wrapped_and_beside_a_locked_ttl_cache():
    pytest.importorskip("cachetools")
    assert sides(hot.work(windows=5)) == {hot.BARE, hot.WRAPPED, hot.LOCKED, hot.BY_ITEM}


def test_get_many_is_timed_beside_the_loop_it_agrees_with(monkeypatch):
    assert sides(many.work(windows=5)) == {many.TOGETHER, many.LOOP}
    monkeypatch.setattr(stores.MemoryBackend, "get_many", lambda self, keys: {})
    with pytest.raises(RuntimeError, match="do not find the same"):
        many.work(windows=5)


def test_an_array_is_timed_only_if_it_is_isolated(monkeypatch):
    assert sides(array.work(windows=5)) == {array.SET, array.KEPT, array.FRESH}
    held = {}  # the caller's own array
    monkeypatch.setattr(stores.MemoryBackend, "set", lambda self, key, value, ttl: held.update({key: value}))
    monkeypatch.setattr(stores.MemoryBackend, "get", lambda self, key: held[key])
    with pytest.raises(RuntimeError, match="reaches what is stored"):
        array.work(windows=5)


def test_a_sweep_frees_what_is_due_and_nothing_else(monkeypatch):
    asked = {"entries": 1_000, "expired": 100, "repeats": 5, "windows": 5}
    found = sweep.work(**asked)
    assert sides(found) == {sweep.SWEEP, sweep.BARE, sweep.IDLE, sweep.EMPTY} and found["freed_idle"] == 0
    monkeypatch.setattr(stores.MemoryBackend, "sweep", lambda self: 99)
    with pytest.raises(RuntimeError, match="99 of 100"):
        sweep.work(**asked)


@pytest.mark.parametrize("room", updates.ROOM)
@pytest.mark.parametrize("policy", POLICIES)
def test_pinned_updates_are_refused_and_retried_and_none_is_lost(policy, room):
    found = updates.run(Load(policy, room, clients=20, rounds=3), pinned=True)
    assert (found.lost, found.accepted) == (0, 60) and found.refused > 0


def test_an_update_that_is_gone_or_changed_or_never_taken_counts_as_lost(monkeypatch):
    load = Load("lru", 1.5, clients=5, rounds=2)
    gone, refused = Mock(side_effect=UpdateLost(UpdateId("t", 1, "c"))), Mock(side_effect=StoreFull("full"))
    for verb, broken in (("get", gone), ("get", Mock(return_value=b"other")), ("put", refused)):
        with monkeypatch.context() as patch:
            patch.setattr(UpdateStore, verb, broken)
            assert updates.run(load, pinned=True).lost == 10


def test_columns_of_what_is_installed_have_every_line(monkeypatch):
    monkeypatch.setattr(columns, "PEERS", {name: peers.PEERS[name] for name in ("dict", "cachetools LRU")})
    monkeypatch.setattr(columns, "MEGABYTE", 1_000)
    monkeypatch.setitem(sys.modules, "cachetools", None)  # importing it fails
    found = columns.work(cold_keys=500, windows=5)
    assert list(found["lines"]) == [cell.name for cell in columns.cells(500)]
    assert {column for line in found["lines"].values() for column in line} == {"FedNode", "dict"}
    assert found["left_out"] == ["cachetools LRU is left out: cachetools is not installed"]


def test_a_frozen_half_over_twenty_rounds_costs_little_more_than_half():
    found = frozen.work(rounds=20, half=8_000)
    first, *later = found["rounds"]
    assert len(later) == 19 and first > 2 * 4 * 8_000 and max(later) < 0.55 * first
    assert 0.5 < found["ratio"] <= 0.55 and found["ratio"] == pytest.approx(sum(found["rounds"]) / (20 * first))


def test_a_batch_of_invalidations_is_timed_beside_a_round_trip_and_key_by_key():
    found = invalidation.work(batches=5)
    assert sides(found) == {invalidation.BATCH, invalidation.ROUND_TRIP, invalidation.ONE_BY_ONE}
    assert found["spreads"][invalidation.ONE_BY_ONE]["middle"] > found["spreads"][invalidation.BATCH]["middle"]
