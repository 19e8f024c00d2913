"""The trained model as one safetensors file: the head's arrays, and in its metadata all that prediction needs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fednode.disk.atomic import write_whole
from fednode.errors import DataError
from fednode_study.features import Featuriser, from_metadata
from fednode_study.preparation import Prepared, read_preparation

MODEL_NAME = "model.safetensors"
PREPARATION_NAME = "preparation.safetensors"
_LARGEST = 1e18
"""No parameter of a sound model is larger; scores of such parameters are finite."""


def write_model(folder: Path, arrays: Mapping[str, NDArray[np.float32]], metadata: dict[str, str]) -> None:
    """Write the file whole. Raises `StoreError`."""
    from safetensors.numpy import save

    write_whole(folder / MODEL_NAME, save(dict(arrays), metadata=metadata))


def scores(arrays: Mapping[str, NDArray[np.generic]], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The head's scores: float32 [n, labels]."""
    weight, bias = (np.asarray(arrays[name], dtype=np.float32) for name in ("weight", "bias"))
    result: NDArray[np.float32] = rows @ weight.T + bias
    return result


def predict_texts(folder: Path, texts: Sequence[str]) -> list[tuple[str, float]]:
    """Label and softmax share for each text. Raises `DataError` if there is no model or a text is blank, `ConfigError`
    if the model takes no texts."""
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            raise DataError(f"text {number} is empty; write the message in quotes")
    arrays, labels, featuriser = _read(folder / MODEL_NAME)
    # bytes of an argument that are not UTF-8 come as lone surrogates, which no featuriser takes
    rows = featuriser.transform([text.encode("utf-8", "replace").decode() for text in texts])
    values = scores(arrays, rows).astype(np.float64)
    odds = np.exp(values - values.max(axis=1, keepdims=True))
    shares = odds / odds.sum(axis=1, keepdims=True)
    best = shares.argmax(axis=1)
    return [(labels[index], float(shares[row, index])) for row, index in enumerate(best)]


def _read(path: Path) -> tuple[dict[str, NDArray[np.generic]], list[str], Featuriser]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise DataError(f"there is no {path}; name the folder of a run that released a model, such as runs/ID")
    try:
        with safe_open(str(path), framework="np") as file:
            metadata = dict(file.metadata() or {})
            if "labels" not in metadata:
                raise DataError(
                    f"{path} names no labels and takes no texts: its node knew its arrays alone; whoever has records "
                    "loads them with safetensors"
                )
            arrays = {name: file.get_tensor(name) for name in ("weight", "bias")}
        labels = [str(label) for label in json.loads(metadata["labels"])]
        shapes = (arrays["weight"].shape, arrays["bias"].shape)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not a model of FedNode or is damaged ({error}); train it again") from error
    featuriser = _prepared(path.parent / PREPARATION_NAME, from_metadata(metadata), metadata)
    fits = labels and shapes == ((len(labels), featuriser.dimension), (len(labels),))
    if not fits or not all((np.abs(array) < _LARGEST).all() for array in arrays.values()):
        raise DataError(f"{path} is damaged: its arrays do not fit its labels and features; train it again")
    return arrays, labels, featuriser


def _prepared(path: Path, featuriser: Featuriser, metadata: Mapping[str, str]) -> Featuriser:
    """The featuriser with the preparation that the model was trained with, which lies beside it."""
    if "preparation" not in metadata:
        return featuriser
    preparation = read_preparation(path)
    if preparation.digest() != metadata["preparation"]:
        raise DataError(f"{path} is not the preparation that this model was trained with; copy that of its run")
    return Prepared(featuriser, preparation)
