"""Every knob of `fednode cache tune` in a default run changes what the run's caches do."""

import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from kit.clocks import FakeClock
from kit.smallrun import small_settings

from fednode.assemble.planning import Plan, plan_run
from fednode.assemble.stores import PinnedStore, Stores, open_stores
from fednode.cache import MISSING, StillLoading, StoreFull, TooLarge


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return plan_run(small_settings(tmp_path_factory.mktemp("plan"), staleness=2))


class Tuned:
    """The stores of a run that has just begun, and what `fednode cache tune` does to them."""

    def __init__(self, stores: Stores, clock: FakeClock) -> None:
        self.stores, self.clock, self.numbers = stores, clock, count()
        self.cache = stores.downloads.cache

    def tune(self, store: str, name: str, value: float) -> None:
        (knob,) = [one for one in self.stores.views()[store].knobs() if one.name == name]
        knob.turn(value)

    def load(self, key: str, value: object = b"v", ttl: float | None = None) -> bool:
        """Ask for `key`; whether it had to be loaded."""
        before = self.cache.counts().loads
        self.cache.get_or_load(key, lambda: value, ttl)
        return self.cache.counts().loads > before

    def there(self, keys: str) -> list[bool]:
        return [self.cache.get(key) is not MISSING for key in keys]


def filled(store: PinnedStore, value: bytes, numbers: "count[int]") -> int:
    """Pin until there is no room; how many fitted."""
    for pinned in range(10_000):
        try:
            store.cache.pin(f"pin {next(numbers)}", value)
        except StoreFull:
            return pinned
    raise AssertionError("it is never full")


def entries(tuned: Tuned, name: str) -> None:
    store = getattr(tuned.stores, name)
    assert filled(store, b"", tuned.numbers) == store.least.entries
    tuned.tune(name, "entries", store.least.entries + 3)
    assert filled(store, b"", tuned.numbers) == 3


def total_bytes(tuned: Tuned, name: str) -> None:
    store = getattr(tuned.stores, name)
    tuned.tune(name, "entries", 1_000)
    most = store.least.value_bytes
    assert filled(store, bytes(most), tuned.numbers) == store.least.total_bytes // most
    tuned.tune(name, "total_bytes", store.least.total_bytes + 2 * most)
    assert filled(store, bytes(most), tuned.numbers) == 2


def value_bytes(tuned: Tuned, name: str) -> None:
    store = getattr(tuned.stores, name)
    value = bytes(store.least.value_bytes + 1)
    with pytest.raises(TooLarge):
        store.cache.pin("key", value)
    tuned.tune(name, "value_bytes", len(value))
    store.cache.pin("key", value)


def staleness(tuned: Tuned) -> None:
    assert tuned.stores.coherence.staleness == 2
    tuned.tune("parameters", "staleness", 1)
    # what the node reads before each round
    assert tuned.stores.coherence.staleness == 1


def jitter(tuned: Tuned) -> None:
    for value, alive in ((0.0, {True}), (0.5, {True, False})):
        tuned.tune("downloads", "jitter", value)
        keys = [f"{value} {number}" for number in range(60)]
        for key in keys:
            tuned.load(key, ttl=100.0)
        tuned.clock.sleep(99.0)
        assert {tuned.cache.get(key) is not MISSING for key in keys} == alive


def negative_ttl(tuned: Tuned) -> None:
    assert (tuned.load("k", MISSING), tuned.load("k", MISSING)) == (True, False)
    tuned.tune("downloads", "negative_ttl", 0.0)
    tuned.clock.sleep(10.0)
    assert (tuned.load("k", MISSING), tuned.load("k", MISSING)) == (True, True)


def negative_entries(tuned: Tuned) -> None:
    tuned.tune("downloads", "negative_entries", 1)
    assert [tuned.load(key, MISSING) for key in ("k", "l", "l", "k")] == [True, True, False, True]


def wait(tuned: Tuned) -> None:
    began, go = threading.Event(), threading.Event()

    def slow() -> bytes:
        began.set()
        assert go.wait(20)
        return b"v"

    leader = threading.Thread(target=lambda: tuned.cache.get_or_load("k", slow, None))
    leader.start()
    assert began.wait(20)
    tuned.tune("downloads", "wait", 0.01)
    with pytest.raises(StillLoading):
        tuned.load("k")
    go.set()
    leader.join()


def download_entries(tuned: Tuned) -> None:
    tuned.tune("downloads", "entries", 2)
    for key in "abc":
        tuned.load(key)
    assert sum(tuned.there("abc")) == 2 and tuned.stores.memory.usage().evictions == 1


def download_bytes(tuned: Tuned) -> None:
    tuned.tune("downloads", "value_bytes", 1_000)
    tuned.tune("downloads", "total_bytes", 2_500)
    for key in "abc":
        tuned.load(key, bytes(1_000))
    assert sum(tuned.there("abc")) == 2


def download_value_bytes(tuned: Tuned) -> None:
    assert (tuned.load("a", bytes(2_000)), tuned.load("a", bytes(2_000))) == (True, False)
    tuned.tune("downloads", "value_bytes", 1_000)
    # the clients get it all the same: each time it is loaded
    assert [tuned.load("b", bytes(2_000)) for _ in range(2)] == [True, True]


def eviction_batch(tuned: Tuned) -> None:
    tuned.tune("downloads", "entries", 3)
    # one entry drawn at random goes, whichever it is; or the least useful of all, which is never the one read often
    for batch, kept in ((1, {True, False}), (16, {True})):
        tuned.tune("downloads", "eviction_batch", batch)
        found = set()
        for _ in range(60):
            tuned.cache.clear()
            tuned.load("a")
            for _ in range(9):
                tuned.cache.get("a")
            for key in "bc":
                tuned.load(key)
            tuned.clock.sleep(1.0)
            tuned.load("d")
            found |= set(tuned.there("a"))
        assert found == kept


KNOBS: dict[tuple[str, str], Callable[[Tuned], None]] = {
    ("updates", "entries"): lambda tuned: entries(tuned, "updates"),
    ("updates", "total_bytes"): lambda tuned: total_bytes(tuned, "updates"),
    ("updates", "value_bytes"): lambda tuned: value_bytes(tuned, "updates"),
    ("parameters", "entries"): lambda tuned: entries(tuned, "parameters"),
    ("parameters", "total_bytes"): lambda tuned: total_bytes(tuned, "parameters"),
    ("parameters", "value_bytes"): lambda tuned: value_bytes(tuned, "parameters"),
    ("parameters", "staleness"): staleness,
    ("downloads", "jitter"): jitter,
    ("downloads", "negative_ttl"): negative_ttl,
    ("downloads", "negative_entries"): negative_entries,
    ("downloads", "wait"): wait,
    ("downloads", "entries"): download_entries,
    ("downloads", "total_bytes"): download_bytes,
    ("downloads", "value_bytes"): download_value_bytes,
    ("downloads", "eviction_batch"): eviction_batch,
}


def test_these_are_all_the_knobs(plan: Plan, tmp_path: Path) -> None:
    with open_stores(plan, "run", tmp_path, FakeClock()) as stores:
        views = stores.views()
    assert {(store, knob.name) for store, view in views.items() for knob in view.knobs()} == KNOBS.keys()


@pytest.mark.parametrize("knob", KNOBS, ids=".".join)
def test_a_knob_changes_something(knob: tuple[str, str], plan: Plan, tmp_path: Path) -> None:
    clock, check_effect = FakeClock(), KNOBS[knob]
    with open_stores(plan, "run", tmp_path, clock) as stores:
        check_effect(Tuned(stores, clock))
