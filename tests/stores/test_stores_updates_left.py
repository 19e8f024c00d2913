"""`UpdateStore`: what an earlier store left, and what was withdrawn."""

import threading
from pathlib import Path

import pytest
from kit.cache.failing import FailingBackend
from kit.clocks import FakeClock

from fednode.cache import MISSING, FileBackend, Limits, MemoryBackend, StoreFull, WhenFull
from fednode.cache.backend import PinLost
from fednode.errors import PeerFault
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
        with pytest.raises(PeerFault, match="repeated"):
            store.put("old/task", 1, "ann", b"again")
        with pytest.raises(StoreFull) as full:
            store.put("new", 1, "ann", b"new")
        assert full.value.retry_after == 3.0
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
    backend = FailingBackend()
    backend.pin("update/t/1/a%2Fboxes", b"a")
    backend.error, backend.fails = PinLost("key"), lambda verb, _: verb == "get"
    with pytest.raises(UpdateLost, match="the boxes of a in round 1"):
        UpdateStore(backend, retry_after=1.0).get("t", 1, "a/boxes")


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
    with pytest.raises(PeerFault, match="round-closed"):
        store.put("task", 1, "ann", b"late")


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
