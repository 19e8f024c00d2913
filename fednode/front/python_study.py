"""A task and its clients' data as a study: what `fednode.assemble` runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednode.assemble.serve import ArraysOnly
from fednode.assemble.study import Arrays, Workload
from fednode.errors import ConfigError
from fednode.front.data import ClientData, client_data, digest
from fednode.front.task import Task, loaded
from fednode.settings import RunSettings

if TYPE_CHECKING:
    import torch

    from fednode_clients.client.privatise import ClippedSum
    from fednode_clients.membership import NodeContext
    from fednode_clients.training.local import LocalUpdate


class PythonStudy:
    """A simulation's study: each client's records in memory; `fednode.assemble.study.Study`."""

    def __init__(self, task: Task, clients: Sequence[Any], test: Any = None) -> None:
        self._clients = [client_data(data, task.unit, f"client {at}") for at, data in enumerate(clients)]
        self._test = None if test is None else client_data(test, "record", "test")
        self.task = task.with_counts([_units(data) for data in self._clients])
        self._module = task.module()

    def workload(self, settings: RunSettings) -> Workload:
        """The task's, with the name of these records."""
        del settings
        return replace(
            self.task.workload(),
            dataset=f"arrays-{digest(self._clients)[:12]}",
            source="arrays given to a simulation",
        )

    def evaluator(self, settings: RunSettings) -> "PythonStudy":
        """This; it has its test records loaded."""
        del settings
        return self

    def hits(self, arrays: Arrays) -> Mapping[str, tuple[int, int]]:
        """For each class of the test records: how many the model gets right, of how many; none unless it classifies."""
        from fednode.front.run import outputs_of

        test = self._test
        if test is None or test.targets.ndim != 1 or test.targets.dtype.kind not in "iu":
            return {}
        scores = outputs_of(loaded(self._module, arrays), test.inputs)
        if scores.ndim != 2:
            return {}
        right = scores.argmax(axis=1) == test.targets
        return {
            str(label): (int(right[test.targets == label].sum()), int((test.targets == label).sum()))
            for label in np.unique(test.targets).tolist()
        }

    def save(self, folder: Path, arrays: Mapping[str, NDArray[np.float32]], run_id: str) -> None:
        """Write model.safetensors. Raises `StoreError`."""
        ArraysOnly().save(folder, arrays, run_id)

    def train(self, place: "NodeContext", arrays: Arrays, clip: float) -> "ClippedSum":
        """What this client's records give at these parameters, clipped as the task's unit says."""
        return trained(self.task, loaded(self._module, arrays), self._clients[place.partition()], clip, place)

    def predict(self, folder: Path, texts: Sequence[str]) -> list[tuple[str, float]]:
        """Not for a module of one's own, which the folder does not hold."""
        del texts
        raise ConfigError(f"{folder} holds the model of a Python task: use it with fednode.load(folder, task).predict")


def trained(task: Task, module: "torch.nn.Module", data: ClientData, clip: float, place: "NodeContext") -> "ClippedSum":
    """The clipped sum of a member's records: of gradients, or with unit client of how far training moves the model."""
    from fednode.settings import from_run_config
    from fednode_clients.training.gradients import clipped_gradient_sum

    if task.unit == "client":
        return _moved(task, module, data, clip, from_run_config(place.run))
    return clipped_gradient_sum(module, data.inputs, data.targets, clip, groups=data.groups, loss=task.loss)


def _moved(
    task: Task, module: "torch.nn.Module", data: ClientData, clip: float, settings: RunSettings
) -> "LocalUpdate":
    import torch

    from fednode_clients.training.local import LocalTraining, local_update
    from fednode_clients.training.records import arguments, as_tensors, taken

    dtype = next(parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())
    tensors = as_tensors((data.inputs, data.targets), dtype)
    loss = task.loss or partial(torch.nn.functional.cross_entropy, reduction="none")

    def mean_loss(model: "torch.nn.Module", part: "torch.Tensor") -> "torch.Tensor":
        inputs, targets = taken(tensors, part.numpy())
        positional, named = arguments(inputs)
        return loss(model(*positional, **named), targets).mean()

    make = task.optimiser or partial(torch.optim.SGD, lr=settings.local_rate)
    training = LocalTraining(make, settings.local_epochs, proximal=settings.proximal, loss=mean_loss)
    return local_update(module, _Shuffled(len(data), settings.local_batch), clip, training)


class _Shuffled:
    """Batches of row numbers, shuffled anew each time they are gone through."""

    def __init__(self, count: int, size: int) -> None:
        self._count, self._size = count, size

    def __iter__(self) -> "Iterator[torch.Tensor]":
        import torch

        return iter(torch.split(torch.randperm(self._count), self._size))


def _units(data: ClientData) -> int:
    return len(data) if data.groups is None else len(np.unique(data.groups))
