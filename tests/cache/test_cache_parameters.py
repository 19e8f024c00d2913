"""`ParameterStore`: whole versions, old or new, never a mix."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kit.clocks import FakeClock

from fednode.cache import Limits, MemoryBackend, Missing, ParameterStore, StoreFull, WhenFull, parameter_digest
from fednode.errors import StoreError


def backend_of(total_bytes: int = 1 << 20) -> MemoryBackend:
    return MemoryBackend(FakeClock(), Limits(100, total_bytes, total_bytes), WhenFull.REFUSE)


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0), elements=st.floats(-1e300, 1e300)))
def test_a_vector_comes_back_bit_for_bit(vector: np.ndarray) -> None:
    store = ParameterStore(backend_of(), "model")
    version, read, digest = (store.write(vector, {}), *store.read()[1:])
    assert (version, read.shape, read.tobytes()) == (1, vector.shape, vector.tobytes())
    assert digest == parameter_digest(vector) == parameter_digest(np.asfortranarray(vector))


def test_the_digest_tells_shapes_and_signs_of_zero_apart() -> None:
    vectors = [np.zeros(4), np.zeros((2, 2)), np.zeros(3), -np.zeros(4)]
    assert len({parameter_digest(vector) for vector in vectors}) == 4
    assert len(parameter_digest(vectors[0])) == 32


def test_the_digest_is_the_one_that_was_published() -> None:
    assert (
        parameter_digest(np.array([1.0, -2.5])).hex()
        == "49d984943beff508ac843fecd7362fa926f82f25a17de8d3dc76b44da786d569"
    )


def test_versions_count_up_and_only_the_last_are_kept() -> None:
    backend = backend_of()
    store = ParameterStore(backend, "model", keep=2)
    for number in range(5):
        assert store.write(np.full(3, float(number)), {"number": number}) == number + 1
    assert store.versions == (4, 5)
    assert [store.read(version).vector[0] for version in (4, 5, None)] == [3.0, 4.0, 4.0]
    assert (store.metadata(4), store.metadata()) == ({"number": 3}, {"number": 4})
    assert backend.usage().entries == 2
    with pytest.raises(StoreError, match=r"version 3 .* held are \[4, 5\]"):
        store.read(3)


def test_what_was_read_cannot_be_changed_and_does_not_change() -> None:
    store = ParameterStore(backend_of(), "model", keep=1)
    source = np.ones(4)
    store.write(source, {})
    source[:] = 9.0
    read = store.read().vector
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 5.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        read.flags.writeable = True
    store.write(np.zeros(4), {})
    assert read.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    "vector", [np.array([1.0, np.nan]), np.array([np.inf]), np.zeros(2, dtype=np.float32), np.zeros(2, dtype=np.int64)]
)
def test_what_is_no_parameter_vector_is_refused(vector: np.ndarray) -> None:
    store = ParameterStore(backend_of(), "model")
    with pytest.raises(ValueError, match="finite float64"):
        store.write(vector, {})
    assert store.versions == ()


def test_a_write_that_fails_leaves_the_version_before() -> None:
    store = ParameterStore(backend_of(total_bytes=1_000), "model", keep=1)
    store.write(np.ones(50), {"whole": True})
    with pytest.raises(StoreFull):
        store.write(np.zeros(100), {"whole": False})
    assert store.versions == (1,)
    assert store.read().vector.tolist() == [1.0] * 50
    assert store.metadata() == {"whole": True}


def test_metadata_that_is_not_json_is_refused() -> None:
    store = ParameterStore(backend_of(), "model")
    with pytest.raises(ValueError, match="JSON"):
        store.write(np.ones(2), {"loss": float("nan")})
    assert store.versions == ()


def test_reading_before_the_first_write_says_so() -> None:
    with pytest.raises(StoreError, match="written yet"):
        ParameterStore(backend_of(), "model").read()


def test_damage_in_the_backend_is_found() -> None:
    backend = backend_of()
    store = ParameterStore(backend, "model")
    store.write(np.ones(8), {})
    key = "parameters/model/1"
    value = backend.get(key)
    assert isinstance(value, bytes)
    for position in range(0, len(value), 7):
        broken = bytearray(value)
        broken[position] ^= 1
        backend.set(key, bytes(broken), None)
        with pytest.raises(StoreError, match="damaged"):
            store.read()
    store.write(np.zeros(8), {})
    second = backend.get("parameters/model/2")
    assert isinstance(second, bytes)
    backend.set(key, second, None)
    with pytest.raises(StoreError, match="damaged"):
        store.read(1)


def test_a_version_that_the_backend_lost_is_an_error_and_not_an_older_model() -> None:
    backend = backend_of()
    store = ParameterStore(backend, "model")
    store.write(np.ones(2), {})
    store.write(np.zeros(2), {})
    backend.delete("parameters/model/2")
    with pytest.raises(StoreError, match="not held"):
        store.read()


def test_two_names_share_a_backend() -> None:
    backend = backend_of()
    one, two = ParameterStore(backend, "one"), ParameterStore(backend, "two")
    one.write(np.ones(2), {})
    two.write(np.zeros(2), {})
    assert (one.read().vector[0], two.read().vector[0]) == (1.0, 0.0)


class _WrittenMeanwhile(MemoryBackend):
    """Lets a writer overtake a reader between its choice of the newest version and its look into the backend."""

    store: ParameterStore
    overtakes = 2

    def get(self, key: str) -> bytes | Missing:
        if self.overtakes:
            self.overtakes -= 1
            self.store.write(np.full(2, float(self.overtakes)), {})
        return super().get(key)


def test_a_reader_of_the_newest_that_was_overtaken_looks_again() -> None:
    backend = _WrittenMeanwhile(FakeClock(), Limits(10, 1 << 16, 1 << 16), WhenFull.REFUSE)
    backend.store = ParameterStore(backend, "model", keep=1)
    backend.store.write(np.full(2, 9.0), {})
    version, vector, _ = backend.store.read()
    assert (version, vector.tolist()) == (3, [0.0, 0.0])


def test_readers_never_see_a_mix_while_a_writer_writes() -> None:
    store = ParameterStore(backend_of(), "model", keep=1)
    store.write(np.full(200, 1.0), {})
    mixed: list[object] = []
    done = threading.Event()

    def read() -> None:
        last = 0
        while not done.is_set():
            version, vector, digest = store.read()
            if np.unique(vector).tolist() != [float(version)] or version < last or digest != parameter_digest(vector):
                mixed.append((version, vector))
            last = version

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(2, 150):
        store.write(np.full(200, float(number)), {})
    done.set()
    for reader in readers:
        reader.join()
    assert mixed == []
    assert store.read().version == 149
