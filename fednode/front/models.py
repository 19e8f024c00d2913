"""Models that treat each record by itself: what FedNode replaces, and what it refuses."""

import copy
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fednode.errors import ConfigError

if TYPE_CHECKING:
    import torch


def prepare_model(model: "torch.nn.Module") -> "torch.nn.Module":
    """A copy of the module without layers that mix the records of a batch; says what it did, a line each on stderr.

    BatchNorm in training mode becomes GroupNorm with the same weight and bias; a frozen one with running statistics
    goes into evaluation mode. LSTM, GRU and RNN stay as they are: each record is run by itself, so their gradients are
    right; they need batch_first=True.
    """
    found = copy.deepcopy(model)
    mixing, lines = [name for name, _ in mixing_layers(found)], []
    for name in mixing:
        layer: Any = found.get_submodule(name)
        frozen = not any(parameter.requires_grad for parameter in layer.parameters())
        if frozen and layer.affine and layer.running_mean is not None:
            layer.eval()
            lines.append(f"{name} ({type(layer).__name__}) is frozen: put into evaluation mode")
            continue
        norm = _group_norm(layer)
        if name:
            found.set_submodule(name, norm)
        else:
            found = norm
        lines.append(f"{name or 'the model'} ({type(layer).__name__}) is now {norm}")
    lines += list(_recurrent(found))
    for line in lines or ["every layer stays as it is"]:
        sys.stderr.write(f"prepare_model: {line}\n")
    return found


def mixing_layers(model: "torch.nn.Module") -> "Iterator[tuple[str, torch.nn.Module]]":
    """Name and layer of each BatchNorm that would take its statistics from a batch."""
    from torch.nn.modules.batchnorm import _BatchNorm

    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
            yield name, layer


def require_unmixed(model: "torch.nn.Module") -> None:
    """Raise `ConfigError` for BatchNorm in training mode: it mixes records, and its statistics do not travel."""
    for name, layer in mixing_layers(model):
        raise ConfigError(
            f"layer {name!r} ({type(layer).__name__}) mixes records: give Task fednode.prepare_model(model), which "
            "puts GroupNorm in its place, or call eval() on the layer to keep its running statistics"
        )


def _group_norm(layer: Any) -> "torch.nn.GroupNorm":
    """Of four channels a group or more: a group of one value would come out as zero."""
    import torch

    channels = layer.num_features
    most = max(1, min(32, channels // 4))
    groups = max(count for count in range(1, most + 1) if channels % count == 0)
    like = layer.weight if layer.affine else torch.zeros(0)
    norm = torch.nn.GroupNorm(groups, channels, layer.eps, affine=layer.affine, device=like.device, dtype=like.dtype)
    if layer.affine:
        norm.weight, norm.bias = layer.weight, layer.bias
    return norm


def _recurrent(model: "torch.nn.Module") -> Iterator[str]:
    from torch.nn.modules.rnn import RNNBase

    for name, layer in model.named_modules():
        if isinstance(layer, RNNBase):
            title = f"{name or 'the model'} ({type(layer).__name__})"
            if layer.batch_first:
                yield f"{title} stays as it is: each record is run by itself"
            else:
                yield f"{title} has records on its second dimension: build it with batch_first=True"
