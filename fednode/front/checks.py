"""What is wrong with a task or its data, said where it can be mended: before a run, on the machine of its author."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError, DataError, FednodeError, one_line

if TYPE_CHECKING:
    from fednode.front.data import ClientData
    from fednode.front.task import Task
    from fednode.settings import RunSettings

_FEW = 8


def check_task(task: "Task") -> None:
    """Raise `ConfigError` for what no data are needed to see."""
    import torch

    model: object = task.model
    options: object = task.options
    if not isinstance(model, torch.nn.Module):
        made = ": make one, with its brackets" if isinstance(model, type) else ""
        raise ConfigError(f"model is {_named(model)}, and has to be a torch.nn.Module{made}")
    if not isinstance(options, Mapping):
        raise ConfigError("options is a mapping of settings by name, such as {'holders': 3, 'threshold': 2}")
    for name, given in (("loss", task.loss), ("optimiser", task.optimiser), ("train", task.train)):
        if given is not None and (not callable(given) or (name == "loss" and isinstance(given, type))):
            raise ConfigError(f"{name} is {_named(given)}, and has to be a function, or a module with its brackets")
    if task.optimiser is not None and task.unit != "client":
        raise ConfigError("optimiser is that of local training: with unit record and customer the node alone steps")
    numbers: dict[str, object] = {"records": task.records, "max_records": task.max_records}
    for name, number in numbers.items():
        if number is not None and (not isinstance(number, int) or number < 1):
            raise ConfigError(f"{name} is {number!r}, and has to be a whole number of 1 or more")
    for name, parameter in task.model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise ConfigError(f"parameter {name} of the model is not finite: start training from finite numbers")


def check_clients(clients: Sequence["ClientData"]) -> None:
    """Raise `DataError` for clients whose records do not fit together, or that hold none that can be used."""
    shapes = [_shapes(client) for client in clients]
    for at, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise DataError(f"records of client {at} are {shape}, those of client 0 {shapes[0]}: make them alike")
    if not any(_usable(client).any() for client in clients):
        raise DataError("no client has a record with finite numbers alone: look how the features were made")


def unusable(clients: Sequence["ClientData"]) -> Iterator[str]:
    """A sentence for each client with records that would add nothing."""
    for at, client in enumerate(clients):
        lost = len(client) - int(_usable(client).sum())
        if lost:
            yield f"client {at}: {lost} of {len(client)} records hold NaN or infinity and add nothing"


def check_training(task: "Task", clients: Sequence["ClientData"], settings: "RunSettings") -> None:
    """Train a copy on a few records of the first client that has some, and throw away what comes of it.

    Raises `ConfigError` for a model or a loss that cannot be trained on such records, with the layer's name where one
    is to blame, and `DataError` for labels that the model has no class for.
    """
    from fednode.front.training import clipped_sum, outputs_of

    few = next(client for client in clients if len(client)).part(slice(0, _FEW))
    module = task.module()
    outputs = _attempted("the model does not take these records", lambda: outputs_of(module, few.inputs))
    if task.loss is None or task.classifies:
        _require_classes(clients, outputs)
    _attempted(
        "training fails on the first records", lambda: clipped_sum(task, task.module(), few, settings.clip, settings)
    )


def _attempted(what: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except FednodeError:
        raise
    # whatever the model or the loss of somebody else raises
    except Exception as error:
        raise ConfigError(f"{what}: {type(error).__name__}: {one_line(str(error), 300)}") from error


def _require_classes(clients: Sequence["ClientData"], outputs: Any) -> None:
    shape = tuple(getattr(outputs, "shape", ()))
    if len(shape) != 2 or shape[1] < 2:
        raise ConfigError(
            f"the model gives an array of shape {shape}, and cross-entropy takes [records, classes]: change the last "
            "layer, or give Task the loss that fits"
        )
    for at, client in enumerate(clients):
        labels = client.targets
        if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise DataError(
                f"labels of client {at} are not whole numbers, one a record, as cross-entropy takes them: give "
                "labels.astype(int), or argmax(axis=1) of one-hot labels"
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() < shape[1]):
            raise DataError(
                f"client {at} has labels from {labels.min()} to {labels.max()}, and the model {shape[1]} classes: "
                f"labels are 0 to {shape[1] - 1}"
            )


def _shapes(client: "ClientData") -> str:
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves((client.inputs, client.targets))
    return " and ".join(f"{leaf.dtype} {[*leaf.shape[1:]]} each" for leaf in leaves)


def _usable(client: "ClientData") -> NDArray[np.bool_]:
    from torch.utils._pytree import tree_leaves

    usable = np.ones(len(client), dtype=np.bool_)
    for leaf in tree_leaves((client.inputs, client.targets)):
        if leaf.dtype.kind == "f":
            usable &= np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
    return usable


def _named(given: object) -> str:
    return given.__name__ if isinstance(given, type) else f"a {type(given).__name__}"
