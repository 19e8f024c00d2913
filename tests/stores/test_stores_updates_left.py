"""`UpdateStore`: what an earlier store left, a backend that fails, and what was withdrawn."""

import threading
from pathlib import Path

import pytest
from kit.clocks import FakeClock

from fednode.cache import MISSING, FileBackend, Limits, MemoryBackend, Missing, StoreFull, WhenFull
from fednode.cache.backend import PinLost, Value
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


# --- a backend that fails


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
