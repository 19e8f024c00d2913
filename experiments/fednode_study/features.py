"""Texts to rows of numbers, without learning anything: no vocabulary and no statistic leaves a client.

The L2 norm of a row is known beforehand, and it decides how the clip bites: the gradient of a linear head on record
(x, y) is the outer product of p - y and (x, 1). With rows of length 6 a clipped gradient goes to the words and hardly
to the bias, and records weigh the same until the model is sure of them. experiments/README.md has the measured effect.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError, DataError

ROW_LENGTH = 6.0
_MAX_DIMENSION = 2**20
_WORD = r"(?u)\b\w+\b"

Rows = NDArray[np.float32]


class Featuriser(Protocol):
    """Turns texts into rows, the same for every client and for prediction."""

    @property
    def dimension(self) -> int:
        """Columns of a row."""
        ...

    def transform(self, texts: Sequence[str]) -> Rows:
        """float32 [len(texts), dimension], each row of L2 norm `ROW_LENGTH`, or zero where there is nothing in it."""
        ...

    def to_metadata(self) -> dict[str, str]:
        """What `from_metadata` needs to build the same featuriser again."""
        ...


@dataclass(frozen=True, slots=True)
class HashedText:
    """Signed hashes of word 1-2-grams and of character 3-5-grams inside words, both halves equally long, added up.

    scikit-learn's `HashingVectorizer` (MurmurHash3, public seed). A text without a letter or digit has no words but may
    have character grams; a blank text gives a zero row.
    """

    dimension: int = 1024

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= _MAX_DIMENSION:
            raise ConfigError(f"feature dimension is {self.dimension}; give 1 to {_MAX_DIMENSION}, such as 1024")

    def transform(self, texts: Sequence[str]) -> Rows:
        """float32 [len(texts), dimension]; row by row, so the order and company of a text change nothing."""
        from sklearn.feature_extraction.text import HashingVectorizer

        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        if not len(texts):
            return rows
        for options in (
            {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": _WORD},
            {"analyzer": "char_wb", "ngram_range": (3, 5)},
        ):
            hashing = HashingVectorizer(n_features=self.dimension, dtype=np.float32, norm="l2", **options)
            # toarray: adding the sparse result itself would turn `rows` into a numpy matrix
            rows += hashing.transform(texts).toarray()
        return to_row_length(rows)

    def to_metadata(self) -> dict[str, str]:
        """Kind and dimension."""
        return {"featuriser": "hashed-text-1", "dimension": str(self.dimension)}


@dataclass(frozen=True, slots=True, eq=False)
class SentenceVectors:
    """Rows computed beforehand by an encoder, one for each record of the data set, in its order.

    The vectors are brought to the row length; texts that are not in the file have no vector, so `transform` refuses.
    """

    train: Rows = field(repr=False)
    test: Rows = field(repr=False)
    file_name: str = ""
    labels: Rows | None = field(default=None, repr=False)
    """The vectors of the label names, in the order of the labels, if the file has them."""

    @property
    def dimension(self) -> int:
        """Columns of a vector."""
        return int(self.train.shape[1])

    def transform(self, texts: Sequence[str]) -> Rows:
        """Refused with `ConfigError`: the encoder is not here."""
        raise ConfigError(
            f"this model was trained on the sentence vectors of {self.file_name or 'a file'}: encode the {len(texts)} "
            "new texts with the same encoder, or train with hashed features to predict from text"
        )

    def to_metadata(self) -> dict[str, str]:
        """Kind, dimension and the file's name."""
        return {"featuriser": "sentence-vectors-1", "dimension": str(self.dimension), "vectors": self.file_name}


def from_metadata(metadata: Mapping[str, str]) -> Featuriser:
    """The featuriser that `to_metadata` described; `DataError` if this version does not know it."""
    kind = metadata.get("featuriser", "none")
    try:
        dimension = int(metadata.get("dimension", ""))
    except ValueError:
        raise DataError("the model's metadata has no feature dimension; train it again") from None
    if kind == "hashed-text-1":
        return HashedText(dimension)
    if kind == "sentence-vectors-1":
        none = np.zeros((0, dimension), dtype=np.float32)
        return SentenceVectors(none, none, metadata.get("vectors", ""))
    raise DataError(f"the model's featuriser {kind!r} is unknown to this version; use the version that trained it")


def load_vectors(path: Path, train_count: int, test_count: int) -> SentenceVectors:
    """The arrays `train` and `test` of an NPZ file, and `labels` if it is there; nothing in it is ever executed.

    Raises `DataError` if the file or an array is missing, is not real numbers, has another number of rows than the data
    set, or holds a value that is not finite.
    """
    try:
        with path.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as arrays:
            train, test = (_vectors(arrays, name, path) for name in ("train", "test"))
            labels = _vectors(arrays, "labels", path) if "labels" in arrays else None
    except FileNotFoundError:
        raise DataError(f"there is no file {path}; check the path") from None
    except PermissionError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; name a file that this user may read") from None
    except (OSError, KeyError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not an NPZ file of plain arrays ({error})") from None
    for name, rows, count in (("train", train, train_count), ("test", test, test_count)):
        if len(rows) != count:
            raise DataError(
                f"{path}: {name!r} has {len(rows)} vectors and the data set {count} records; encode this set"
            )
    if train.shape[1] != test.shape[1]:
        raise DataError(f"{path}: 'train' has {train.shape[1]} columns and 'test' {test.shape[1]}; use one encoder")
    named = None if labels is None else to_row_length(labels)
    return SentenceVectors(to_row_length(train), to_row_length(test), path.name, named)


def to_row_length(rows: Rows) -> Rows:
    """Every row scaled to L2 norm `ROW_LENGTH`, to float32 precision; a zero row stays zero."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    scale = np.divide(ROW_LENGTH, norms, out=np.zeros_like(norms), where=norms > 0)
    scaled: Rows = (rows * scale[:, None]).astype(np.float32)
    return scaled


def _vectors(arrays: Mapping[str, Any], name: str, path: Path) -> Rows:
    if name not in arrays:
        raise DataError(f"{path} has no array {name!r}; it needs 'train' and 'test'")
    rows = arrays[name]
    if rows.ndim != 2 or rows.dtype.kind != "f" or not 1 <= rows.shape[1] <= _MAX_DIMENSION:
        raise DataError(f"{path}: {name!r} is {rows.dtype} {rows.shape}; it must be floating, [records, dimension]")
    if not np.isfinite(rows).all():
        raise DataError(f"{path}: {name!r} holds values that are not finite; encode again")
    return np.asarray(rows, dtype=np.float32)
