"""The study as FedNode sees it: counts for the plan, a training function for clients, tests and prediction."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fednode.assemble.study import Arrays, Workload, rounded_up
from fednode.errors import ConfigError, DataError
from fednode.protocol.model import Layout
from fednode.settings import RunSettings, from_run_config

if TYPE_CHECKING:
    import torch

    from fednode_clients.client.privatise import ClippedSum
    from fednode_clients.membership import NodeContext
    from fednode_clients.training.local import LocalUpdate
    from fednode_study.experiment import Experiment


class CustomerService:
    """A linear model on text features that tells the intents of messages apart; `fednode.assemble.study.Study`."""

    def workload(self, settings: RunSettings) -> Workload:
        """Read and deal the records. Raises `DataError` or `ConfigError`."""
        from fednode_study.data_checks import data_warnings
        from fednode_study.experiment import (
            DataSettings,
            deal,
            initial_head,
            load_dataset,
            load_featuriser,
            load_preparation,
        )

        chosen = DataSettings.of(settings)
        dataset = load_dataset(chosen)
        if len(dataset.test) == 0:
            raise DataError(
                f"{dataset.source}: no message is left to test the model on; give more messages of each label"
            )
        featuriser = load_featuriser(chosen, dataset)
        preparation = load_preparation(chosen, dataset, featuriser)
        initial = None if preparation is None else initial_head(dataset, featuriser, preparation)
        width = featuriser.dimension if preparation is None else preparation.columns
        labels, messages, shares = len(dataset.labels), rounded_up(len(dataset.train)), deal(chosen, dataset)
        units = {
            "record": [len(share) for share in shares],
            "customer": [len(set(dataset.train.customers[share].tolist())) for share in shares],
            "client": [1] * settings.clients,
        }[settings.unit]
        rounded = int if settings.unit == "client" else rounded_up
        records = rounded(sum(units))
        whose = f" of about {records:,} customers" if settings.unit == "customer" else ""
        return Workload(
            layout=head_layout(width, labels),
            records=records,
            max_records=rounded(max(units)),
            unit=settings.unit,
            model=f"an intent classifier, a linear head on {width:,} {'prepared ' if preparation else ''}features",
            dataset=dataset.name,
            source=dataset.source,
            labels=labels,
            summary=f"about {messages:,} training messages{whose}, {labels:,} intents",
            warnings=data_warnings(dataset),
            public_inputs=() if preparation is None else (preparation.stated(started=initial is not None),),
            initial=initial,
        )

    def evaluator(self, settings: RunSettings) -> "Experiment":
        """The records as features, loaded once a process."""
        from fednode_study.experiment import DataSettings, load_experiment

        return load_experiment(DataSettings.of(settings))

    def train(self, place: "NodeContext", arrays: Arrays, clip: float) -> "ClippedSum":
        """The clipped gradient sum over this client's share; with unit client, how far training moves the model.

        Raises `PeerFault` or `ValueError` for another model.
        """
        from fednode_clients.training.gradients import clipped_gradient_sum
        from fednode_clients.training.models import load_vector, travelling
        from fednode_study.experiment import DataSettings, load_experiment

        settings = from_run_config(place.run)
        experiment = load_experiment(DataSettings.of(settings))
        rows, labels = experiment.share(place.partition())
        model = deepcopy(_head(experiment.featuriser.dimension, len(experiment.dataset.labels)))
        wanted = Layout.of({name: parameter.detach().numpy() for name, parameter in travelling(model)})
        load_vector(model, wanted.flatten(arrays))
        if settings.unit == "client":
            return trained_head(model, rows, labels, clip, settings)
        groups = experiment.customers(place.partition()) if settings.unit == "customer" else None
        return clipped_gradient_sum(model, rows, labels, clip, groups=groups)

    def prepare(self, settings: RunSettings, file: Path, columns: int, start: float, source: str | None) -> list[str]:
        """Fit a preparation on the training part of a public set and write it; what it is, in lines. Raises `DataError`
        or `ConfigError`."""
        from fednode_study.experiment import DataSettings, load_experiment
        from fednode_study.preparation import Preparation, digest_of, fitted, kind_of, write_preparation

        chosen = DataSettings.of(settings)
        public = load_experiment(replace(chosen, clients=1))
        if source is None and public.dataset.given:
            raise ConfigError("say with --source where the public set comes from and what its licence is")
        mean, axes = fitted(public.train, columns)
        stated = source or public.dataset.source
        records = digest_of(public.dataset.train.texts)
        preparation = Preparation(mean, axes, kind_of(public.featuriser), start, stated, records)
        write_preparation(file, preparation)
        return [f"{file}  {preparation.stated(started=start > 0)}"]

    def split(self, settings: RunSettings, folder: Path) -> list[str]:
        """Write a split as train.csv and test.csv. Raises `DataError`, `ConfigError` or `StoreError`."""
        from fednode_study.experiment import DataSettings, load_dataset
        from fednode_study.member_file import write_split

        return write_split(load_dataset(DataSettings.of(settings)), folder)

    def member_file(self, settings: RunSettings, labels: Path, file: Path) -> list[str]:
        """Write a member's features and label numbers as an NPZ file. Raises `DataError` or `StoreError`."""
        from fednode_study.experiment import DataSettings, csv_layout
        from fednode_study.member_file import write_member_file

        chosen = DataSettings.of(settings)
        return write_member_file(Path(chosen.data), csv_layout(chosen), chosen.features, labels, file)

    def predict(self, folder: Path, texts: Sequence[str]) -> list[tuple[str, float]]:
        """Label and score for each text. Raises `DataError` or `ConfigError`."""
        from fednode_study.model_file import predict_texts

        return predict_texts(folder, texts)


def trained_head(
    head: "torch.nn.Linear", rows: NDArray[np.float32], labels: NDArray[np.int64], clip: float, settings: RunSettings
) -> "LocalUpdate":
    """How far SGD over this client's records moves the head, clipped."""
    import torch

    from fednode_clients.training.local import LocalTraining, ShuffledBatches, local_update

    # on several threads a head of this size takes ten times as long
    torch.set_num_threads(1)
    records = torch.from_numpy(rows), torch.from_numpy(labels)
    training = LocalTraining(
        partial(torch.optim.SGD, lr=settings.local_rate), settings.local_epochs, proximal=settings.proximal
    )
    return local_update(head, ShuffledBatches(records, settings.local_batch), clip, training)


@lru_cache(maxsize=4)
def _head(columns: int, labels: int) -> "torch.nn.Linear":
    """Made once a process: torch takes longer to make a layer than to copy one."""
    from fednode_clients.training.models import linear_head

    return linear_head(columns, labels)


def head_layout(columns: int, labels: int) -> Layout:
    """The arrays of a linear head, as torch names and orders them."""
    return Layout(("weight", "bias"), ((labels, columns), (labels,)))
