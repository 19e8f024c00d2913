"""The update of the client unit: how far local training, of any kind, moves a model.

Guarantee: replacing everything that one client holds by zero moves the vector by at most `clip` in L2 norm, however far
training moved the parameters: the vector is clipped once, as a whole, and one that is not finite counts as zero. So any
optimiser, epochs, steps and module are right, also one that mixes records. Where training raises, replaces or freezes
parameters, this raises, and the client sends noise alone.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError
from fednode_clients.training.models import to_vector

if TYPE_CHECKING:
    import torch

    Loss = Callable[[torch.nn.Module, Any], torch.Tensor]
    MakeOptimiser = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]

# what remains covers the rounding of the norm and of the scaled vector
_KEPT = 1.0 - 2.0**-40


@dataclass(frozen=True, slots=True, eq=False)
class LocalUpdate:
    """`vector` float64 (d,): parameters before training less those after, clipped to `clip`; private until noised."""

    vector: NDArray[np.float64] = field(repr=False)
    clip: float
    unit: str = "client"


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """How a client trains: an optimiser over its parameters, `epochs` over the batches, at most `steps` steps.

    `proximal` is the weight mu of FedProx (Li et al. 2020, arXiv:1812.06127): mu / 2 times the squared distance from
    the model that was received is added to the loss. `loss` takes the module and a batch; without one a batch is
    inputs and labels, and the loss their cross-entropy. Without a `seed`, all draws of torch during training come from
    the operating system's randomness.
    """

    optimiser: "MakeOptimiser"
    epochs: int = 1
    steps: int | None = None
    proximal: float = 0.0
    loss: "Loss | None" = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.epochs < 1 or (self.steps is not None and self.steps < 1) or not self.proximal >= 0.0:
            raise ConfigError(
                f"local training of {self.epochs} epochs, at most {self.steps} steps, proximal {self.proximal}: give 1 "
                "epoch or more, 1 step or more, and a proximal weight of 0 or more"
            )


@dataclass(frozen=True, slots=True, eq=False)
class ShuffledBatches:
    """Batches of these tensors' rows, at most `size` each, shuffled anew each time they are gone through."""

    tensors: "tuple[torch.Tensor, ...]" = field(repr=False)
    size: int

    def __iter__(self) -> "Iterator[tuple[torch.Tensor, ...]]":
        import torch

        for rows in torch.split(torch.randperm(len(self.tensors[0])), self.size):
            yield tuple(tensor[rows] for tensor in self.tensors)


def local_update(model: "torch.nn.Module", batches: Iterable[Any], clip: float, training: LocalTraining) -> LocalUpdate:
    """Train `model` in place on the batches, a `DataLoader` for instance, and return how far it moved, clipped.

    Only trainable floating-point parameters travel. No batches, or a result that is not finite, give zeros.
    """
    import torch

    before = to_vector(model)
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        # one with buffers, such as BatchNorm, stays in the mode that its owner chose
        module.training = module.training or not any(True for _ in module.buffers(recurse=False))
    # the draws of the caller's own code go on as if nothing had been drawn here
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed takes a stack trace each time, for GPUs that are not there
        torch.default_generator.manual_seed(int.from_bytes(os.urandom(8)) if training.seed is None else training.seed)
        _train(model, batches, training)
    for module, before_it in modes:
        module.training = before_it
    return LocalUpdate(clipped(before - to_vector(model), clip), clip)


def clipped(vector: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
    """The vector with an L2 norm of at most `clip`; zeros if its norm is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.linalg.norm(vector))
    if not np.isfinite(norm):
        return np.zeros_like(vector)
    return vector if norm <= clip else vector * (clip / norm * _KEPT)


def _train(model: "torch.nn.Module", batches: Iterable[Any], training: LocalTraining) -> None:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    anchors = [parameter.detach().clone() for parameter in parameters] if training.proximal else []
    optimiser, loss = training.optimiser(parameters), training.loss or _cross_entropy

    def closure(batch: Any) -> float:
        optimiser.zero_grad()
        value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]  # torch
        for parameter, anchor in zip(parameters, anchors, strict=bool(anchors)):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - anchor, alpha=training.proximal)
        return float(value.detach())

    taken = 0
    for _ in range(training.epochs):
        for batch in batches:
            if taken == training.steps:
                return
            optimiser.step(partial(closure, batch))
            taken += 1


def _cross_entropy(model: "torch.nn.Module", batch: Any) -> "torch.Tensor":
    import torch

    *inputs, labels = batch
    return torch.nn.functional.cross_entropy(model(*inputs), labels)
