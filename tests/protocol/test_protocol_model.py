"""The model's one order: flat and back, and a digest that notices everything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_st
from kit.faults import reason_of

from fednode.protocol.guarantees import Bounded, Noised, Sealed
from fednode.protocol.model import Layout, model_digest
from fednode_crypto import Sealing

MODEL = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.array([7.0, 8.0], dtype=np.float32)}
LAYOUT = Layout.of(MODEL)
FLOATS = st.floats(width=32, allow_nan=False)
MODELS = st.dictionaries(
    st.text("abc.", min_size=1, max_size=5),
    arrays_st.arrays(
        np.float32, arrays_st.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), elements=FLOATS
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(MODELS)
def test_a_model_is_flattened_and_restored_bit_by_bit(model):
    layout = Layout.of(model)
    vector = layout.flatten(model)
    assert vector.dtype == np.float64 and vector.shape == (layout.dimension,) == (sum(a.size for a in model.values()),)
    restored = layout.unflatten(vector)
    assert list(restored) == list(model)
    for name, array in model.items():
        assert restored[name].dtype == np.float32 and restored[name].shape == array.shape
        assert restored[name].tobytes() == array.tobytes()
    assert model_digest(restored) == model_digest(model)


def test_the_order_is_that_of_the_model_not_of_the_names():
    assert LAYOUT.names == ("weight", "bias") and LAYOUT.dimension == 8
    assert LAYOUT.flatten(MODEL).tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    columns_first = {"weight": np.asfortranarray(MODEL["weight"]), "bias": MODEL["bias"]}
    assert LAYOUT.flatten(columns_first).tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    assert model_digest(columns_first) == model_digest(MODEL)


def test_the_restored_model_does_not_share_memory_with_the_vector():
    vector = np.zeros(8)
    LAYOUT.unflatten(vector)["bias"][0] = 1.0
    assert not vector.any()


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "complex64", "object", "U3"])
def test_a_buffer_that_is_not_of_floats_is_refused_in_a_sentence(dtype):
    with pytest.raises(ValueError, match="steps"):
        Layout.of({**MODEL, "steps": np.zeros(1, dtype=dtype)})


def test_a_model_without_arrays_is_refused():
    with pytest.raises(ValueError):
        Layout.of({})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_any_float_is_a_parameter(dtype):
    layout = Layout.of({"w": np.ones(3, dtype=dtype)})
    assert layout.flatten({"w": np.ones(3, dtype=dtype)}).tolist() == [1.0, 1.0, 1.0]


WRONG = {
    "one missing": {"weight": MODEL["weight"]},
    "one more": {**MODEL, "more": np.zeros(1, dtype=np.float32)},
    "another order": {"bias": MODEL["bias"], "weight": MODEL["weight"]},
    "another name": {"weight": MODEL["weight"], "bias2": MODEL["bias"]},
    "another shape": {"weight": MODEL["weight"].T, "bias": MODEL["bias"]},
    "flattened": {"weight": MODEL["weight"].ravel(), "bias": MODEL["bias"]},
    "nothing": {},
    "integers": {**MODEL, "bias": np.array([7, 8])},
    "text": {**MODEL, "bias": np.array(["7", "8"])},
    "objects": {**MODEL, "bias": np.array([7.0, None], dtype=object)},
    "complex numbers": {**MODEL, "bias": np.array([7.0, 8j])},
}


@pytest.mark.parametrize("arrays", WRONG.values(), ids=WRONG)
def test_arrays_of_another_model_are_a_peers_fault(arrays):
    assert reason_of(LAYOUT.flatten, arrays) == "wrong-shape"


@pytest.mark.parametrize("vector", [np.zeros(7), np.zeros(9), np.zeros((8, 1)), np.zeros(()), np.zeros((2, 4))])
def test_a_vector_of_another_size_is_our_mistake(vector):
    with pytest.raises(ValueError, match="8"):
        LAYOUT.unflatten(vector)


def changed(name, **changes):
    return {**MODEL, name: MODEL[name].copy()} | changes


def nudged(name, at):
    array = MODEL[name].copy()
    array[at] = np.nextafter(array[at], np.float32(np.inf))
    return {**MODEL, name: array}


OTHERS = {
    "the last bit of a value": nudged("weight", (1, 2)),
    "the first value": nudged("weight", (0, 0)),
    "the sign of nought": changed("weight", weight=np.where(MODEL["weight"] == 0, -0.0, MODEL["weight"])),
    "a shape": changed("weight", weight=MODEL["weight"].reshape(3, 2)),
    "a dimension of one": changed("bias", bias=MODEL["bias"].reshape(2, 1)),
    "a name": {"weight": MODEL["weight"], "bias2": MODEL["bias"]},
    "the order": {"bias": MODEL["bias"], "weight": MODEL["weight"]},
    "an array less": {"weight": MODEL["weight"]},
    "an empty array more": {**MODEL, "more": np.zeros((0,), dtype=np.float32)},
    "values that moved from one array to the next": {"weight": MODEL["weight"], "bias": MODEL["bias"][::-1]},
    "nothing": {},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_the_digest_notices(other):
    assert len(model_digest(MODEL)) == 32
    assert model_digest(other) != model_digest(MODEL)


def test_the_digest_is_over_what_travels_whatever_it_is_kept_as():
    wide = {name: array.astype(np.float64) for name, array in MODEL.items()}
    swapped = {name: array.astype(">f4") for name, array in MODEL.items()}
    assert model_digest(wide) == model_digest(swapped) == model_digest(MODEL)


def test_values_on_their_way_do_not_print():
    secret = np.array([123456789], dtype=np.int64)
    sealed = Sealed(Sealing(b"123456789"), bytes(32))
    for value in (Bounded(secret.astype(float), 1.0, 10), Noised(secret, 1.0, 16, 4), sealed):
        assert "123456789" not in repr(value)
