"""A model that is lent for the computing of gradients: it starts each from one and the same state.

Dropout is off: a module without buffers of its own is in evaluation mode. One with buffers, such as BatchNorm, stays in
the mode that its owner chose. Weights in half precision are widened to float32. Afterwards all is as it was.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednode_clients.training.models import kind_of, travelling
from fednode_clients.training.records import Records, arguments

if TYPE_CHECKING:
    import torch

# what is set meanwhile holds for all of torch
_ONE_AT_A_TIME = threading.RLock()

Loss = Callable[[Any, Any], "torch.Tensor"]
"""What the model gives for records, and their targets -> one value a record."""


class LentModel:
    """The model and the loss of a record. Everything but `lent` is called while it is lent."""

    def __init__(self, model: "torch.nn.Module", loss: Loss, least: "torch.dtype") -> None:
        import torch

        self.module, self._loss, self._trained = model, loss, dict(travelling(model))
        floating, self.device = kind_of(model)
        self.dtype = torch.promote_types(floating or least, least)
        self.tolerance = torch.finfo(self.dtype).eps ** 0.5

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Evaluation mode and one state while this lasts; torch's algorithms give the same bits again."""
        import torch

        held = (tensor for tensor in (*self.module.parameters(), *self.module.buffers()) if tensor.is_floating_point())
        narrow = [(t, t.data) for t in held if torch.promote_types(t.dtype, self.dtype) != t.dtype]
        modes = [(module, module.training) for module in self.module.modules()]
        with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before = torch.get_deterministic_debug_mode()
            torch.set_deterministic_debug_mode("warn")
            for tensor, data in narrow:
                tensor.data = data.to(self.dtype)
            for module, training in modes:
                module.training = training and any(True for _ in module.buffers(recurse=False))
            self._random = torch.get_rng_state()
            states = (state for module, _ in modes for state in (vars(module), module._buffers))
            self._state = [(state, dict(state)) for state in states if isinstance(state, dict)]
            self._values = [(buffer, buffer.clone(), buffer._version) for buffer in self.module.buffers()]
            try:
                yield
            finally:
                self._restore()
                torch.set_deterministic_debug_mode(before)
                for module, training in modes:
                    module.training = training
                for tensor, data in narrow:
                    tensor.data = data

    def outputs(self, inputs: Records) -> Any:
        """What the model gives for these tensors."""
        import torch

        self._restore()
        torch.set_rng_state(self._random)
        positional, named = arguments(inputs)
        with torch.enable_grad():
            return self.module(*positional, **named)

    def alone(self, record: Records) -> NDArray[np.float64]:
        """The gradient of the inputs and targets of one record, float64 [1, d]: plain autograd."""
        import torch

        inputs, targets = record
        outputs, trained = self.outputs(inputs), list(self._trained.values())
        with torch.enable_grad():
            value = self._loss(outputs, targets)
            if value.numel() != 1:
                raise ValueError(f"the loss of one record has shape {tuple(value.shape)}; give one value a record")
            parts = [torch.zeros_like(parameter) for parameter in trained]
            if value.requires_grad:
                parts = list(torch.autograd.grad(value.sum(), trained, allow_unused=True, materialize_grads=True))
        flat = [part.detach().to_dense().cpu().double().numpy().ravel() for part in parts]
        return np.concatenate([np.zeros(0), *flat])[None]

    def _restore(self) -> None:
        for now, before in self._state:
            for name in now.keys() - before.keys():
                del now[name]
            now.update(before)
        for buffer, value, version in self._values:
            if buffer._version != version:
                buffer.detach().copy_(value)
