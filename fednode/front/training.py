"""What a member computes with a task's module: its clipped sum, and what the module gives."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednode.front.data import ClientData, as_arrays
from fednode.front.own_training import own_sum
from fednode.front.task import Task
from fednode.settings import RunSettings

if TYPE_CHECKING:
    import torch

    from fednode_clients.client.privatise import ClippedSum
    from fednode_clients.training.local import LocalUpdate


def clipped_sum(
    task: Task, module: "torch.nn.Module", data: ClientData, clip: float, settings: RunSettings
) -> "ClippedSum":
    """What a member's records give at the parameters of `module`: the sum of clipped gradients, or with unit client how
    far local training moves the module, clipped."""
    from fednode_clients.training.gradients import clipped_gradient_sum

    if task.train is not None:
        groups = () if data.groups is None else (data.groups,)
        return own_sum(task.train(module, (data.inputs, data.targets, *groups), clip), task.unit)
    if task.unit == "client":
        return _moved(task, module, data, clip, settings)
    return clipped_gradient_sum(module, data.inputs, data.targets, clip, groups=data.groups, loss=task.loss)


def _moved(
    task: Task, module: "torch.nn.Module", data: ClientData, clip: float, settings: RunSettings
) -> "LocalUpdate":
    import torch

    from fednode_clients.training.local import LocalTraining, ShuffledBatches, local_update
    from fednode_clients.training.models import kind_of
    from fednode_clients.training.records import arguments, as_tensors, taken

    dtype, device = kind_of(module)
    tensors = as_tensors((data.inputs, data.targets), dtype or torch.float32, device)
    loss = task.loss or partial(torch.nn.functional.cross_entropy, reduction="none")

    def mean_loss(model: "torch.nn.Module", part: "tuple[torch.Tensor]") -> "torch.Tensor":
        inputs, targets = taken(tensors, part[0].numpy())
        positional, named = arguments(inputs)
        return loss(model(*positional, **named), targets).mean()

    make = task.optimiser or partial(torch.optim.SGD, lr=settings.local_rate)
    training = LocalTraining(make, settings.local_epochs, proximal=settings.proximal, loss=mean_loss)
    rows = ShuffledBatches((torch.arange(len(data)),), settings.local_batch)
    return local_update(module, rows, clip, training)


def outputs_of(model: "torch.nn.Module", inputs: Any) -> NDArray[np.generic]:
    """What the model gives for these records, in evaluation mode, as an array."""
    import torch

    from fednode_clients.training.models import kind_of
    from fednode_clients.training.records import arguments, as_tensors

    dtype, device = kind_of(model)
    positional, named = arguments(as_tensors(as_arrays(inputs), dtype or torch.float32, device))
    mode = model.training
    model.eval()
    with torch.inference_mode():
        given = model(*positional, **named)
    model.train(mode)
    found: NDArray[np.generic] = given.float().cpu().numpy()
    return found
