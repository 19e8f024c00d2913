"""`UpdateStore`: pinned until consumed, refused when full, accepted once."""

import threading

import pytest
from kit.clocks import FakeClock

from fednode.cache import (
    MISSING,
    Limits,
    MemoryBackend,
    Missing,
    StoreFull,
    TooLarge,
    UpdateId,
    UpdateLost,
    UpdateStore,
    WhenFull,
)
from fednode.errors import PeerFault


def backend_of(entries: int = 100, total_bytes: int = 1_000, value_bytes: int = 100) -> MemoryBackend:
    return MemoryBackend(FakeClock(), Limits(entries, total_bytes, value_bytes), WhenFull.REFUSE)


def store_of(entries: int = 100, total_bytes: int = 1_000) -> UpdateStore:
    return UpdateStore(backend_of(entries, total_bytes), retry_after=3.0)


def test_what_is_put_is_there_until_its_round_is_consumed() -> None:
    store = store_of()
    store.put("task", 1, "ann", b"a1")
    store.put("task", 2, "ann", b"a2")
    store.put("other", 1, "ann", b"o1")
    assert store.consume("task", 1) == (UpdateId("task", 1, "ann"),)
    assert store.get("task", 1, "ann") is MISSING
    assert (store.get("task", 2, "ann"), store.get("other", 1, "ann")) == (b"a2", b"o1")
    assert store.ids() == (UpdateId("other", 1, "ann"), UpdateId("task", 2, "ann"))


def test_a_repeat_is_refused_and_changes_nothing() -> None:
    store = store_of()
    store.put("task", 1, "ann", b"first")
    with pytest.raises(PeerFault) as fault:
        store.put("task", 1, "ann", b"other")
    assert fault.value.reason == "repeated"
    assert store.get("task", 1, "ann") == b"first"


def test_a_consumed_round_stays_closed() -> None:
    store = store_of()
    store.put("task", 1, "ann", b"a")
    store.consume("task", 1)
    for client in ("ann", "bob"):
        with pytest.raises(PeerFault) as fault:
            store.put("task", 1, client, b"late")
        assert fault.value.reason == "round-closed"
    assert store.consume("task", 1) == ()
    assert store.ids() == ()


def test_a_push_beyond_capacity_is_told_when_to_come_back_and_nothing_is_evicted() -> None:
    store = store_of(entries=2)
    store.put("task", 1, "ann", b"a")
    store.put("task", 1, "bob", b"b")
    with pytest.raises(StoreFull, match="retry in 3 s") as full:
        store.put("task", 1, "cid", b"c")
    assert full.value.retry_after == 3.0
    assert [store.get("task", 1, client) for client in ("ann", "bob", "cid")] == [b"a", b"b", MISSING]
    store.consume("task", 1)
    store.put("task", 2, "cid", b"c")
    assert store.get("task", 2, "cid") == b"c"


def test_a_refused_push_may_be_tried_again() -> None:
    store = store_of(entries=1)
    store.put("task", 1, "ann", b"a")
    with pytest.raises(StoreFull):
        store.put("task", 2, "bob", b"b")
    store.consume("task", 1)
    store.put("task", 2, "bob", b"b")
    assert store.ids() == (UpdateId("task", 2, "bob"),)


def test_an_oversize_push_is_refused_and_not_remembered() -> None:
    store = store_of()
    with pytest.raises(TooLarge):
        store.put("task", 1, "ann", bytes(101))
    store.put("task", 1, "ann", bytes(100))
    assert store.ids() == (UpdateId("task", 1, "ann"),)


def test_updates_of_a_whole_run_never_outgrow_one_round() -> None:
    backend = backend_of(entries=20, total_bytes=200)
    store = UpdateStore(backend, retry_after=1.0)
    for number in range(50):
        for client in range(20):
            store.put("task", number, f"client-{client}", bytes([client]) * 10)
        assert all(store.get("task", number, f"client-{client}") == bytes([client]) * 10 for client in range(20))
        assert len(store.consume("task", number)) == 20
    assert backend.usage().bytes == 0


def test_names_with_slashes_do_not_collide() -> None:
    store = store_of()
    store.put("a", 1, "b/1/c", b"x")
    store.put("a/1/b", 1, "c", b"y")
    assert (store.get("a", 1, "b/1/c"), store.get("a/1/b", 1, "c")) == (b"x", b"y")


def test_a_backend_that_loses_an_update_is_found_out() -> None:
    evicting = MemoryBackend(FakeClock(), Limits(1, 10, 10))
    store = UpdateStore(evicting, retry_after=1.0)
    store.put("task", 1, "ann", b"a")
    store.put("task", 1, "bob", b"b")
    with pytest.raises(UpdateLost, match="ann in round 1") as lost:
        store.get("task", 1, "ann")
    assert lost.value.update == UpdateId("task", 1, "ann")


class _ConsumedMeanwhile(MemoryBackend):
    """Closes the round while a push is on its way into the backend."""

    store: UpdateStore

    def set(self, key: str, value: bytes, ttl: float | None) -> None:
        super().set(key, value, ttl)
        self.store.consume("task", 1)


def test_a_push_that_loses_the_race_against_consume_leaves_nothing_behind() -> None:
    backend = _ConsumedMeanwhile(FakeClock(), Limits(10, 100, 100), WhenFull.REFUSE)
    backend.store = UpdateStore(backend, retry_after=1.0)
    with pytest.raises(PeerFault) as fault:
        backend.store.put("task", 1, "ann", b"a")
    assert fault.value.reason == "round-closed"
    assert backend.usage().entries == 0
    assert backend.store.ids() == ()


class _PushedMeanwhile(MemoryBackend):
    """Lets a push finish between a reader's miss and the store's look at what it holds."""

    store: UpdateStore

    def get(self, key: str) -> bytes | Missing:
        value = super().get(key)
        if value is MISSING:
            self.store.put("task", 1, "ann", b"a")
        return value


def test_a_read_that_a_push_overtook_is_a_miss_and_not_a_loss() -> None:
    backend = _PushedMeanwhile(FakeClock(), Limits(10, 100, 100), WhenFull.REFUSE)
    backend.store = UpdateStore(backend, retry_after=1.0)
    assert backend.store.get("task", 1, "ann") is MISSING
    assert backend.store.get("task", 1, "ann") == b"a"


def test_of_many_equal_pushes_exactly_one_is_taken() -> None:
    store = store_of()
    outcomes: list[str] = []

    def push(number: int) -> None:
        try:
            store.put("task", 1, "ann", b"%d" % number)
            outcomes.append("taken")
        except PeerFault as fault:
            outcomes.append(fault.reason)

    threads = [threading.Thread(target=push, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["repeated"] * 7 + ["taken"]


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_retry_time_that_means_nothing_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="retry time"):
        UpdateStore(backend_of(), retry_after=seconds)
