"""The records of the study: loaded, turned into features and dealt to clients, once a process."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError
from fednode.settings import RunSettings
from fednode_study.data import CsvLayout, Dataset, load
from fednode_study.features import Featuriser, HashedText, SentenceVectors, load_vectors
from fednode_study.model_file import scores, write_model
from fednode_study.partition import Shares, dirichlet, iid

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The settings that say which records there are, with which features, and whose they are."""

    data: str
    data_dir: Path | None
    text_column: str
    label_column: str
    vectors: Path | None
    features: int
    clients: int
    partition: str
    alpha: float
    seed: int

    @staticmethod
    def of(settings: RunSettings) -> "DataSettings":
        """Those of a run; clients and node read the same."""
        return DataSettings(**{field.name: getattr(settings, field.name) for field in fields(DataSettings)})


@dataclass(frozen=True, slots=True)
class Experiment:
    """Records as rows of features, with their labels, and which records each client holds."""

    dataset: Dataset
    featuriser: Featuriser
    train: Rows = field(repr=False)
    test: Rows = field(repr=False)
    shares: Shares = field(repr=False)

    def share(self, client: int) -> tuple[Rows, NDArray[np.int64]]:
        """Rows and labels of one client. Raises `ConfigError` for a client that has no share."""
        if not 0 <= client < len(self.shares):
            raise ConfigError(f"client {client} has no share: the records are dealt to {len(self.shares)}")
        mine = self.shares[client]
        return self.train[mine], self.dataset.train.labels[mine]

    def accuracy(self, arrays: Mapping[str, NDArray[np.generic]]) -> float:
        """Share of the test set that the head labels right, 0 to 1."""
        guesses = scores(arrays, self.test).argmax(axis=1)
        return float((guesses == self.dataset.test.labels).mean())

    def save(self, folder: Path, arrays: Mapping[str, NDArray[np.float32]], run_id: str) -> None:
        """Write the model file. Raises `StoreError`."""
        about = {"labels": json.dumps(self.dataset.labels), "data": self.dataset.name, "run": run_id}
        write_model(folder, arrays, self.featuriser.to_metadata() | about)


@lru_cache(maxsize=2)
def load_experiment(chosen: DataSettings) -> Experiment:
    """Load, featurise and deal. Raises `DataError` or `ConfigError` with one sentence."""
    dataset = load_dataset(chosen)
    featuriser = _featuriser(chosen, dataset)
    shares = deal(chosen, dataset)
    if isinstance(featuriser, SentenceVectors):
        return Experiment(dataset, featuriser, featuriser.train, featuriser.test, shares)
    train, test = featuriser.transform(dataset.train.texts), featuriser.transform(dataset.test.texts)
    return Experiment(dataset, featuriser, train, test, shares)


@lru_cache(maxsize=2)
def load_dataset(chosen: DataSettings) -> Dataset:
    """The records alone. Raises `DataError`."""
    return load(chosen.data, chosen.data_dir, CsvLayout(chosen.text_column, chosen.label_column))


def deal(chosen: DataSettings, dataset: Dataset) -> Shares:
    """Which records each client holds."""
    labels = dataset.train.labels
    if chosen.partition == "dirichlet":
        return dirichlet(labels, chosen.clients, chosen.alpha, chosen.seed)
    return iid(len(labels), chosen.clients, chosen.seed)


def columns(chosen: DataSettings, dataset: Dataset) -> int:
    """Length of a row of features; computes none."""
    return _featuriser(chosen, dataset).dimension


def _featuriser(chosen: DataSettings, dataset: Dataset) -> Featuriser:
    if chosen.vectors is None:
        return HashedText(chosen.features)
    return load_vectors(chosen.vectors, len(dataset.train), len(dataset.test))
