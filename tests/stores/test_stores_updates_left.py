"""`UpdateStore`: what was withdrawn, what an earlier store or a broken-off call left, what a forked child finds."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.cache.interrupts import after_every_depth, after_every_interrupt, locks_of, nothing_held
from kit.children import held_elsewhere, in_a_child
from kit.clocks import FakeClock

from fednode.cache import MISSING, FileBackend, Limits, MemoryBackend, Missing, StoreFull, WhenFull
from fednode.cache.backend import Value
from fednode.cache.lost import PinLost
from fednode.errors import PeerFault, StoreError
from fednode.stores import PinOwner, UpdateId, UpdateLost, UpdateStore, UpdateUsage


def test_a_store_made_anew_knows_what_an_earlier_one_left_and_a_new_task_frees_it(tmp_path: Path) -> None:
    room = Limits(4, 1_000, 100)
    with FileBackend(tmp_path, FakeClock(), room, WhenFull.REFUSE) as backend:
        store = UpdateStore(backend, retry_after=3.0)
        store.put("old/task", 1, "ann", b"aaaa")
        store.put("old/task", 1, "b/b", b"bb")
        store.put("old/task", 2, "ann", b"c")
        backend.pin("update/of/another/kind/of/key", b"foreign")
    with FileBackend(tmp_path, FakeClock(), room, WhenFull.REFUSE) as backend:
        store = UpdateStore(backend, retry_after=3.0)
        assert set(store.usage().owners) == {PinOwner("old/task", 1, 2, 6), PinOwner("old/task", 2, 1, 1)}
        assert store.get("old/task", 1, "b/b") == b"bb"
        with pytest.raises(PeerFault, match="came before"):
            store.put("old/task", 1, "ann", b"again")
        with pytest.raises(StoreFull, match="retry in 3 s"):
            store.put("new", 1, "ann", b"new")
        for left in store.usage().owners:
            store.consume(left.task, left.round)
        assert store.ids() == () and list(backend.keys()) == ["update/of/another/kind/of/key"]
        for client in ("ann", "bob", "cid"):
            store.put("new", 1, client, b"new")


@pytest.mark.parametrize("key", ["update/t/01/a", "update/t/1", "update/t/+1/a", "update/t/1/%61", "update/%ff/1/a"])
def test_what_is_nearly_a_key_of_an_update_is_none(key: str) -> None:
    backend = MemoryBackend(FakeClock(), Limits(10, 100, 100), WhenFull.REFUSE)
    backend.pin(key, b"foreign")
    backend.pin("update/t/1/b", "no bytes")
    store = UpdateStore(backend, retry_after=1.0)
    assert store.ids() == () and store.usage() == UpdateUsage()


def test_an_update_that_was_lost_before_the_store_was_made_anew_is_lost() -> None:
    class Losing(MemoryBackend):
        def get(self, key: str) -> Value | Missing:
            raise PinLost(key)

    backend = Losing(FakeClock(), Limits(10, 100, 100))
    backend.pin("update/t/1/a", b"a")
    with pytest.raises(UpdateLost, match="of a in round 1"):
        UpdateStore(backend, retry_after=1.0).get("t", 1, "a")


# --- broken off


class _World:
    def __init__(self, kind: type[MemoryBackend] = MemoryBackend) -> None:
        self.backend = kind(FakeClock(), Limits(4, 1_000, 100), WhenFull.REFUSE)
        self.store = UpdateStore(self.backend, retry_after=1.0)
        self.store.put("task", 1, "ann", b"first")
        self.store.put("task", 1, "bob", b"bob's")

    def lose(self) -> "_World":
        self.backend.delete(UpdateId("task", 1, "ann").key())
        with pytest.raises(UpdateLost):
            self.store.get("task", 1, "ann")
        return self


CALLS: dict[str, tuple[Callable[[], _World], Callable[[UpdateStore], object]]] = {
    "put": (_World, lambda store: store.put("task", 1, "cid", b"cid's")),
    "put again": (lambda: _World().lose(), lambda store: store.put("task", 1, "ann", b"again")),
    "consume": (_World, lambda store: store.consume("task", 1)),
    "withdraw": (_World, lambda store: store.withdraw("task", 1, "ann")),
    "get": (_World, lambda store: store.get("task", 1, "ann")),
    "usage": (_World, lambda store: (store.usage(), store.ids())),
}


def check_agrees(world: _World) -> None:
    """What is listed is what is there, and a retry comes to an end."""
    store = world.store
    nothing_held(store)
    store.withdraw("task", 9, "nobody")
    store.consume("other", 1)
    listed = store.ids()
    assert {update.key() for update in listed} >= set(world.backend.keys())
    assert store.usage().updates == len(listed)
    for update in listed:
        # a lost one may stand there unread; else it is what was pushed
        with contextlib.suppress(UpdateLost):
            assert store.get("task", 1, update.client) in (b"first", b"again", b"bob's", b"cid's")
    for client in ("ann", "cid"):
        with contextlib.suppress(PeerFault):
            store.put("task", 1, client, b"again")
    if "task" not in store._closed:
        assert {"ann", "cid"} <= {update.client for update in store.ids()}
        assert isinstance(store.get("task", 1, "ann"), bytes)
    store.consume("task", 1)
    assert list(world.backend.keys()) == [] and store.usage().owners == () and world.backend.usage().pinned_entries == 0


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_interrupted_leaves_nothing_that_the_next_one_does_not_free(name: str) -> None:
    make, call = CALLS[name]
    for world in after_every_interrupt(make, lambda world: call(world.store)):
        check_agrees(world)
    for world in after_every_depth(make, lambda world: call(world.store)):
        check_agrees(world)


class _PinsAndFails(MemoryBackend):
    """A server whose answer is lost: the value is there, and nobody was told."""

    away = False

    def pin(self, key: str, value: Value) -> None:
        super().pin(key, value)
        if self.away:
            raise StoreError("no answer")


def test_a_push_whose_fate_nobody_knows_leaves_no_pin_and_may_be_sent_again() -> None:
    backend = _PinsAndFails(FakeClock(), Limits(1, 100, 100), WhenFull.REFUSE)
    store = UpdateStore(backend, retry_after=1.0)
    for client in ("ann", "bob"):
        backend.away = True
        with pytest.raises(StoreError, match="no answer"):
            store.put("task", 1, client, b"first")
        assert store.ids() == () and store.get("task", 1, "cid") is MISSING
        backend.away = False
        store.put("task", 1, client, b"again")
        assert store.get("task", 1, client) == b"again"
        store.withdraw("task", 1, client)
    assert list(backend.keys()) == []


def test_a_child_goes_on_where_a_thread_of_its_parent_was_pushing() -> None:
    world = _World()

    def look() -> list[object]:
        world.store.put("task", 1, "cid", b"child's")
        found = world.store.get("task", 1, "cid")
        return [found.decode() if isinstance(found, bytes) else None, len(world.store.consume("task", 1))]

    world.store._arriving.add(UpdateId("task", 1, "cid"))
    with held_elsewhere(*locks_of(world.store)):
        assert in_a_child(look) == ["child's", 3]
    check_agrees(world)


# --- withdrawn


def test_what_was_withdrawn_may_be_pushed_again_and_is_counted_nowhere() -> None:
    store = UpdateStore(MemoryBackend(FakeClock(), Limits(1, 100, 100), WhenFull.REFUSE), 1.0)
    store.put("task", 1, "ann", b"first")
    store.withdraw("task", 1, "ann")
    store.withdraw("task", 1, "ann")
    store.withdraw("task", 7, "bob")
    assert store.get("task", 1, "ann") is MISSING and store.ids() == () and store.usage() == UpdateUsage()
    store.put("task", 1, "ann", b"again")
    assert store.get("task", 1, "ann") == b"again"
    assert store.consume("task", 1) == (UpdateId("task", 1, "ann"),)
    store.withdraw("task", 1, "ann")
    with pytest.raises(PeerFault) as fault:
        store.put("task", 1, "ann", b"late")
    assert fault.value.reason == "round-closed"


class _Undeletable(MemoryBackend):
    broken = True

    def delete(self, key: str) -> bool:
        if self.broken:
            raise StoreError("the disk is gone")
        return super().delete(key)


def test_what_cannot_be_deleted_yet_is_told_to_come_back_and_not_that_it_came_before() -> None:
    backend = _Undeletable(FakeClock(), Limits(10, 100, 100), WhenFull.REFUSE)
    store = UpdateStore(backend, retry_after=3.0)
    store.put("task", 1, "ann", b"first")
    store.withdraw("task", 1, "ann")
    assert store.ids() == () and store.usage().updates == 1
    with pytest.raises(StoreFull, match=r"was withdrawn .* retry in 3 s") as full:
        store.put("task", 1, "ann", b"again")
    assert full.value.retry_after == 3.0 and store.usage().refusals == 1
    backend.broken = False
    store.put("task", 1, "ann", b"again")
    assert store.get("task", 1, "ann") == b"again" and store.usage().updates == 1


class _SlowToDelete(MemoryBackend):
    """Holds the first deletion until it is told; `waiting` says that it does."""

    def __init__(self) -> None:
        super().__init__(FakeClock(), Limits(10, 100, 100), WhenFull.REFUSE)
        self.waiting, self.go = threading.Event(), threading.Event()
        self.deletions = 0

    def delete(self, key: str) -> bool:
        self.deletions += 1
        self.waiting.set()
        self.go.wait(60.0)
        return super().delete(key)


def test_two_threads_that_free_the_same_do_not_delete_what_was_pushed_since() -> None:
    backend = _SlowToDelete()
    store = UpdateStore(backend, retry_after=3.0)
    store.put("task", 1, "ann", b"first")
    first = threading.Thread(target=store.withdraw, args=("task", 1, "ann"))
    first.start()
    assert backend.waiting.wait(60.0)
    second = threading.Thread(target=store.consume, args=("other", 1))
    second.start()
    backend.go.set()
    first.join(60.0)
    second.join(60.0)
    store.put("task", 1, "ann", b"again")
    assert backend.deletions == 1 and store.get("task", 1, "ann") == b"again"
