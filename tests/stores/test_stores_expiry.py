"""A superseded version of the model expires, with what was made of it; nothing newer does."""

from pathlib import Path

import numpy as np
import pytest
from kit.clocks import FakeClock

from fednode.cache import FileBackend, Limits, MemoryBackend, WhenFull, nested
from fednode.errors import StoreError
from fednode.protocol.chunks import Outline
from fednode.protocol.model import Layout
from fednode.stores import ParameterStore, VersionExpired, parameter_limits
from fednode.stores.parameter_manifest import Floats


def one(value: float, size: int = 3) -> dict[str, Floats]:
    return {"w": np.full(size, value)}


def test_versions_count_up_and_what_is_superseded_expires() -> None:
    clock = FakeClock()
    backend = MemoryBackend(clock, Limits(200, 1 << 26, 1 << 26), WhenFull.REFUSE)
    store = ParameterStore(backend, "model", keep=2, life=10.0)
    for number in range(5):
        assert store.write(one(float(number)), {"number": number}) == number + 1
        clock.sleep(4.0)
    assert store.versions == (4, 5)
    assert [store.read(version).arrays["w"][0] for version in (4, 5, None)] == [3.0, 4.0, 4.0]
    assert (store.metadata(4), store.metadata()) == ({"number": 3}, {"number": 4})
    # versions 1, 2, 3 were superseded 12, 8 and 4 seconds ago
    assert [store.read(version).arrays["w"][0] for version in (2, 3)] == [1.0, 2.0]
    for version, error in ((1, VersionExpired), (0, StoreError), (6, StoreError)):
        with pytest.raises(error, match=rf"version {version}.* are \[4, 5\]"):
            store.read(version)
    clock.sleep(6.0)
    backend.sweep()
    assert sorted(backend.keys()) == [
        "parameters/model/4",
        "parameters/model/5",
        "parameters/model/w/0@4",
        "parameters/model/w/0@5",
    ]
    assert (backend.usage().pinned_entries, backend.usage().expiries) == (4, 6)
    clock.sleep(1_000.0)
    assert store.read(4).arrays["w"][0] == 3.0


def test_a_write_that_needs_the_room_does_not_wait_for_what_expires(tmp_path: Path) -> None:
    limits = parameter_limits(Outline(Layout(("w",), ((300,),))), keep=1)
    for backend in (
        MemoryBackend(FakeClock(), limits, WhenFull.REFUSE),
        FileBackend(tmp_path, FakeClock(), limits, WhenFull.REFUSE),
    ):
        store = ParameterStore(backend, "model", keep=1, life=1e6)
        for number in range(9):
            store.write(one(float(number), 300), {})
        assert store.read(8).arrays["w"][0] == 7.0 and backend.usage().expiries == 0
        with pytest.raises(VersionExpired):
            store.read(5)


def test_what_is_made_of_a_version_is_made_once_and_expires_with_it() -> None:
    clock = FakeClock()
    loads = nested(MemoryBackend(clock, Limits(100, 1 << 20, 1 << 20)), clock, lambda: 0.5)
    backend = MemoryBackend(clock, Limits(200, 1 << 20, 1 << 20))
    store = ParameterStore(backend, "model", keep=1, life=20.0, loading=loads.cache)
    store.write(one(2.0), {})
    made: list[int] = []

    def doubled(version: int) -> object:
        def make() -> object:
            made.append(version)
            return float(store.read(version).arrays["w"][0] * 2)

        return store.derived("doubled", version, make, 10.0)

    assert [doubled(1) for _ in range(3)] == [4.0] * 3 and made == [1]
    store.write(one(3.0), {})
    # superseded, and both the value and the version live on
    assert (doubled(1), doubled(2), made) == (4.0, 6.0, [1, 2])
    clock.sleep(15.0)
    assert (doubled(1), made) == (4.0, [1, 2, 1])
    clock.sleep(15.0)
    before = loads.cache.counts().loads
    for _ in range(3):
        with pytest.raises(VersionExpired, match="version 1"):
            doubled(1)
    # one load found that the version had gone; the miss was remembered for the other two
    assert made == [1, 2, 1] and loads.cache.counts().loads == before + 1
    plain = ParameterStore(MemoryBackend(FakeClock(), Limits(200, 1 << 20, 1 << 20)), "model")
    plain.write(one(2.0), {})
    assert plain.derived("doubled", 1, lambda: 5, 10.0) == 5
    with pytest.raises(VersionExpired):
        plain.derived("doubled", 2, lambda: 5, 10.0)
