"""`ParameterStore`: what an earlier store left, what a call left that was broken off, and what a forked child finds."""

from pathlib import Path

import numpy as np
import pytest
from kit.cache.interrupts import after_every_depth, after_every_interrupt, locks_of, nothing_held
from kit.children import held_elsewhere, in_a_child
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
    with FileBackend(tmp_path, FakeClock(), room, WhenFull.REFUSE) as backend:
        before = sorted(backend.keys())
        again = ParameterStore(backend, "model", keep=2)
        assert again.versions == (2, 3) and again.metadata() == {"number": 2}
        assert [again.read(version).arrays["w"][0] for version in (2, 3)] == [1.0, 2.0]
        # to look is not to change
        assert sorted(backend.keys()) == before
        assert again.write({"w": np.full(3, 9.0), "kept": np.ones(2)}, {}) == 5
        assert {stored.id: stored.version for stored in again.chunks()} == {"w/0": 5, "kept/0": 1}
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
        with pytest.raises(StoreError, match="arrays do not parse"):
            store.read()
    else:
        backend.delete("parameters/model/2" if harm == "manifest gone" else "parameters/model/w/0@2")
    again = ParameterStore(backend, "model")
    assert again.versions == (1,) and again.read().arrays["w"][0] == 1.0
    assert again.write(one(3.0), {}) == 3 and again.versions == (1, 3)
    assert backend.usage().entries == 4


# --- broken off


def _written(keep: int = 2) -> tuple[MemoryBackend, ParameterStore]:
    backend = MemoryBackend(FakeClock(), Limits(200, 1 << 20, 1 << 16), WhenFull.REFUSE)
    store = ParameterStore(backend, "model", keep)
    for number in range(2):
        store.write({"w": np.full(2, float(number)), "kept": np.ones(2)}, {"number": number})
    return backend, store


def _write_third(world: tuple[MemoryBackend, ParameterStore]) -> None:
    world[1].write({"w": np.full(2, 2.0), "kept": np.ones(2)}, {"number": 2})


def check_whole_and_free(world: tuple[MemoryBackend, ParameterStore]) -> None:
    backend, store = world
    nothing_held(store)
    for version in store.versions:
        assert store.read(version).arrays["w"].tolist() == [version - 1.0] * 2
        assert store.metadata(version) == {"number": version - 1}
    last = store.versions[-1] if store.versions else 0
    # under other names: nothing that was left is written over
    assert store.write({"fresh": np.full(2, 9.0)}, {}) >= last + 1
    needed = {f"parameters/model/{version}" for version in store.versions}
    needed |= {f"parameters/model/{one.id}@{one.version}" for v in store.versions for one in store.chunks(v)}
    assert set(backend.keys()) == needed and backend.usage().pinned_entries == len(needed)


@pytest.mark.parametrize("keep", [1, 2])
def test_a_write_that_is_interrupted_is_whole_or_none_and_leaves_nothing(keep: int) -> None:
    seen = set()
    for world in after_every_interrupt(lambda: _written(keep), _write_third):
        seen.add(world[1].versions)
        check_whole_and_free(world)
    assert seen == ({(2,), (3,)} if keep == 1 else {(1, 2), (2, 3)})


def test_a_clear_that_is_interrupted_leaves_nothing_that_the_next_write_does_not_free() -> None:
    for world in after_every_interrupt(_written, lambda world: world[1].clear()):
        assert world[1].versions in ((), (1, 2))
        check_whole_and_free(world)


def test_without_room_on_the_stack_nothing_is_taken_for_damaged() -> None:
    for world in after_every_depth(_written, _write_third):
        check_whole_and_free(world)
    backend, _ = _written()
    made: list[ParameterStore] = []
    for _ in after_every_depth(lambda: None, lambda _: made.append(ParameterStore(backend, "model"))):
        pass
    assert len(made) >= 1 and all(store.versions == (1, 2) for store in made)
    for _ in after_every_depth(lambda: None, lambda _: made[0].read()):
        pass


def test_a_child_writes_where_a_thread_of_its_parent_was_writing() -> None:
    _, store = _written()

    def look() -> list[object]:
        written = store.write({"w": np.full(2, 9.0), "kept": np.ones(2)}, {})
        return [written, list(store.versions), store.read().arrays["w"].tolist()]

    with held_elsewhere(*locks_of(store)):
        assert in_a_child(look) == [3, [2, 3], [9.0, 9.0]]
    check_whole_and_free((store._backend, store))  # type: ignore[arg-type]
