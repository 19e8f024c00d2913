"""`ParameterStore` over a backend where an earlier store left versions."""

from pathlib import Path

import numpy as np
import pytest
from kit.clocks import FakeClock

from fednode import wire
from fednode.cache import FileBackend, Limits, MemoryBackend, WhenFull
from fednode.errors import StoreError
from fednode.stores import ParameterStore
from fednode.stores.parameter_manifest import Floats


def one(value: float) -> dict[str, Floats]:
    return {"w": np.full(3, value)}


def test_a_store_made_anew_has_the_versions_that_are_whole_and_frees_the_rest(tmp_path: Path) -> None:
    room = Limits(12, 1 << 20, 1 << 16)
    with FileBackend(tmp_path, FakeClock(), room, WhenFull.REFUSE) as backend:
        store = ParameterStore(backend, "model", keep=2)
        for number in range(3):
            store.write({"w": np.full(3, float(number)), "kept": np.ones(2)}, {"number": number})
        # as if the process had been killed in the middle of the fourth write
        backend.pin("parameters/model/w/0@4", b"half written")
        backend.pin("parameters/model/what", b"not the store's")
        ParameterStore(backend, "model/x").write(one(7.0), {})
    clock = FakeClock()
    with FileBackend(tmp_path, clock, room, WhenFull.REFUSE) as backend:
        before = sorted(backend.keys())
        again = ParameterStore(backend, "model", keep=2)
        assert again.versions == (2, 3) and again.metadata() == {"number": 2}
        assert [again.read(version).arrays["w"][0] for version in (2, 3)] == [1.0, 2.0]
        # to look is not to change
        assert sorted(backend.keys()) == before
        assert again.write({"w": np.full(3, 9.0), "kept": np.ones(2)}, {}) == 5
        assert {stored.id: stored.version for stored in again.chunks()} == {"w/0": 5, "kept/0": 1}
        clock.sleep(100.0)
        assert sorted(backend.keys("parameters/model/")) == [
            "parameters/model/3",
            "parameters/model/5",
            "parameters/model/kept/0@1",
            "parameters/model/w/0@3",
            "parameters/model/w/0@5",
            "parameters/model/what",
        ]
        again.clear()
        assert ParameterStore(backend, "model").versions == ()
        assert ParameterStore(backend, "model/x").read().arrays["w"][0] == 7.0


@pytest.mark.parametrize("harm", ["manifest cut", "manifest gone", "chunk gone", "forged"])
def test_a_version_that_is_not_whole_is_none_for_a_store_made_anew(harm: str) -> None:
    backend = MemoryBackend(FakeClock(), Limits(200, 1 << 20, 1 << 16), WhenFull.REFUSE)
    store = ParameterStore(backend, "model")
    store.write(one(1.0), {})
    store.write(one(2.0), {})
    if harm == "manifest cut":
        backend.pin("parameters/model/2", bytes(backend.get("parameters/model/2"))[:-1])  # type: ignore[arg-type]
    elif harm == "forged":
        backend.pin("parameters/model/2", wire.pack("parameters", {"version": 2, "metadata": {}}, b'{"arrays": [5]}'))
        with pytest.raises(StoreError, match="not what was written"):
            store.read()
    else:
        backend.delete("parameters/model/2" if harm == "manifest gone" else "parameters/model/w/0@2")
    again = ParameterStore(backend, "model")
    assert again.versions == (1,) and again.read().arrays["w"][0] == 1.0
    assert again.write(one(3.0), {}) == 3 and again.versions == (1, 3)
    assert backend.usage().entries == 4
