"""The stores over a backend that is away: what they cost, what they answer, and what they free once it is back."""

from collections.abc import Callable

import numpy as np
import pytest
from kit.cache.failing import FailingBackend

from fednode.cache import MISSING, Limits, StoreFull
from fednode.errors import PeerFault, StoreError
from fednode.stores import ParameterStore, PinOwner, UpdateId, UpdateStore


def cost(backend: FailingBackend, call: Callable[[], object]) -> int:
    """How many calls of the backend failed until this one gave up."""
    before = backend.failed
    with pytest.raises(StoreError):
        call()
    return backend.failed - before


def many(value: float) -> dict[str, np.ndarray]:
    return {f"w{number}": np.full(3, value + number) for number in range(60)}


def test_a_push_costs_the_same_however_many_failed_before_it() -> None:
    backend = FailingBackend()
    store = UpdateStore(backend, retry_after=1.0)
    backend.fails = lambda *_: True
    costs = [cost(backend, lambda n=n: store.put("t", 1, f"c{n}", b"x")) for n in range(40)]  # type: ignore[misc]
    assert max(costs) <= 4
    backend.fails = lambda *_: False
    store.put("t", 1, "last", b"x")
    assert list(backend.keys()) == ["update/t/1/last"]


def test_consuming_costs_the_same_however_much_there_is_to_delete() -> None:
    backend = FailingBackend()
    store = UpdateStore(backend, retry_after=1.0)
    for number in range(40):
        store.put("t", 1, f"c{number}", b"x")
    backend.fails = lambda *_: True
    assert len(store.consume("t", 1)) == 40 and backend.failed <= 3
    backend.fails = lambda *_: False
    assert store.consume("t", 1) == () and not list(backend.keys())


def test_a_write_of_parameters_costs_the_same_however_much_there_is_to_free() -> None:
    backend = FailingBackend()
    store = ParameterStore(backend, "m")
    store.write(many(0.0), {})
    before = sorted(backend.keys())
    pins = iter(range(10**6))
    backend.fails = lambda verb, _: verb == "delete" or next(pins) >= 50
    assert max(cost(backend, lambda: store.write(many(1.0), {})) for _ in range(5)) <= 7
    backend.fails = lambda *_: False
    store._free()
    assert sorted(backend.keys()) == before


@pytest.mark.parametrize("stuck", [3, 10])
def test_updates_that_can_never_be_deleted_keep_no_others(stuck: int) -> None:
    backend = FailingBackend()
    store = UpdateStore(backend, retry_after=1.0)
    for number in range(30):
        store.put("t", 1, f"c{number}", b"x")
    kept = {f"update/t/1/c{number}" for number in range(stuck)}
    backend.fails = lambda _, key: key in kept
    for _ in range(10 * stuck):
        store.consume("t", 1)
    assert set(backend.keys()) == kept


@pytest.mark.parametrize("stuck", [3, 10])
def test_parameters_that_can_never_be_deleted_keep_no_others(stuck: int) -> None:
    backend = FailingBackend()
    store = ParameterStore(backend, "m", keep=1)
    store.write(many(0.0), {})
    kept = set(sorted(backend.keys())[:stuck])
    backend.fails = lambda _, key: key in kept
    store.clear()
    for _ in range(10 * stuck):
        store._free()
    assert set(backend.keys()) == kept


def test_consuming_tells_of_no_update_that_was_withdrawn_or_told_of_before() -> None:
    backend = FailingBackend()
    store = UpdateStore(backend, retry_after=1.0)
    for client in ("ann", "bob"):
        store.put("t", 1, client, b"x")
    backend.fails = lambda *_: True
    store.withdraw("t", 1, "ann")
    assert store.ids() == store.consume("t", 1) == (UpdateId("t", 1, "bob"),)
    assert store.consume("t", 1) == ()


def test_what_could_not_be_deleted_is_still_shown_and_goes_later() -> None:
    backend = FailingBackend(Limits(1, 100, 100))
    store = UpdateStore(backend, retry_after=1.0)
    store.put("task", 1, "ann", b"a")
    backend.fails = lambda verb, _: verb == "delete"
    assert store.consume("task", 1) == (UpdateId("task", 1, "ann"),)
    assert store.ids() == () and store.usage().pinned_bytes == 1
    with pytest.raises(PeerFault, match="round-closed"):
        store.put("task", 1, "ann", b"again")
    with pytest.raises(StoreFull):
        store.put("task", 2, "ann", b"b")
    backend.fails = lambda *_: False
    store.put("task", 2, "ann", b"b")
    assert store.usage().owners == (PinOwner("task", 2, 1, 1),)


@pytest.mark.parametrize("withdrawn", [True, False])
def test_what_cannot_be_deleted_yet_is_told_to_come_back_and_not_that_it_came_before(withdrawn: bool) -> None:
    backend = FailingBackend()
    store = UpdateStore(backend, retry_after=3.0)
    if withdrawn:
        store.put("task", 1, "ann", b"first")
    backend.fails = lambda *_: True
    if withdrawn:
        store.withdraw("task", 1, "ann")
    else:
        cost(backend, lambda: store.put("task", 1, "ann", b"first"))
    assert store.ids() == () and store.usage().updates == withdrawn
    with pytest.raises(StoreFull) as full:
        store.put("task", 1, "ann", b"again")
    assert full.value.retry_after == 3.0 and store.usage().refusals == 1
    backend.fails = lambda *_: False
    store.put("task", 1, "ann", b"again")
    assert store.get("task", 1, "ann") == b"again" and store.usage().updates == 1


def test_a_push_whose_fate_nobody_knows_leaves_no_pin_and_may_be_sent_again() -> None:
    """The answer of the server is lost: the value is there, and nobody was told."""

    def lose_the_answer() -> None:
        raise StoreError("no answer")

    backend = FailingBackend(Limits(1, 100, 100))
    store = UpdateStore(backend, retry_after=1.0)
    for client in ("ann", "bob"):
        backend.once("pin", lose_the_answer)
        with pytest.raises(StoreError, match="no answer"):
            store.put("task", 1, client, b"first")
        assert store.ids() == () and store.get("task", 1, "cid") is MISSING
        store.put("task", 1, client, b"again")
        assert store.get("task", 1, client) == b"again"
        store.withdraw("task", 1, client)
    assert list(backend.keys()) == []
