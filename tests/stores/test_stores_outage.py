"""The stores over a backend that is away: what they cost, what they answer, and what they free once it is back."""

from collections.abc import Callable

import numpy as np
import pytest
from kit.clocks import FakeClock

from fednode.cache import Limits, MemoryBackend, StoreFull
from fednode.errors import StoreError
from fednode.stores import ParameterStore, UpdateId, UpdateStore

ROOMY = Limits(10_000, 1 << 24, 1 << 16)


class Failing(MemoryBackend):
    """Fails as `fails` says, by verb and key, and counts how often it did."""

    def __init__(self) -> None:
        super().__init__(FakeClock(), ROOMY, shards=1)
        self.fails: Callable[[str, str], bool] = lambda *_: False
        self.failed = 0

    def _ask(self, verb: str, key: str) -> None:
        if self.fails(verb, key):
            self.failed += 1
            raise StoreError("could not reach the server")

    def pin(self, key: str, value: object) -> None:
        self._ask("pin", key)
        super().pin(key, value)  # type: ignore[arg-type]

    def delete(self, key: str) -> bool:
        self._ask("delete", key)
        return super().delete(key)

    def cost(self, call: Callable[[], object]) -> int:
        before = self.failed
        with pytest.raises(StoreError):
            call()
        return self.failed - before


def many(value: float) -> dict[str, np.ndarray]:
    return {f"w{number}": np.full(3, value + number) for number in range(60)}


def test_a_push_costs_the_same_however_many_failed_before_it() -> None:
    backend = Failing()
    store = UpdateStore(backend, retry_after=1.0)
    backend.fails = lambda *_: True
    costs = [backend.cost(lambda n=n: store.put("t", 1, f"c{n}", b"x")) for n in range(40)]  # type: ignore[misc]
    assert max(costs) <= 4
    backend.fails = lambda *_: False
    store.put("t", 1, "last", b"x")
    assert list(backend.keys()) == ["update/t/1/last"]


def test_consuming_costs_the_same_however_much_there_is_to_delete() -> None:
    backend = Failing()
    store = UpdateStore(backend, retry_after=1.0)
    for number in range(40):
        store.put("t", 1, f"c{number}", b"x")
    backend.fails = lambda *_: True
    assert len(store.consume("t", 1)) == 40 and backend.failed <= 3
    backend.fails = lambda *_: False
    assert store.consume("t", 1) == () and not list(backend.keys())


def test_a_write_of_parameters_costs_the_same_however_much_there_is_to_free() -> None:
    backend = Failing()
    store = ParameterStore(backend, "m")
    store.write(many(0.0), {})
    before = sorted(backend.keys())
    pins = iter(range(10**6))
    backend.fails = lambda verb, _: verb == "delete" or next(pins) >= 50
    assert max(backend.cost(lambda: store.write(many(1.0), {})) for _ in range(5)) <= 7
    backend.fails = lambda *_: False
    store._free()
    assert sorted(backend.keys()) == before


@pytest.mark.parametrize("stuck", [3, 10])
def test_updates_that_can_never_be_deleted_keep_no_others(stuck: int) -> None:
    backend = Failing()
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
    backend = Failing()
    store = ParameterStore(backend, "m", keep=1)
    store.write(many(0.0), {})
    kept = set(sorted(backend.keys())[:stuck])
    backend.fails = lambda _, key: key in kept
    store.clear()
    for _ in range(10 * stuck):
        store._free()
    assert set(backend.keys()) == kept


def test_consuming_tells_of_no_update_that_was_withdrawn_or_told_of_before() -> None:
    backend = Failing()
    store = UpdateStore(backend, retry_after=1.0)
    for client in ("ann", "bob"):
        store.put("t", 1, client, b"x")
    backend.fails = lambda *_: True
    store.withdraw("t", 1, "ann")
    assert store.ids() == store.consume("t", 1) == (UpdateId("t", 1, "bob"),)
    assert store.consume("t", 1) == ()


@pytest.mark.parametrize("withdrawn", [True, False])
def test_a_push_that_cannot_come_in_yet_is_told_why(withdrawn: bool) -> None:
    backend = Failing()
    store = UpdateStore(backend, retry_after=1.0)
    if withdrawn:
        store.put("t", 1, "ann", b"x")
    backend.fails = lambda *_: True
    if withdrawn:
        store.withdraw("t", 1, "ann")
    else:
        backend.cost(lambda: store.put("t", 1, "ann", b"x"))
    with pytest.raises(StoreFull, match="retry in 1 s"):
        store.put("t", 1, "ann", b"x")
