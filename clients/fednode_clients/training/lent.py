"""A model that is lent for the computing of gradients: it starts each from one and the same state.

Dropout is off: a module without buffers of its own is in evaluation mode. One with buffers, such as BatchNorm, stays in
the mode that its owner chose. Weights in half precision are widened to float32. Afterwards all is as it was.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednode_clients.training.models import travelling
from fednode_clients.training.records import Records, arguments, leaves, mapped

if TYPE_CHECKING:
    import torch

Loss = Callable[[Any, Any], "torch.Tensor"]
"""What the model gives for records, and their targets -> one value a record."""


class LentModel:
    """The model and the loss of a record. Everything but `lent` is called while it is lent."""

    def __init__(self, model: "torch.nn.Module", loss: Loss) -> None:
        import torch

        self.module, self._loss, self._trained = model, loss, dict(travelling(model))
        floating = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        self.dtype = torch.promote_types(floating, torch.float32)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Evaluation mode and one state while this lasts."""
        import torch

        held = [*self.module.parameters(), *self.module.buffers()]
        narrow = [(tensor, tensor.data) for tensor in held if tensor.dtype in (torch.float16, torch.bfloat16)]
        modes = [(module, module.training) for module in self.module.modules()]
        with _undisturbed():
            try:
                for tensor, data in narrow:
                    tensor.data = data.float()
                for module, mode in modes:
                    module.training = mode and any(True for _ in module.buffers(recurse=False))
                self._random = torch.get_rng_state()
                self._attributes = [(vars(module), dict(vars(module))) for module, _ in modes]
                self._buffers = [(module._buffers, dict(module._buffers)) for module, _ in modes if module._buffers]
                self._values = [(buffer, buffer.clone(), buffer._version) for buffer in self.module.buffers()]
                yield
            finally:
                for module, mode in modes:
                    module.training = mode
                for tensor, data in narrow:
                    tensor.data = data

    def outputs(self, inputs: Records) -> Any:
        """What the model gives for these tensors."""
        import torch

        positional, named = arguments(inputs)
        try:
            torch.set_rng_state(self._random)
            with torch.enable_grad():
                return self.module(*positional, **named)
        finally:
            self._restore()

    def alone(self, record: Records) -> NDArray[np.float64]:
        """The gradient of the inputs and targets of one record, float64 [1, d]: plain autograd."""
        import torch

        inputs, targets = record
        outputs, trained = self.outputs(inputs), list(self._trained.values())
        with torch.enable_grad():
            value = self._loss(outputs, targets)
            if value.numel() != 1:
                raise ValueError(f"the loss of one record has shape {tuple(value.shape)}; give one value a record")
            gradients: tuple[torch.Tensor | None, ...] = (None,) * len(trained)
            if value.requires_grad:
                gradients = torch.autograd.grad(value.sum(), trained, allow_unused=True)
        return _flat((torch.zeros_like(p) if g is None else g for p, g in zip(trained, gradients, strict=True)), 1)

    def together(self, records: Records) -> NDArray[np.float64]:
        """The gradients of several records, float64 [n, d], by torch's vmap over the record.

        All share the weights: with a copy for each, an embedding's index beyond its table reads the next one's copy.
        """
        import torch

        def value(trained: "dict[str, torch.Tensor]", record: Records) -> "torch.Tensor":
            inputs, targets = mapped(lambda tensor: tensor[None], record)
            return self._loss(torch.func.functional_call(self.module, trained, *arguments(inputs)), targets).sum()

        trained = {name: parameter.detach() for name, parameter in self._trained.items()}
        try:
            gradients = torch.func.vmap(torch.func.grad(value), in_dims=(None, 0))(trained, records)
            return _flat(gradients.values(), len(next(leaves(records))))
        finally:
            self._restore()

    def _restore(self) -> None:
        for now, before in (*self._attributes, *self._buffers):
            for name in now.keys() - before.keys():
                del now[name]
            now.update(before)
        for at, (buffer, value, version) in enumerate(self._values):
            if buffer._version != version:
                buffer.detach().copy_(value)
                self._values[at] = buffer, value, buffer._version


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Torch's algorithms give the same bits again, its generator is put back, warnings are not repeated a record."""
    import torch

    mode, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=warn_only or not mode)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(mode, warn_only=warn_only)


def _flat(gradients: "Iterable[torch.Tensor]", count: int) -> NDArray[np.float64]:
    parts = [part.detach().to_dense().cpu().double().reshape(count, -1).numpy() for part in gradients]
    return np.concatenate([np.zeros((count, 0)), *parts], axis=1)
