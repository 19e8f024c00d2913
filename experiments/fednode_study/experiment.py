"""The records of the study: loaded, turned into features and dealt to clients, once a process."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError, DataError
from fednode.settings import RunSettings
from fednode_study.data import CsvLayout, Dataset, load
from fednode_study.features import Featuriser, HashedText, SentenceVectors, load_vectors
from fednode_study.model_file import PREPARATION_NAME, scores, write_model
from fednode_study.partition import Shares, dirichlet, iid
from fednode_study.preparation import (
    Preparation,
    Prepared,
    digest_of,
    kind_of,
    label_rows,
    read_preparation,
    write_preparation,
)

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The settings that say which records there are, with which features, and whose they are."""

    data: str
    data_dir: Path | None
    text_column: str
    label_column: str
    unit: str
    customer_column: str | None
    delimiter: str
    encoding: str
    vectors: Path | None
    preparation: Path | None
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

    def hits(self, arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, tuple[int, int]]:
        """For each label of the test set: how many of its messages the head labels right, of how many."""
        truth, names = self.dataset.test.labels, self.dataset.labels
        right = truth[scores(arrays, self.test).argmax(axis=1) == truth]
        counts = [np.bincount(found, minlength=len(names)).tolist() for found in (right, truth)]
        return dict(zip(names, zip(*counts, strict=True), strict=True))

    def customers(self, client: int) -> NDArray[np.int64]:
        """Whose each row of `share` is."""
        return self.dataset.train.customers[self.shares[client]]

    def save(self, folder: Path, arrays: Mapping[str, NDArray[np.float32]], run_id: str) -> None:
        """Write the model file, and the preparation that it needs beside it. Raises `StoreError`."""
        if isinstance(self.featuriser, Prepared):
            write_preparation(folder / PREPARATION_NAME, self.featuriser.preparation)
        about = {"labels": json.dumps(self.dataset.labels), "data": self.dataset.name, "run": run_id}
        write_model(folder, arrays, self.featuriser.to_metadata() | about)


@lru_cache(maxsize=2)
def load_experiment(chosen: DataSettings) -> Experiment:
    """Load, featurise and deal. Raises `DataError` or `ConfigError` with one sentence."""
    dataset = load_dataset(chosen)
    featuriser = load_featuriser(chosen, dataset)
    preparation = load_preparation(chosen, dataset, featuriser)
    shares = deal(chosen, dataset)
    if isinstance(featuriser, SentenceVectors):
        train, test = featuriser.train, featuriser.test
    else:
        train, test = featuriser.transform(dataset.train.texts), featuriser.transform(dataset.test.texts)
    if preparation is None:
        return Experiment(dataset, featuriser, train, test, shares)
    prepared = Prepared(featuriser, preparation)
    return Experiment(dataset, prepared, preparation.apply(train), preparation.apply(test), shares)


@lru_cache(maxsize=2)
def load_dataset(chosen: DataSettings) -> Dataset:
    """The records alone. Raises `DataError`."""
    if chosen.unit == "customer" and chosen.customer_column is None:
        raise ConfigError("unit is customer: name the CSV column that says whose a record is with --customer-column")
    return load(chosen.data, chosen.data_dir, csv_layout(chosen))


def csv_layout(chosen: DataSettings) -> CsvLayout:
    """How the settings say that a CSV file is read."""
    return CsvLayout(
        chosen.text_column,
        chosen.label_column,
        customer=chosen.customer_column,
        delimiter=chosen.delimiter,
        encoding=chosen.encoding,
    )


def deal(chosen: DataSettings, dataset: Dataset) -> Shares:
    """Which records each client holds. Where a column names customers, each is dealt whole, under its most frequent
    label."""
    if chosen.customer_column is None:
        return _dealt(chosen, dataset.train.labels)
    customers = dataset.train.customers
    counts = np.zeros((int(customers.max()) + 1, len(dataset.labels)), dtype=np.int64)
    np.add.at(counts, (customers, dataset.train.labels), 1)
    if len(counts) < chosen.clients:
        raise ConfigError(f"{len(counts)} customers cannot be shared by {chosen.clients} clients; use fewer clients")
    return tuple(np.flatnonzero(np.isin(customers, share)) for share in _dealt(chosen, counts.argmax(axis=1)))


def _dealt(chosen: DataSettings, labels: NDArray[np.int64]) -> Shares:
    if chosen.partition == "dirichlet":
        return dirichlet(labels, chosen.clients, chosen.alpha, chosen.seed)
    return iid(len(labels), chosen.clients, chosen.seed)


def load_preparation(chosen: DataSettings, dataset: Dataset, featuriser: Featuriser) -> Preparation | None:
    """The preparation that the settings name. Raises `DataError` if it was fitted on other features, or on these very
    records."""
    if chosen.preparation is None:
        return None
    found = read_preparation(chosen.preparation)
    if found.featuriser != kind_of(featuriser):
        raise DataError(
            f"{chosen.preparation} was fitted on features {found.featuriser!r} and this run has "
            f"{kind_of(featuriser)!r}: make it again with the run's features"
        )
    if found.records == digest_of(dataset.train.texts):
        raise DataError(
            f"{chosen.preparation} was fitted on the records of this run, outside its epsilon: fit it on a public set"
        )
    return found


def initial_head(dataset: Dataset, featuriser: Featuriser, preparation: Preparation) -> NDArray[np.float64] | None:
    """The parameters that a head starts from, float64 [d], or None where nothing is known of the label names."""
    rows = label_rows(dataset.labels, featuriser)
    if rows is None or preparation.start == 0:
        return None
    weights = preparation.head(rows).astype(np.float64)
    return np.concatenate([weights.ravel(), np.zeros(len(dataset.labels))])


def load_featuriser(chosen: DataSettings, dataset: Dataset) -> Featuriser:
    """The features before any preparation; computes none."""
    if chosen.vectors is None:
        return HashedText(chosen.features)
    return load_vectors(chosen.vectors, len(dataset.train), len(dataset.test))
