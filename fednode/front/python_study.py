"""A task and its clients' data as a study: what `fednode.assemble` runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednode.assemble.serve import ArraysOnly
from fednode.assemble.study import Arrays, Workload
from fednode.errors import ConfigError, DataError
from fednode.front.checks import check_clients, check_training, unusable
from fednode.front.data import ClientData, client_data, digest
from fednode.front.task import Task, loaded
from fednode.front.training import clipped_sum, outputs_of
from fednode.settings import RunSettings, from_run_config

if TYPE_CHECKING:
    from fednode_clients.client.privatise import ClippedSum
    from fednode_clients.membership import NodeContext


class ModelTest:
    """Measures a model on a test set, if there is one, and saves its arrays; `fednode.assemble.study.Evaluator`."""

    def __init__(self, task: Task, test: ClientData | None) -> None:
        self._test, self._module = test, task.module()

    def hits(self, arrays: Arrays) -> Mapping[str, tuple[int, int]]:
        """For each class of the test records: how many the model gets right, of how many; none unless it classifies."""
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


class PythonStudy:
    """A simulation's study: each client's records in memory; `fednode.assemble.study.Study`."""

    def __init__(self, task: Task, clients: Sequence[Any], test: Any = None) -> None:
        if not isinstance(clients, list | tuple) or not clients:
            raise DataError("clients is a list with the records of each client, such as [(x1, y1), (x2, y2)]")
        self._clients = [client_data(data, task.unit, f"client {at}") for at, data in enumerate(clients)]
        self._test = None if test is None else client_data(test, "record", "the test set")
        check_clients(self._clients if self._test is None else [*self._clients, self._test])
        self.task = task.with_counts([_units(data) for data in self._clients])
        self._module = task.module()

    def workload(self, settings: RunSettings) -> Workload:
        """The task's, with the name of these records, once a few of them have been trained on."""
        check_training(self.task, self._clients, settings)
        return replace(
            self.task.workload(),
            dataset=f"arrays-{digest(self._clients)[:12]}",
            source="arrays given to a simulation",
            warnings=tuple(unusable(self._clients)),
        )

    def evaluator(self, settings: RunSettings) -> "ModelTest":
        """The test set, which is in memory."""
        del settings
        return ModelTest(self.task, self._test)

    def train(self, place: "NodeContext", arrays: Arrays, clip: float) -> "ClippedSum":
        """What this client's records give at these parameters, clipped as the task's unit says."""
        data, settings = self._clients[place.partition()], from_run_config(place.run)
        # the client unit trains in place, buffers included: each client has its own
        module = self.task.module() if self.task.unit == "client" else self._module
        return clipped_sum(self.task, loaded(module, arrays), data, clip, settings)

    def predict(self, folder: Path, texts: Sequence[str]) -> list[tuple[str, float]]:
        """Not for a module of one's own, which the folder does not hold."""
        del texts
        raise ConfigError(f"{folder} holds the model of a Python task: use it with fednode.load(folder, task).predict")


def _units(data: ClientData) -> int:
    return len(data) if data.groups is None else len(np.unique(data.groups))
