"""For training code of one's own: the two things that a client may return, each made by its own function.

A sum of clipped gradients and a clipped weight delta are both vectors of d numbers, but what they bound differs. Each
has its type, which names its unit, and a round takes no other unit than its own: neither passes as the other.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from fednode.errors import ConfigError
from fednode.front.data import as_arrays
from fednode.front.losses import per_record

if TYPE_CHECKING:
    import torch

    from fednode.front.task import Unit
    from fednode_clients.client.privatise import ClippedSum
    from fednode_clients.training.gradients import GradientSum
    from fednode_clients.training.local import LocalUpdate


def gradient_sum(  # noqa: PLR0913 - what a sum is made of, the last two by name
    model: "torch.nn.Module",
    inputs: Any,
    targets: Any,
    clip: float,
    *,
    loss: Callable[..., Any] | None = None,
    groups: Any = None,
) -> "GradientSum":
    """The sum of the records' gradients, each clipped: unit record; with `groups`, the customer of each record, theirs.

    `loss` is as in `Task`. Raises `ConfigError` for a layer that mixes records.
    """
    from fednode_clients.training.gradients import clipped_gradient_sum

    groups = None if groups is None else as_arrays(groups)
    return clipped_gradient_sum(
        model, as_arrays(inputs), as_arrays(targets), clip, groups=groups, loss=per_record(loss)
    )


def local_update(  # noqa: PLR0913 - how a client trains, by name
    model: "torch.nn.Module",
    batches: Iterable[Any],
    clip: float,
    *,
    optimiser: "Callable[..., torch.optim.Optimizer]",
    loss: Callable[..., Any] | None = None,
    epochs: int = 1,
    proximal: float = 0.0,
) -> "LocalUpdate":
    """Train `model` in place on batches (*inputs, targets), such as a `DataLoader`: how far it moved, clipped once.

    Unit client. `optimiser` makes one over the parameters, `proximal` is the weight of FedProx, and `loss` takes what
    the model gives and the targets.
    """
    from fednode_clients.training.local import LocalTraining
    from fednode_clients.training.local import local_update as moved

    def mean(module: "torch.nn.Module", batch: Any) -> "torch.Tensor":
        *inputs, targets = batch
        found: torch.Tensor = loss(module(*inputs), targets).mean()  # type: ignore[misc]  # used with a loss alone
        return found

    training = LocalTraining(optimiser, epochs, proximal=proximal, loss=None if loss is None else mean)
    return moved(model, batches, clip, training)


def own_sum(found: Any, unit: "Unit") -> "ClippedSum":
    """What a training function returned. Raises `ConfigError` if it is neither type, or bounds another unit."""
    from fednode_clients.training.gradients import GradientSum
    from fednode_clients.training.local import LocalUpdate

    if not isinstance(found, GradientSum | LocalUpdate):
        raise ConfigError(
            f"train returned a {type(found).__name__}: return what fednode.gradient_sum or fednode.local_update gives"
        )
    if found.unit != unit:
        raise ConfigError(
            f"train returned a {type(found).__name__}, which bounds each {found.unit}, and the task's unit is {unit}: "
            f"return what fednode.{'local_update' if unit == 'client' else 'gradient_sum'} gives"
        )
    return found
