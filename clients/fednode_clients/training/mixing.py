"""Which layer of a model gives a record another result beside other records, or another one the second time."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    Tensors = list[torch.Tensor]


@dataclass(slots=True)
class Trace:
    """What a model gave; what each layer took and gave, inner ones first; the error and its layer, if it raised."""

    outputs: "Tensors" = field(default_factory=list, repr=False)
    calls: "list[tuple[str, Tensors, Tensors]]" = field(default_factory=list, repr=False)
    error: Exception | None = None
    layer: str = "the model"


def traced(module: "torch.nn.Module", run: Callable[[], Any]) -> Trace:
    """Let `run` call the module, with hooks on all its layers."""
    trace, inside, hooks = Trace(), list[str](), []

    def ended(_layer: Any, inputs: Any, outputs: Any) -> None:
        trace.calls.append((inside.pop(), _tensors(inputs), _tensors(outputs)))

    for name, layer in module.named_modules():
        title = f"layer {name!r} ({type(layer).__name__})" if name else f"the model ({type(layer).__name__})"
        # a compiled module takes no hooks
        with suppress(RuntimeError):
            hooks.append(layer.register_forward_pre_hook(lambda *_, title=title: inside.append(title)))
            hooks.append(layer.register_forward_hook(ended))
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
    for call, *others in zip(trace.calls, *(one.calls for one in alone), strict=False):
        same_inputs = alike(call[1], [other[1] for other in others], tolerance)
        if same_inputs and not alike(call[2], [other[2] for other in others], tolerance):
            return str(call[0])
    return trace.calls[-1][0] if trace.calls else "the model"


def alike(together: "Tensors", alone: "Sequence[Tensors]", tolerance: float) -> bool:
    """Whether tensors for several records hold, on whichever dimension, those for each of them."""
    return all(_holds(first, parts, tolerance) for first, *parts in zip(together, *alone, strict=False))


def _holds(together: "torch.Tensor", alone: "Tensors", tolerance: float) -> bool:
    import torch

    for at, part in enumerate(alone):
        mine = together
        for d, size in enumerate(part.shape if together.ndim == part.ndim else ()):
            if together.shape[d] == len(alone) * size and len(alone) > 1:
                mine = mine.narrow(d, at * size, size)
        room = tolerance * float(part.abs().nan_to_num().max()) if part.numel() and tolerance else 0.0
        if mine.shape != part.shape or not torch.allclose(mine.double(), part.double(), 0.0, room, equal_nan=True):
            return False
    return True


def _tensors(values: Any) -> "Tensors":
    """The floating tensors, copied: a later layer may change them in place."""
    import torch
    from torch.utils._pytree import tree_leaves

    found = (value for value in tree_leaves(values) if isinstance(value, torch.Tensor) and value.is_floating_point())
    return [value.detach().clone() for value in found]
