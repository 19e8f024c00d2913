"""Losses with a value a record, made of those that torch has."""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

RecordLoss = Callable[[Any, Any], "torch.Tensor"]


def per_record(loss: Callable[..., Any] | None) -> RecordLoss | None:
    """The loss with one value a record: a function or module with a `reduction` is asked for none; None stays.

    A loss that has several values a record, such as the squared error of a vector, counts with their mean.
    """
    if loss is None or isinstance(loss, _PerRecord):
        return loss
    if hasattr(loss, "reduction"):
        loss = copy.copy(loss)
        loss.reduction = "none"
    elif "reduction" in _parameters(loss):
        loss = functools.partial(loss, reduction="none")
    return _PerRecord(loss)


def classifies(loss: RecordLoss) -> bool:
    """Whether the loss is torch's cross-entropy or its negative log-likelihood."""
    import torch

    inner = loss._loss if isinstance(loss, _PerRecord) else loss
    inner = inner.func if isinstance(inner, functools.partial) else inner
    kinds = (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss)
    return isinstance(inner, kinds) or inner in (torch.nn.functional.cross_entropy, torch.nn.functional.nll_loss)


def _parameters(loss: Callable[..., Any]) -> "tuple[str, ...]":
    try:
        return tuple(inspect.signature(loss).parameters)
    except (TypeError, ValueError):
        return ()


class _PerRecord:
    def __init__(self, loss: Callable[..., Any]) -> None:
        self._loss = loss

    def __call__(self, outputs: Any, targets: Any) -> "torch.Tensor":
        """float [records]. Raises `ValueError` for a loss with one value for all."""
        values: torch.Tensor = self._loss(outputs, targets)
        count = len(targets) if not isinstance(targets, tuple | list | dict) else None
        if not getattr(values, "ndim", 0) or (count is not None and len(values) != count):
            shape = tuple(getattr(values, "shape", ()))
            raise ValueError(f"the loss gives {shape}; it must give one value a record: leave its mean or sum out")
        return values.flatten(1).mean(1) if values.ndim > 1 else values
