"""Public preparation: directions of features, fitted on a public set, and where the head starts.

A preparation is fitted on records that are public, never on those of a run, so it costs no privacy. It takes the
features' mean away, keeps the `columns` directions in which the public rows differ most, and divides each by the root
of its standard deviation (half-whitening); then rows get their common length again. The head starts at `start` times
the prepared label names, unit length: what names say of their labels is public too.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fednode.disk.atomic import write_whole
from fednode.errors import ConfigError, DataError
from fednode_study.features import Featuriser, Rows, SentenceVectors, to_row_length

FORMAT = "fednode-preparation-1"
LARGEST_INPUT = 8_192
"""Columns of features above which no covariance is computed."""


@dataclass(frozen=True, slots=True, eq=False)
class Preparation:
    """What a preparation file holds; `source` says of which public set it was made, `records` is that set's digest."""

    mean: Rows = field(repr=False)
    axes: Rows = field(repr=False)
    featuriser: str
    start: float
    source: str
    records: str

    @property
    def columns(self) -> int:
        """Columns of a prepared row."""
        return int(self.axes.shape[1])

    def apply(self, rows: Rows) -> Rows:
        """float32 [n, columns], each of the common length; a row without features stays zero."""
        prepared: Rows = to_row_length(((rows - self.mean) @ self.axes).astype(np.float32))
        prepared[~rows.any(axis=1)] = 0
        return prepared

    def head(self, label_rows: Rows) -> Rows:
        """Weights that the head starts from, at the features of its label names."""
        prepared = self.apply(label_rows)
        norms = np.linalg.norm(prepared, axis=1, keepdims=True)
        weights: Rows = np.float32(self.start) * prepared / np.maximum(norms, np.float32(1e-9))
        return weights

    def stated(self, *, started: bool) -> str:
        """What it is, in a line for plan and report."""
        start = f"at {self.start:g} x the label names" if started else "at zero"
        return (
            f"preparation of {self.columns:,} directions (SHA-256 {self.digest()}) from {self.source}; the head starts "
            f"{start}"
        )

    def to_bytes(self) -> bytes:
        """The file: safetensors."""
        from safetensors.numpy import save

        about = {name: getattr(self, name) for name in ("featuriser", "records", "source", "start")}
        # one entry: the library writes several in an order of its own, and the file's digest has to be one
        return save({"mean": self.mean, "axes": self.axes}, metadata={FORMAT: json.dumps(about)})

    def digest(self) -> str:
        """SHA-256 of the file, hex."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A featuriser whose rows go through a preparation."""

    base: Featuriser
    preparation: Preparation

    @property
    def dimension(self) -> int:
        """Columns of a prepared row."""
        return self.preparation.columns

    def transform(self, texts: Sequence[str]) -> Rows:
        """The base's rows, prepared."""
        return self.preparation.apply(self.base.transform(texts))

    def to_metadata(self) -> dict[str, str]:
        """The base's, with the preparation's digest and source."""
        preparation = self.preparation
        return self.base.to_metadata() | {"preparation": preparation.digest(), "prepared-from": preparation.source}


def kind_of(featuriser: Featuriser) -> str:
    """Kind and dimension of features: those that a preparation was fitted on are those that it fits."""
    about = featuriser.to_metadata()
    return f"{about['featuriser']} {about['dimension']}"


def digest_of(texts: Sequence[str]) -> str:
    """SHA-256 over the texts in any order, hex: tells whether two sets are the same."""
    return hashlib.sha256(json.dumps(sorted(texts)).encode()).hexdigest()


def label_rows(labels: Sequence[str], featuriser: Featuriser) -> Rows | None:
    """Features of the label names, `_` read as a space; None if the file of vectors holds none. Raises `DataError`."""
    if not isinstance(featuriser, SentenceVectors):
        return featuriser.transform([label.replace("_", " ") for label in labels])
    found = featuriser.labels
    if found is not None and found.shape != (len(labels), featuriser.dimension):
        raise DataError(
            f"{featuriser.file_name}: 'labels' is {found.shape} and there are {len(labels)} labels of "
            f"{featuriser.dimension} columns; give a row for each label, in the order of their sorted names"
        )
    return found


def fitted(rows: Rows, columns: int) -> tuple[Rows, Rows]:
    """Mean [d] and half-whitening axes [d, columns] of these rows. Raises `ConfigError` for too many columns."""
    width = rows.shape[1]
    if width > LARGEST_INPUT:
        raise ConfigError(f"a preparation takes at most {LARGEST_INPUT:,} features and there are {width:,}: use fewer")
    if not 1 <= columns <= min(width, len(rows) - 1):
        raise ConfigError(
            f"{columns} columns cannot be kept of {width:,} features and {len(rows):,} public rows; keep fewer"
        )
    mean = rows.mean(axis=0, dtype=np.float64)
    centred = rows.astype(np.float64) - mean
    variances, directions = np.linalg.eigh(centred.T @ centred / len(rows))
    variances, directions = variances[::-1][:columns], directions[:, ::-1][:, :columns]
    if variances[-1] <= 1e-9 * variances[0]:
        raise ConfigError(f"the public rows differ in fewer than {columns} directions; keep fewer columns")
    # the sign of an eigenvector is an accident of the library: make the largest entry positive
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(columns)])
    return mean.astype(np.float32), (directions * signs * variances**-0.25).astype(np.float32)


def read_preparation(path: Path) -> Preparation:
    """The file as data; nothing in it is executed. Raises `DataError`."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as file:
            about = json.loads((file.metadata() or {})[FORMAT])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        return _checked(about, arrays)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}; make it with `fednode prepare`") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is no preparation of FedNode or is damaged ({error}); make it again") from error


def write_preparation(path: Path, preparation: Preparation) -> None:
    """Write the file whole. Raises `StoreError`."""
    write_whole(path, preparation.to_bytes())


def _checked(about: Mapping[str, Any], arrays: Mapping[str, Any]) -> Preparation:
    mean, axes, start = arrays["mean"], arrays["axes"], float(about["start"])
    if axes.ndim != 2 or mean.shape != axes.shape[:1] or {mean.dtype, axes.dtype} != {np.dtype(np.float32)}:
        raise ValueError(f"mean is {mean.dtype} {mean.shape} and axes {axes.dtype} {axes.shape}")
    if not (np.isfinite(mean).all() and np.isfinite(axes).all() and np.isfinite(start)):
        raise ValueError("a value is not finite")
    featuriser, source, records = (str(about[name]) for name in ("featuriser", "source", "records"))
    return Preparation(mean, axes, featuriser, start, source, records)
