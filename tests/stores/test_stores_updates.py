"""`UpdateStore`: pinned until consumed, refused when full, accepted once."""

import contextlib
import threading
from collections import deque
from typing import Any

import pytest
from kit.cache.failing import FailingBackend
from kit.clocks import FakeClock

from fednode.cache import MISSING, Limits, MemoryBackend, StoreFull, TooLarge, WhenFull
from fednode.cache.backend import PinLost, Value
from fednode.cache.memory.policies import POLICIES
from fednode.errors import PeerFault
from fednode.stores import PinOwner, UpdateId, UpdateLost, UpdateStore, UpdateUsage

ANN = UpdateId("task", 1, "ann")


def backend_of(entries: int = 100, total_bytes: int = 1_000, value_bytes: int = 100) -> MemoryBackend:
    return MemoryBackend(FakeClock(), Limits(entries, total_bytes, value_bytes), WhenFull.REFUSE)


def store_of(entries: int = 100, total_bytes: int = 1_000) -> UpdateStore:
    return UpdateStore(backend_of(entries, total_bytes), retry_after=3.0)


def must_refuse(store: UpdateStore, reason: str, number: int = 1, client: str = "ann", task: str = "task") -> None:
    with pytest.raises(PeerFault) as fault:
        store.put(task, number, client, b"late")
    assert fault.value.reason == reason


def test_what_is_put_is_there_until_its_round_is_consumed() -> None:
    store = store_of()
    store.put("task", 1, "ann", b"a1")
    must_refuse(store, "repeated")
    store.put("task", 2, "ann", b"a2")
    store.put("other", 1, "ann", b"o1")
    assert store.get("task", 1, "ann") == b"a1"
    assert store.consume("task", 1) == (ANN,)
    assert store.get("task", 1, "ann") is MISSING
    assert (store.get("task", 2, "ann"), store.get("other", 1, "ann")) == (b"a2", b"o1")
    assert store.ids() == (UpdateId("other", 1, "ann"), UpdateId("task", 2, "ann"))
    assert store.consume("task", 1) == ()


def test_a_consumed_round_and_older_ones_of_its_task_stay_closed() -> None:
    store = store_of()
    store.put("task", 4, "ann", b"waits")
    store.consume("task", 5)
    for number, client in ((3, "bob"), (4, "bob"), (5, "bob"), (5, "ann")):
        must_refuse(store, "round-closed", number, client)
    store.put("task", 6, "bob", b"b")
    store.put("other", 3, "bob", b"o")
    assert store.get("task", 4, "ann") == b"waits" and store.consume("task", 4) == (UpdateId("task", 4, "ann"),)
    must_refuse(store, "round-closed", 5)


def test_a_push_beyond_capacity_is_told_when_to_come_back_and_nothing_is_evicted() -> None:
    store = store_of(entries=2)
    store.put("task", 1, "ann", b"a")
    store.put("task", 1, "bob", b"b")
    with pytest.raises(StoreFull, match="retry in 3 s") as full:
        store.put("task", 2, "cid", b"c")
    assert full.value.retry_after == 3.0
    assert [store.get("task", 1, client) for client in ("ann", "bob")] == [b"a", b"b"]
    assert store.get("task", 2, "cid") is MISSING
    store.consume("task", 1)
    store.put("task", 2, "cid", b"c")
    assert store.get("task", 2, "cid") == b"c"


def test_an_oversize_push_is_refused_and_not_remembered() -> None:
    store = store_of()
    with pytest.raises(TooLarge):
        store.put("task", 1, "ann", bytes(101))
    store.put("task", 1, "ann", bytes(100))
    assert store.ids() == (ANN,)


def test_names_with_slashes_do_not_collide() -> None:
    store = store_of()
    store.put("a", 1, "b/1/c", b"x")
    store.put("a/1/b", 1, "c", b"y")
    assert (store.get("a", 1, "b/1/c"), store.get("a/1/b", 1, "c")) == (b"x", b"y")


@pytest.mark.parametrize("how", ["gone", "damaged", "named"])
def test_a_lost_update_is_found_out_and_may_be_sent_again(how: str) -> None:
    careless = FailingBackend(Limits(10, 100, 10))
    store, key, place = UpdateStore(careless, retry_after=1.0), ANN.key(), str(careless)
    if how == "named":
        # as a server's client does: what was pinned and is gone is no miss
        careless.error, place = PinLost(key, "the cache server host:1"), "host:1.*noeviction"
    for turn in range(3):
        careless.fails = lambda *_: False
        store.put("task", 1, "ann", b"%d" % turn)
        assert store.get("task", 1, "ann") == b"%d" % turn
        # nobody has asked yet, so nobody knows of the loss
        must_refuse(store, "repeated")
        if how == "damaged":
            careless.pin(key, "no bytes")
        else:
            careless.delete(key)
        careless.fails = lambda verb, _: how == "named" and verb == "get"
        for _ in range(2):
            with pytest.raises(UpdateLost, match=rf"ann in round 1 .*{place}") as lost:
                store.get("task", 1, "ann")
            assert lost.value.update == ANN
    assert (store.usage().lost, store.usage().updates) == (3, 1)
    assert store.get("task", 1, "bob") is MISSING
    # a push that is refused changes nothing: lost it stays, and its round's consumption frees what is left
    with pytest.raises(TooLarge):
        store.put("task", 1, "ann", bytes(11))
    with pytest.raises(UpdateLost):
        store.get("task", 1, "ann")
    store.put("task", 1, "ann", b"last")
    assert store.consume("task", 1) == (ANN,)
    assert careless.usage().entries == 0 and store.usage() == UpdateUsage(lost=3)


@pytest.mark.parametrize(
    ("update", "error"),
    [
        (("task", "1", "ann"), TypeError),
        (("task", 1.0, "ann"), TypeError),
        (("task", True, "ann"), TypeError),
        ((b"task", 1, "ann"), TypeError),
        (("task", 1, None), TypeError),
        (("ta\ud800sk", 1, "ann"), ValueError),
        (("task", 1, "\udfff"), ValueError),
    ],
)
def test_what_names_no_update_is_refused_by_every_call(update: Any, error: type[Exception]) -> None:
    store = store_of()
    store.put("task", 1, "ann", b"a")
    for call in (lambda: store.put(*update, b"B"), lambda: store.get(*update), lambda: store.withdraw(*update)):
        with pytest.raises(error):
            call()
    if update[2] == "ann":
        with pytest.raises(error):
            store.consume(*update[:2])
    assert store.get("task", 1, "ann") == b"a" and store.usage().updates == 1
    store.put("task", 1, "bob", b"b")


@pytest.mark.parametrize("payload", ["text", bytearray(b"a"), None])
def test_only_bytes_are_sealed(payload: Any) -> None:
    store = store_of()
    with pytest.raises(TypeError, match=type(payload).__name__):
        store.put("task", 1, "ann", payload)
    assert store.ids() == ()


def test_nobody_is_told_to_come_back_where_nothing_waits_that_could_make_room() -> None:
    backend = backend_of(entries=1)
    backend.set("other", b"o", None)
    with pytest.raises(StoreFull) as full:
        UpdateStore(backend, retry_after=3.0).put("task", 1, "ann", b"a")
    assert full.value.retry_after is None and "retry in" not in str(full.value)


def test_a_backend_that_knows_when_there_is_room_is_quoted() -> None:
    backend = FailingBackend()
    backend.error, backend.fails = StoreFull("full", 9.0), lambda *_: True
    with pytest.raises(StoreFull, match="retry in 9 s") as full:
        UpdateStore(backend, retry_after=1.0).put("task", 1, "ann", b"a")
    assert full.value.retry_after == 9.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 10**400])
def test_a_retry_time_that_means_nothing_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="retry_after"):
        UpdateStore(backend_of(), retry_after=seconds)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("room", [1.5, 1.05])
def test_no_update_is_lost_beside_evictable_entries(policy: str, room: float) -> None:
    """200 clients, a backend that holds `room` of their round, next round's pushes coming before it is consumed."""
    clients, size, rounds = 200, 50, 3
    backend = MemoryBackend(FakeClock(), Limits(clients * 4, int(clients * size * room), 500), policy=policy)
    store = UpdateStore(backend, retry_after=2.0)
    seen = 0
    pushes = deque((number, client) for number in range(rounds) for client in range(clients))
    waiting: deque[tuple[int, int]] = deque()
    for number in range(rounds):
        while pushes or waiting:
            one = (waiting if waiting else pushes).popleft()
            with contextlib.suppress(StoreFull):
                backend.set(f"parameter/{one[1]}", bytes(size), None)
            try:
                store.put("task", one[0], f"client-{one[1]}", _payload(*one, size))
            except StoreFull as full:
                assert full.retry_after == 2.0
                waiting.appendleft(one)
                break
        assert backend.usage().bytes <= clients * size * room
        for client in range(clients):
            seen += store.get("task", number, f"client-{client}") == _payload(number, client, size)
        assert len(store.consume("task", number)) == clients
    assert (seen, store.usage().lost, store.usage().updates) == (clients * rounds, 0, 0)
    assert store.usage().refusals >= rounds - 1 and backend.usage().evictions > 0


def _payload(number: int, client: int, size: int) -> bytes:
    return bytes([number, client]) * (size // 2)


def test_pins_show_their_owner() -> None:
    store = store_of(entries=4)
    assert store.usage() == UpdateUsage()
    store.put("task", 7, "ann", b"aaaa")
    store.put("task", 7, "bob", b"bb")
    store.put("other", 2, "ann", b"c")
    usage = store.usage()
    assert usage.owners == (PinOwner("task", 7, 2, 6), PinOwner("other", 2, 1, 1))
    assert (usage.updates, usage.pinned_bytes) == (3, 7)
    store.consume("task", 7)
    assert store.usage().owners[0] == PinOwner("other", 2, 1, 1)


# --- two threads at once


def test_a_push_that_loses_the_race_against_consume_leaves_nothing_behind() -> None:
    backend = FailingBackend()
    store = UpdateStore(backend, retry_after=1.0)
    backend.once("pin", lambda: store.consume("task", 1))
    must_refuse(store, "round-closed")
    assert backend.usage().entries == 0 and store.ids() == ()


def test_a_read_that_a_push_overtook_is_a_miss_and_not_a_loss() -> None:
    backend = FailingBackend()
    store = UpdateStore(backend, retry_after=1.0)
    backend.once("get", lambda: store.put("task", 1, "ann", b"a"))
    assert store.get("task", 1, "ann") is MISSING
    assert store.get("task", 1, "ann") == b"a"


def test_what_was_sent_again_meanwhile_is_not_taken_for_lost() -> None:
    """Another reader finds the loss, and the client sends again, while a reader is told of it."""

    def meanwhile() -> None:
        with pytest.raises(UpdateLost):
            store.get("task", 1, "ann")
        store.put("task", 1, "ann", b"again")

    backend = FailingBackend()
    store = UpdateStore(backend, retry_after=1.0)
    store.put("task", 1, "ann", b"first")
    backend.delete(ANN.key())
    backend.once("get", meanwhile)
    assert store.get("task", 1, "ann") is MISSING
    assert store.get("task", 1, "ann") == b"again" and store.usage().lost == 1
    must_refuse(store, "repeated")


class _SlowAtFirst(MemoryBackend):
    """Holds the first pin until `go`, and refuses it then where `full`."""

    def __init__(self, *, full: bool) -> None:
        super().__init__(FakeClock(), Limits(10, 100, 100), WhenFull.REFUSE)
        self.waiting, self.go, self.full = threading.Event(), threading.Event(), full

    def pin(self, key: str, value: Value) -> None:
        if not self.waiting.is_set():
            self.waiting.set()
            self.go.wait(60.0)
            if self.full:
                raise StoreFull("no room, for the test")
        super().pin(key, value)


@pytest.mark.parametrize(("full", "said", "kept"), [(True, "StoreFull", b"second"), (False, "PeerFault", b"first")])
def test_a_push_is_repeated_only_where_the_first_one_was_taken(full: bool, said: str, kept: bytes) -> None:
    backend = _SlowAtFirst(full=full)
    store = UpdateStore(backend, retry_after=3.0)
    outcomes: list[str] = []

    def push(payload: bytes) -> None:
        try:
            store.put("task", 1, "ann", payload)
            outcomes.append("taken")
        except (StoreFull, PeerFault) as refusal:
            outcomes.append(type(refusal).__name__)

    first, second = (threading.Thread(target=push, args=(payload,)) for payload in (b"first", b"second"))
    first.start()
    assert backend.waiting.wait(60.0)
    second.start()
    # others' pushes wait for nobody
    others = [UpdateId("task", 1, f"client-{number}") for number in range(200)]
    other = next(one for one in others if store._stripe(one) is not store._stripe(ANN))
    store.put(other.task, other.round, other.client, b"o")
    assert outcomes == []
    backend.go.set()
    first.join(60.0)
    second.join(60.0)
    assert sorted(outcomes) == [said, "taken"] and store.get("task", 1, "ann") == kept
