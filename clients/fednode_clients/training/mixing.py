"""Which layer of a model gives a record another result beside other records, or another one the second time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fednode_clients.training.records import leaves

if TYPE_CHECKING:
    import torch

    Tensors = list[torch.Tensor]


@dataclass(slots=True)
class Trace:
    """What one run of a model gave: floating tensors, and for each call of a layer, inner ones first, what went in and
    came out. If it raised: the error, and the layer that did."""

    outputs: "Tensors" = field(default_factory=list, repr=False)
    calls: "list[tuple[str, Tensors, Tensors]]" = field(default_factory=list, repr=False)
    error: Exception | None = None
    layer: str = "the loss"


def traced(module: "torch.nn.Module", run: Callable[[], Any]) -> Trace:
    """Let `run` call the module, with hooks on all its layers."""
    trace, inside, hooks = Trace(), list[str](), []

    def ended(_layer: Any, inputs: Any, outputs: Any) -> None:
        trace.calls.append((inside.pop(), _tensors(inputs), _tensors(outputs)))

    for name, layer in module.named_modules():
        title = f"layer {name!r} ({type(layer).__name__})" if name else f"the model ({type(layer).__name__})"
        try:
            hooks.append(layer.register_forward_pre_hook(lambda *_, title=title: inside.append(title)))
            hooks.append(layer.register_forward_hook(ended))
        except RuntimeError:
            # a compiled module takes no hooks
            continue
    try:
        trace.outputs = _tensors(run())
    except Exception as error:  # noqa: BLE001 - a module may raise anything
        trace.error, trace.layer = error, inside[-1] if inside else trace.layer
    finally:
        for hook in hooks:
            hook.remove()
    return trace


def first_difference(trace: Trace, alone: Sequence[Trace], tolerance: float) -> str:
    """The innermost layer that turns the same inputs into other outputs; without one, the model."""
    layer: str
    for (layer, inputs, outputs), *others in zip(trace.calls, *(one.calls for one in alone), strict=False):
        same_inputs = alike(inputs, [each for _, each, _ in others], tolerance)
        if same_inputs and not alike(outputs, [each for _, _, each in others], tolerance):
            return layer
    return trace.calls[-1][0] if trace.calls else "the model"


def alike(together: "Tensors", alone: "Sequence[Tensors]", tolerance: float) -> bool:
    """Whether tensors for several records hold, on whichever dimension, those for each of them."""
    return all(_holds(first, parts, tolerance) for first, *parts in zip(together, *alone, strict=False))


def _holds(together: "torch.Tensor", alone: "Tensors", tolerance: float) -> bool:
    import torch

    for at, part in enumerate(alone):
        if together.ndim != part.ndim:
            return False
        other = [d for d in range(part.ndim) if together.shape[d] != part.shape[d]]
        if len(other) > 1 or any(together.shape[d] != len(alone) * part.shape[d] for d in other):
            return False
        mine = together.narrow(other[0], at * part.shape[other[0]], part.shape[other[0]]) if other else together
        room = tolerance * float(part.abs().nan_to_num().max()) if part.numel() and tolerance else 0.0
        if not torch.allclose(mine.double(), part.double(), rtol=0.0, atol=room, equal_nan=True):
            return False
    return True


def _tensors(values: Any) -> "Tensors":
    """The floating tensors, copied: a later layer may change them in place."""
    import torch

    found = (value for value in leaves(values) if isinstance(value, torch.Tensor) and value.is_floating_point())
    return [value.detach().clone() for value in found]
