"""`ParameterStore`: whole versions, old or new, never a mix; unchanged chunks are stored once."""

import hashlib
import threading
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kit.clocks import FakeClock

from fednode.cache import Limits, MemoryBackend, WhenFull
from fednode.cache.backend import Value
from fednode.errors import StoreError
from fednode.protocol.chunks import CHUNK_VALUES, Outline
from fednode.protocol.model import Layout
from fednode.stores import ParameterStore, VersionExpired, parameter_limits
from fednode.stores.parameter_manifest import Floats, travel_digest


def backend_of(total_bytes: int = 1 << 26) -> MemoryBackend:
    return MemoryBackend(FakeClock(), Limits(200, total_bytes, total_bytes), WhenFull.REFUSE)


def one(value: float, size: int = 3) -> dict[str, Floats]:
    return {"w": np.full(size, value)}


ARRAYS = st.dictionaries(
    st.text(min_size=1, max_size=6),
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0), elements=st.floats(-1e300, 1e300))
    | hnp.arrays(np.float32, hnp.array_shapes(max_dims=2), elements=st.floats(-(2.0**99), 2.0**99, width=32)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(ARRAYS)
def test_arrays_come_back_bit_for_bit_in_their_order(arrays: dict[str, Floats]) -> None:
    store = ParameterStore(backend_of(), "model")
    assert store.write({name: np.array(array, order="F") for name, array in arrays.items()}, {}) == 1
    version, found = store.read()
    assert version == 1 and list(found) == list(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
    travelling = store.travelling([stored.id for stored in store.chunks()])
    for name, array in arrays.items():
        with np.errstate(over="ignore"):
            assert b"".join(travelling[s.id].tobytes() for s in store.chunks() if s.chunk.array == name) == (
                array.astype("<f4").tobytes()
            )


def test_a_chunk_that_did_not_change_is_stored_once_and_keeps_its_version() -> None:
    backend = backend_of()
    store = ParameterStore(backend, "model", keep=3)
    large = np.arange(2.5 * CHUNK_VALUES)
    frozen = np.ones(5, dtype=np.float32)
    store.write({"large": large, "frozen": frozen, "same": np.zeros(2)}, {})
    first = {stored.id: stored for stored in store.chunks()}
    assert list(first) == ["large/0", "large/1", "large/2", "frozen/0", "same/0"]
    before = backend.usage().bytes
    large[CHUNK_VALUES + 7] = -0.5
    store.write({"large": large, "frozen": frozen, "same": -np.zeros(2)}, {})
    second = {stored.id: stored.version for stored in store.chunks()}
    # -0.0 is other bytes than 0.0: what is shared is the same to the bit
    assert second == {"large/0": 1, "large/1": 2, "large/2": 1, "frozen/0": 1, "same/0": 2}
    assert backend.usage().bytes - before < 8 * CHUNK_VALUES + 2_000
    assert store.chunks(1) == tuple(first.values())
    assert [store.read(v).arrays["large"][CHUNK_VALUES + 7] for v in (1, 2)] == [CHUNK_VALUES + 7.0, -0.5]
    assert first["large/2"].digest == travel_digest(large[2 * CHUNK_VALUES :])
    assert first["large/2"].sha256 == hashlib.sha256(large[2 * CHUNK_VALUES :].tobytes()).digest()


def test_only_what_is_asked_for_is_read() -> None:
    asked: list[str] = []

    class Watched(MemoryBackend):
        def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
            listed = list(keys)
            asked.extend(listed)
            return super().get_many(listed)

    store = ParameterStore(Watched(FakeClock(), Limits(200, 1 << 26, 1 << 26), WhenFull.REFUSE), "model")
    store.write({"a": np.arange(CHUNK_VALUES + 1.0), "b": np.float32([7])}, {"why": "test"})
    assert store.metadata() == {"why": "test"} and len(store.chunks()) == 3
    assert {*asked} == {"parameters/model/1"}
    assert store.travelling(["a/1"])["a/1"].tolist() == [CHUNK_VALUES]
    assert store.read(names=["b"]).arrays["b"].tolist() == [7.0] and store.read(names=["b"]).vector(["b"]).dtype == "f8"
    assert {*asked} == {"parameters/model/1", "parameters/model/a/1@1", "parameters/model/b/0@1"}
    with pytest.raises(ValueError, match="read-only"):
        store.travelling(["a/1"])["a/1"][0] = 1


def test_an_array_that_changes_its_shape_or_type_is_stored_anew() -> None:
    store = ParameterStore(backend_of(), "model")
    store.write({"w": np.zeros(4)}, {})
    store.write({"w": np.zeros((2, 2))}, {})
    assert store.read().arrays["w"].shape == (2, 2) and store.chunks()[0].version == 1
    store.write({"w": np.zeros((2, 2), dtype=np.float32)}, {})
    assert store.read().arrays["w"].dtype == np.float32 and store.chunks()[0].version == 3


def test_what_was_read_cannot_be_changed_and_does_not_change() -> None:
    store = ParameterStore(backend_of(), "model", keep=1)
    source = {"small": np.ones(4), "large": np.ones(CHUNK_VALUES + 1)}
    store.write(source, {})
    for array in source.values():
        array[:] = 9.0
    read = store.read().arrays
    for name in source:
        with pytest.raises(ValueError, match="read-only"):
            read[name][0] = 5.0
        with pytest.raises(ValueError, match="WRITEABLE"):
            read[name].flags.writeable = True
    store.write(one(0.0), {})
    assert all(set(array.tolist()) == {1.0} for array in read.values())


def _nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("metadata", [{"deep": _nested(14)}, {"text": "x" * 65_400}, {"": [{}, [], None, True, -0.0]}])
def test_metadata_up_to_the_limits_come_back(metadata: dict[str, object]) -> None:
    store = ParameterStore(backend_of(), "model", keep=1)
    store.write(one(1.0), metadata)
    assert store.metadata() == metadata and store.read().arrays["w"][0] == 1.0
    store.write(one(1.0), MappingProxyType({"tuple": (1, 2), **metadata}))
    assert store.metadata() == {"tuple": [1, 2], **metadata}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none() | st.booleans(), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_metadata_that_are_taken_are_read_again_as_they_were(metadata: dict[str, object]) -> None:
    store = ParameterStore(backend_of(), "model", keep=1)
    store.write(one(1.0), {"before": True})
    try:
        store.write(one(2.0), metadata)
    except ValueError:
        assert store.metadata() == {"before": True} and store.read().arrays["w"][0] == 1.0
        return
    assert store.metadata() == metadata and store.read().arrays["w"][0] == 2.0


WRONG: list[tuple[Any, Any]] = [
    ({}, {}),
    ([np.ones(2)], {}),
    ({"w": [1.0, 2.0]}, {}),
    ({3: np.ones(2)}, {}),
    ({"\ud800": np.ones(2)}, {}),
    ({"w": np.ma.array([2.0, 1.0], mask=[1, 0])}, {}),
    ({"fine": np.ones(2), "w": np.array([1.0, np.nan])}, {}),
    ({"w": np.array([np.inf]).view(np.recarray)}, {}),
    ({"w": np.zeros(2, dtype=np.float16)}, {}),
    ({"w": np.zeros(2, dtype=np.int64)}, {}),
    *(
        (one(1.0), metadata)
        for metadata in (
            None,
            {"loss": float("nan")},
            {"when": object()},
            {1: 2},
            {"mixed": {1: 2, "a": 3}},
            {"deep": _nested(15)},
            {"text": "\ud83d\ude00"},
            {"\ud83d\ude00": 1, "\U0001f600": 2},
            {"text": "x" * 65_520},
            {"many": [0] * 40_000},
            {"huge": 10**5_000},
        )
    ),
]


@pytest.mark.parametrize(("arrays", "metadata"), WRONG, ids=map(str, range(len(WRONG))))
def test_what_is_no_write_is_refused_and_leaves_nothing(arrays: Any, metadata: Any) -> None:
    backend = backend_of()
    store = ParameterStore(backend, "model")
    with pytest.raises(ValueError, match=r"parameters|surrogate"):
        store.write(arrays, metadata)
    assert store.versions == () and backend.usage().entries == 0
    assert store.write(one(2.0), {}) == 1 and store.read().arrays["w"][0] == 2.0


def test_what_names_no_store_version_or_array_is_refused() -> None:
    backend = backend_of()
    for keep in (0, 1.5):
        with pytest.raises(ValueError, match="keep"):
            ParameterStore(backend, "model", keep=keep)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bytes"):
        ParameterStore(backend, b"model")  # type: ignore[arg-type]
    store = ParameterStore(backend, "model")
    with pytest.raises(StoreError, match="written yet"):
        store.read()
    store.write({"w": np.ones(2), "b": np.zeros(1)}, {})
    for version in (1.0, "1", True, np.int64(1)):
        for ask in (store.read, store.metadata, store.chunks, lambda v: store.travelling(["w/0"], v)):
            with pytest.raises(TypeError, match="version must be an int"):
                ask(version)  # type: ignore[operator]
    with pytest.raises(TypeError):
        store.read(names=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"write \['w/0'\]"):
        store.travelling("w/0")
    with pytest.raises(ValueError, match="has no array nope; it has w, b"):
        store.read(names=["w", "nope"])
    assert list(store.read(names=(name for name in ("b", "w"))).arrays) == ["w", "b"]
    assert store.read(names=[]).arrays == {}


@pytest.mark.parametrize("key", ["parameters/model/1", "parameters/model/w/0@1"])
def test_damage_in_the_backend_is_found(key: str) -> None:
    backend = backend_of()
    store = ParameterStore(backend, "model")
    store.write(one(1.0), {})
    value = backend.get(key)
    assert isinstance(value, bytes)
    for position in range(0, len(value), 7):
        broken = bytearray(value)
        broken[position] ^= 1
        backend.set(key, bytes(broken), None)
        with pytest.raises(StoreError, match="damaged"):
            store.read()
    for wrong in ("text", None, b"", value[:-1]):
        backend.set(key, wrong, None)
        with pytest.raises(StoreError, match="damaged"):
            store.read()
    store.write(one(0.0), {})
    second = backend.get(key.replace("1", "2"))
    assert isinstance(second, bytes)
    backend.set(key, second, None)
    with pytest.raises(StoreError, match="damaged"):
        store.read(1)
    assert store.read().arrays["w"][0] == 0.0


@pytest.mark.parametrize("key", ["parameters/model/2", "parameters/model/w/0@2"])
def test_a_version_that_the_backend_lost_is_an_error_and_not_an_older_model(key: str) -> None:
    backend = backend_of()
    store = ParameterStore(backend, "model")
    store.write(one(1.0), {})
    store.write(one(0.0), {})
    backend.delete(key)
    with pytest.raises(StoreError, match=f"version 2 .* {key} ") as error:
        store.read()
    assert not isinstance(error.value, VersionExpired)


def test_stores_share_a_backend_with_each_other_and_with_what_may_go() -> None:
    backend = MemoryBackend(FakeClock(), Limits(12, 1 << 16, 1 << 14))
    first, second = ParameterStore(backend, "one"), ParameterStore(backend, "one/1")
    first.write(one(1.0), {})
    second.write(one(0.0), {})
    for number in range(50):
        backend.set(f"other/{number}", bytes(1_000), None)
    assert (first.read().arrays["w"][0], second.read().arrays["w"][0]) == (1.0, 0.0)
    first.clear()
    assert first.versions == () and second.read().arrays["w"][0] == 0.0
    assert first.write(one(3.0), {}) == 2 and first.read().arrays["w"][0] == 3.0


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=8), st.integers(1, 700_000)), min_size=1, max_size=3),
    st.integers(1, 3),
    st.booleans(),
)
def test_the_limits_have_room_for_every_write(sizes: list[tuple[str, int]], keep: int, freeze: bool) -> None:
    named = dict(sizes)
    layout = Layout(tuple(named), tuple((size,) for size in named.values()))
    frozen = Layout(("\U0001f9ca",), ((300_000,),)) if freeze and "\U0001f9ca" not in named else Layout((), ())
    limits = parameter_limits(Outline(layout, frozen), keep)
    store = ParameterStore(MemoryBackend(FakeClock(), limits, WhenFull.REFUSE), "model", keep)
    still: dict[str, Floats] = {
        name: np.zeros(shape, np.float32) for name, shape in zip(frozen.names, frozen.shapes, strict=True)
    }
    for number in range(keep + 2):
        moving = {name: np.full(size, float(number)) for name, size in named.items()}
        store.write(moving | still, {"round": number})
    assert len(store.versions) == keep


class _WrittenMeanwhile(MemoryBackend):
    """Lets a writer overtake a reader, and the version expire, between the reader's choice of it and its read."""

    store: ParameterStore
    clock = FakeClock()
    overtakes = 2

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        if self.overtakes:
            self.overtakes -= 1
            self.store.write(one(float(self.overtakes), 2), {})
            self.clock.sleep(100.0)
        return super().get_many(keys)


def test_a_reader_of_the_newest_that_was_overtaken_looks_again() -> None:
    backend = _WrittenMeanwhile(_WrittenMeanwhile.clock, Limits(10, 1 << 16, 1 << 16), WhenFull.REFUSE)
    backend.store = ParameterStore(backend, "model", keep=1)
    backend.store.write(one(9.0, 2), {})
    version, arrays = backend.store.read()
    assert (version, arrays["w"].tolist()) == (3, [0.0, 0.0])


def test_readers_never_see_a_mix_while_a_writer_writes() -> None:
    store = ParameterStore(backend_of(), "model", keep=1)
    names = ("a", "b", "c")
    store.write({name: np.full(50, 1.0) for name in names}, {})
    mixed: list[object] = []
    done = threading.Event()

    def read() -> None:
        last = 0
        while not done.is_set():
            version, arrays = store.read()
            values = {float(value) for array in arrays.values() for value in np.unique(array)}
            if values != {float(version)} or version < last:
                mixed.append((version, values))
            last = version

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(2, 100):
        store.write({name: np.full(50, float(number)) for name in names}, {})
    done.set()
    for reader in readers:
        reader.join()
    assert mixed == []
    assert store.read().version == 99
