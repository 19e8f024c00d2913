"""A model file that is not whole, or not ours, is a DataError; prediction never ends in anything else."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from fednode.errors import DataError
from fednode_study.model_file import MODEL_NAME, predict_texts

RNG = np.random.default_rng(0)
ARRAYS = {"weight": RNG.normal(size=(2, 16)).astype(np.float32), "bias": np.zeros(2, np.float32)}
METADATA = {"featuriser": "hashed-text-1", "dimension": "16", "labels": json.dumps(["card", "pay"])}
WHOLE = save(ARRAYS, metadata=METADATA)


def predicted(folder, content, text="lost card"):
    (folder / MODEL_NAME).write_bytes(content)
    return predict_texts(folder, [text])


@pytest.mark.parametrize("text", ["lost card", "?", "\udcff", "x" * 200_000])
def test_any_text_has_a_label(tmp_path, text):
    [(label, share)] = predicted(tmp_path, WHOLE, text)
    assert label in ("card", "pay") and 0.5 <= share <= 1


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_a_blank_text_is_refused(tmp_path, text):
    with pytest.raises(DataError, match="text 1 is empty"):
        predicted(tmp_path, WHOLE, text)


@pytest.mark.parametrize(
    ("arrays", "metadata"),
    [
        ({}, {"labels": "["}),
        ({}, {"labels": "3"}),
        ({}, {"labels": "[]"}),
        ({}, {"labels": json.dumps(["a", "b", "c"])}),
        ({}, {"dimension": "17"}),
        ({}, {"dimension": "x"}),
        ({}, {"featuriser": "another"}),
        ({"weight": ARRAYS["weight"].T.copy()}, {}),
        ({"weight": np.full((2, 16), np.nan, np.float32)}, {}),
        ({"weight": np.full((2, 16), 1e300)}, {}),
        ({"weight": np.zeros((0, 16), np.float32), "bias": np.zeros(0, np.float32)}, {"labels": "[]"}),
    ],
)
def test_a_model_whose_parts_do_not_fit_is_refused(tmp_path, arrays, metadata):
    with pytest.raises(DataError):
        predicted(tmp_path, save(ARRAYS | arrays, metadata=METADATA | metadata))


@pytest.mark.parametrize("name", ["weight", "kernel"])
def test_a_sound_model_without_labels_is_not_called_damaged(tmp_path, name):
    with pytest.raises(DataError, match="names no labels") as refused:
        predicted(tmp_path, save({name: ARRAYS["weight"]}, metadata={"run": "a-run"}))
    assert "damaged" not in str(refused.value) and "train it again" not in str(refused.value)


@given(cut=st.integers(0, len(WHOLE) - 1))
def test_a_model_that_was_cut_is_refused(tmp_path_factory, cut):
    with pytest.raises(DataError, match=MODEL_NAME):
        predicted(tmp_path_factory.mktemp("model"), WHOLE[:cut])


@given(place=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255))
def test_a_byte_that_was_changed_gives_a_result_or_a_refusal(tmp_path_factory, place, byte):
    changed = bytearray(WHOLE)
    changed[place] = byte
    try:
        [(_, share)] = predicted(tmp_path_factory.mktemp("model"), bytes(changed))
    except DataError:
        return
    assert 0 <= share <= 1


def test_without_a_model_the_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=MODEL_NAME):
        predict_texts(tmp_path, ["x"])
