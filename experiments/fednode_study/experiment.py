"""The customer-service experiment as configuration: which records, which features, whose share; loaded once a
process."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError
from fednode_study.data import CsvLayout, Dataset, load
from fednode_study.features import Featuriser, HashedText, SentenceVectors, load_vectors
from fednode_study.partition import Partition, Shares

Rows = NDArray[np.float32]
_NONE = ""


@dataclass(frozen=True, slots=True)
class ExperimentConfig:
    """What client and node must read the same way; every field is a plain value, so that it fits Flower's run
    config."""

    data: str = "support"
    data_dir: str = _NONE
    text_column: str = "text"
    label_column: str = "label"
    vectors: str = _NONE
    features: int = 1024
    clients: int = 20
    partition: str = "iid"
    alpha: float = 0.5
    seed: int = 0

    def to_run_config(self) -> dict[str, str | int | float]:
        """As Flower's run config: the same names with dashes."""
        return {name.replace("_", "-"): value for name, value in asdict(self).items()}

    @staticmethod
    def from_run_config(config: Mapping[str, object]) -> "ExperimentConfig":
        """The fields that a run config names, the defaults for the rest. Raises `ConfigError` for a value of another
        type."""
        given: dict[str, object] = {}
        for name, default in asdict(ExperimentConfig()).items():
            value = config.get(name.replace("_", "-"), default)
            if isinstance(default, float) and isinstance(value, int):
                value = float(value)
            if type(value) is not type(default):
                raise ConfigError(
                    f"{name.replace('_', '-')} is {value!r} in the run config; it has to be like {default!r}"
                )
            given[name] = value
        return ExperimentConfig(**given)  # type: ignore[arg-type]


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


@lru_cache(maxsize=2)
def load_experiment(config: ExperimentConfig) -> Experiment:
    """Load, featurise and deal. Raises `DataError` or `ConfigError` with one sentence."""
    dataset = load_dataset(config)
    featuriser = _featuriser(config, dataset)
    shares = _partition(config).split(dataset.train.labels, config.clients, config.seed)
    if isinstance(featuriser, SentenceVectors):
        return Experiment(dataset, featuriser, featuriser.train, featuriser.test, shares)
    train, test = featuriser.transform(dataset.train.texts), featuriser.transform(dataset.test.texts)
    return Experiment(dataset, featuriser, train, test, shares)


@lru_cache(maxsize=2)
def load_dataset(config: ExperimentConfig) -> Dataset:
    """The records alone. Raises `DataError`."""
    folder = Path(config.data_dir) if config.data_dir else None
    return load(config.data, folder, CsvLayout(config.text_column, config.label_column))


def deal(config: ExperimentConfig, dataset: Dataset) -> Shares:
    """Which records each client holds."""
    return _partition(config).split(dataset.train.labels, config.clients, config.seed)


def _featuriser(config: ExperimentConfig, dataset: Dataset) -> Featuriser:
    if config.vectors:
        return load_vectors(Path(config.vectors), len(dataset.train), len(dataset.test))
    return HashedText(config.features)


def _partition(config: ExperimentConfig) -> Partition:
    if config.partition not in ("iid", "dirichlet"):
        raise ConfigError(f"partition is {config.partition!r}; choose iid or dirichlet")
    return Partition(config.alpha if config.partition == "dirichlet" else None)
