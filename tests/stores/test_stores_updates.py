"""`UpdateStore`: pinned until consumed, refused when full, accepted once."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from kit.clocks import FakeClock

from fednode.cache import MISSING, Limits, MemoryBackend, Missing, StoreFull, TooLarge, WhenFull
from fednode.cache.backend import PinLost, Value
from fednode.cache.memory.policies import POLICIES
from fednode.errors import PeerFault, StoreError
from fednode.stores import PinOwner, UpdateId, UpdateLost, UpdateStore, UpdateUsage


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


class _NamesItsLosses(MemoryBackend):
    """As a server's client does: what was pinned and is gone is no miss."""

    def get(self, key: str) -> Value | Missing:
        value = super().get(key)
        if value is MISSING:
            raise PinLost(key)
        return value


@pytest.mark.parametrize("kind", [MemoryBackend, _NamesItsLosses])
def test_a_backend_that_loses_an_update_is_found_out(kind: type[MemoryBackend]) -> None:
    careless = kind(FakeClock(), Limits(10, 100, 10))
    store = UpdateStore(careless, retry_after=1.0)
    store.put("task", 1, "ann", b"a")
    careless.delete(UpdateId("task", 1, "ann").key())
    for _ in range(2):
        with pytest.raises(UpdateLost, match=r"the update of ann in round 1 .* gone from") as lost:
            store.get("task", 1, "ann")
        assert lost.value.update == UpdateId("task", 1, "ann")
    assert store.usage().lost == 1
    assert store.get("task", 1, "bob") is MISSING


def test_bytes_that_came_out_as_something_else_are_lost() -> None:
    careless = backend_of()
    store = UpdateStore(careless, retry_after=1.0)
    store.put("task", 1, "ann", b"a")
    careless.set(UpdateId("task", 1, "ann").key(), "a", None)
    with pytest.raises(UpdateLost, match=r"ann .* is damaged in this process's memory"):
        store.get("task", 1, "ann")


def test_the_sentence_of_a_loss_on_a_server_names_it_and_what_keeps_pins() -> None:
    class Broken(MemoryBackend):
        def get(self, key: str) -> Value | Missing:
            raise PinLost(key, "the cache server host:1", damaged=True)

    store = UpdateStore(Broken(FakeClock(), Limits(10, 100, 10)), retry_after=1.0)
    store.put("task", 3, "client-1/boxes", b"a")
    with pytest.raises(UpdateLost) as lost:
        store.get("task", 3, "client-1/boxes")
    assert str(lost.value) == (
        "the boxes of client-1 in round 3 of task were stored and are damaged on the cache server host:1; set its "
        "maxmemory-policy to noeviction, let it persist to its disk (appendonly yes), and see who else writes there"
    )
    store.put("task", 3, "client-2/boxes", b"a")
    with pytest.raises(PeerFault, match="the boxes of client-2 in round 3 came before"):
        store.put("task", 3, "client-2/boxes", b"a")


@pytest.mark.parametrize("how", ["gone", "damaged", "named"])
def test_a_lost_update_may_be_sent_again(how: str) -> None:
    careless = (_NamesItsLosses if how == "named" else MemoryBackend)(FakeClock(), Limits(10, 100, 10))
    store = UpdateStore(careless, retry_after=1.0)
    key = UpdateId("task", 1, "ann").key()
    for turn in range(3):
        store.put("task", 1, "ann", b"%d" % turn)
        assert store.get("task", 1, "ann") == b"%d" % turn
        # nobody has asked yet, so nobody knows of the loss
        with pytest.raises(PeerFault, match="came before"):
            store.put("task", 1, "ann", b"again")
        if how == "damaged":
            careless.pin(key, "no bytes")
        else:
            careless.delete(key)
        for _ in range(2):
            with pytest.raises(UpdateLost):
                store.get("task", 1, "ann")
    assert (store.usage().lost, store.usage().updates) == (3, 1)
    # a push that is refused changes nothing: lost it stays, and its round's consumption frees what is left
    with pytest.raises(TooLarge):
        store.put("task", 1, "ann", bytes(11))
    with pytest.raises(UpdateLost):
        store.get("task", 1, "ann")
    store.put("task", 1, "ann", b"last")
    assert store.consume("task", 1) == (UpdateId("task", 1, "ann"),)
    assert careless.usage().entries == 0 and store.usage() == UpdateUsage(lost=3)


class _SentAgainMeanwhile(MemoryBackend):
    """Lets another reader find the loss, and the client send again, while a reader is told of it."""

    store: UpdateStore
    armed = False

    def get(self, key: str) -> Value | Missing:
        value = super().get(key)
        if self.armed:
            self.armed = False
            with pytest.raises(UpdateLost):
                self.store.get("task", 1, "ann")
            self.store.put("task", 1, "ann", b"again")
        return value


def test_what_was_sent_again_meanwhile_is_not_taken_for_lost() -> None:
    backend = _SentAgainMeanwhile(FakeClock(), Limits(10, 100, 100), WhenFull.REFUSE)
    store = backend.store = UpdateStore(backend, retry_after=1.0)
    store.put("task", 1, "ann", b"first")
    backend.delete(UpdateId("task", 1, "ann").key())
    backend.armed = True
    assert store.get("task", 1, "ann") is MISSING
    assert store.get("task", 1, "ann") == b"again" and store.usage().lost == 1
    with pytest.raises(PeerFault, match="came before"):
        store.put("task", 1, "ann", b"third")


@pytest.mark.parametrize(
    ("update", "error"),
    [
        (("task", "1", "ann"), TypeError),
        (("task", 1.0, "ann"), TypeError),
        (("task", True, "ann"), TypeError),
        (("task", None, "ann"), TypeError),
        ((b"task", 1, "ann"), TypeError),
        (("task", 1, b"ann"), TypeError),
        (("task", 1, None), TypeError),
        (("ta\ud800sk", 1, "ann"), ValueError),
        (("task", 1, "\udfff"), ValueError),
    ],
)
def test_what_names_no_update_is_refused_by_every_call(update: Any, error: type[Exception]) -> None:
    store = store_of()
    store.put("task", 1, "ann", b"a")
    calls: list[Callable[[], object]] = [
        lambda: store.put(*update, b"B"),
        lambda: store.get(*update),
        lambda: store.withdraw(*update),
    ]
    if update[2] == "ann":
        calls.append(lambda: store.consume(*update[:2]))
    for call in calls:
        with pytest.raises(error, match=r"means nothing|lone surrogate"):
            call()
    assert store.get("task", 1, "ann") == b"a" and store.usage().updates == 1
    store.put("task", 1, "bob", b"b")


@pytest.mark.parametrize("payload", ["text", bytearray(b"a"), memoryview(b"a"), None])
def test_only_bytes_are_sealed(payload: object) -> None:
    store = store_of()
    with pytest.raises(TypeError, match=type(payload).__name__):
        store.put("task", 1, "ann", payload)  # type: ignore[arg-type]
    assert store.ids() == ()


def test_rounds_older_than_a_consumed_one_of_the_task_are_closed() -> None:
    store = store_of()
    store.put("task", 4, "ann", b"waits")
    store.consume("task", 5)
    for number in (3, 4, 5):
        with pytest.raises(PeerFault, match="round-closed"):
            store.put("task", number, "bob", b"late")
    store.put("task", 6, "bob", b"b")
    store.put("other", 3, "bob", b"o")
    assert store.get("task", 4, "ann") == b"waits" and store.consume("task", 4) == (UpdateId("task", 4, "ann"),)
    with pytest.raises(PeerFault, match="round-closed"):
        store.put("task", 5, "ann", b"late")


def test_nobody_is_told_to_come_back_where_nothing_waits_that_could_make_room() -> None:
    backend = backend_of(entries=1)
    backend.set("other", b"o", None)
    with pytest.raises(StoreFull, match="no room") as full:
        UpdateStore(backend, retry_after=3.0).put("task", 1, "ann", b"a")
    assert full.value.retry_after is None and "retry in" not in str(full.value)


# --- with others in one backend


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
    assert store.usage() == UpdateUsage() and store.usage().oldest is None
    store.put("task", 7, "ann", b"aaaa")
    store.put("task", 7, "bob", b"bb")
    store.put("other", 2, "ann", b"c")
    usage = store.usage()
    assert usage.owners == (PinOwner("task", 7, 2, 6), PinOwner("other", 2, 1, 1))
    assert (usage.updates, usage.pinned_bytes, usage.oldest) == (3, 7, PinOwner("task", 7, 2, 6))
    store.consume("task", 7)
    assert store.usage().oldest == PinOwner("other", 2, 1, 1)


class _Stuck(MemoryBackend):
    """A server that is away while something is deleted."""

    away = True

    def delete(self, key: str) -> bool:
        if self.away:
            raise StoreError("the server is away")
        return super().delete(key)


def test_what_could_not_be_deleted_is_still_shown_and_goes_later() -> None:
    backend = _Stuck(FakeClock(), Limits(1, 100, 100), WhenFull.REFUSE)
    store = UpdateStore(backend, retry_after=1.0)
    store.put("task", 1, "ann", b"a")
    assert store.consume("task", 1) == (UpdateId("task", 1, "ann"),)
    assert store.ids() == () and store.usage().pinned_bytes == 1
    with pytest.raises(PeerFault, match="round-closed"):
        store.put("task", 1, "ann", b"again")
    with pytest.raises(StoreFull):
        store.put("task", 2, "ann", b"b")
    backend.away = False
    store.put("task", 2, "ann", b"b")
    assert store.usage().owners == (PinOwner("task", 2, 1, 1),)


def test_a_backend_that_knows_when_there_is_room_is_quoted() -> None:
    class Knowing(MemoryBackend):
        def pin(self, key: str, value: Value) -> None:
            raise StoreFull("full", 9.0)

    with pytest.raises(StoreFull, match="retry in 9 s") as full:
        UpdateStore(Knowing(FakeClock(), Limits(1, 10, 10)), retry_after=1.0).put("task", 1, "ann", b"a")
    assert full.value.retry_after == 9.0


class _ConsumedMeanwhile(MemoryBackend):
    """Closes the round while a push is on its way into the backend."""

    store: UpdateStore

    def pin(self, key: str, value: Value) -> None:
        super().pin(key, value)
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

    def get(self, key: str) -> Value | Missing:
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


class _FullAtFirst(MemoryBackend):
    """Holds the first pin until it is told, and refuses it then."""

    def __init__(self) -> None:
        super().__init__(FakeClock(), Limits(10, 100, 100), WhenFull.REFUSE)
        self.waiting, self.go, self.pins = threading.Event(), threading.Event(), 0

    def pin(self, key: str, value: Value) -> None:
        self.pins += 1
        if self.pins == 1:
            self.waiting.set()
            self.go.wait(60.0)
            raise StoreFull("no room, for the test")
        super().pin(key, value)


def test_a_push_is_repeated_only_where_the_first_one_was_taken() -> None:
    backend = _FullAtFirst()
    store = UpdateStore(backend, retry_after=3.0)
    outcomes: list[str] = []

    def push(payload: bytes) -> None:
        try:
            store.put("task", 1, "ann", payload)
            outcomes.append("taken")
        except (StoreFull, PeerFault) as refusal:
            outcomes.append(type(refusal).__name__)

    first = threading.Thread(target=push, args=(b"first",))
    first.start()
    assert backend.waiting.wait(60.0)
    second = threading.Thread(target=push, args=(b"second",))
    second.start()
    # others' pushes wait for nobody
    others = [UpdateId("task", 1, f"client-{number}") for number in range(200)]
    other = next(one for one in others if store._stripe(one) is not store._stripe(UpdateId("task", 1, "ann")))
    store.put(other.task, other.round, other.client, b"o")
    assert outcomes == []
    backend.go.set()
    first.join(60.0)
    second.join(60.0)
    assert sorted(outcomes) == ["StoreFull", "taken"] and store.get("task", 1, "ann") == b"second"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 10**400])
def test_a_retry_time_that_means_nothing_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="retry_after"):
        UpdateStore(backend_of(), retry_after=seconds)
