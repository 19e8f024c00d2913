"""Models as flat vectors: only trainable floating-point parameters travel, in the order in which the module names them.

Buffers (running statistics, integer counters) and frozen parameters do not travel: they would be released without
noise, and integers cannot be clipped or noised. Each member has them in its own module. torch is imported when needed.
"""

import hashlib
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError

if TYPE_CHECKING:
    import torch

Vector = NDArray[np.float64]


def linear_head(dimension: int, classes: int) -> "torch.nn.Linear":
    """A linear layer with bias, float32, all zeros: every client starts from the same public point, without a seed."""
    import torch

    if dimension < 1 or classes < 2:
        raise ValueError(f"a linear head needs 1 feature and 2 classes or more, not {dimension} and {classes}")
    # built without storage first: the usual initialiser would draw from torch's global generator
    head = torch.nn.Linear(dimension, classes, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
    return head


def travelling(model: "torch.nn.Module") -> "list[tuple[str, torch.nn.Parameter]]":
    """Name and parameter of each one that travels, each once. Raises `ConfigError` for a trained complex one."""
    for name, p in model.named_parameters():
        if p.requires_grad and p.is_complex():
            raise ConfigError(f"parameter {name} is complex: train torch.view_as_real of it, which holds two real ones")
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()]


def frozen_parts(model: "torch.nn.Module") -> tuple[int, str]:
    """How many arrays of the model do not travel, and the SHA-256 of their names, types and values, in hexadecimal."""
    import torch

    trained, found = {name for name, _ in travelling(model)}, hashlib.sha256()
    parts = {name: part for name, part in chain(model.named_parameters(), model.named_buffers()) if name not in trained}
    for name, part in sorted(parts.items()):
        found.update(f"{name} {part.dtype} {tuple(part.shape)};".encode())
        found.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return len(parts), found.hexdigest()


def kind_of(model: "torch.nn.Module") -> "tuple[torch.dtype | None, torch.device | None]":
    """Type and device of the model's first floating-point parameter."""
    first = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), None)
    return (None, None) if first is None else (first.dtype, first.device)


def parameter_count(model: "torch.nn.Module") -> int:
    """d: the length of the flat vector."""
    return sum(parameter.numel() for _, parameter in travelling(model))


def to_vector(model: "torch.nn.Module") -> Vector:
    """The travelling parameters as one float64 vector (d,), a copy."""
    parts = [parameter.detach().cpu().double().numpy().ravel() for _, parameter in travelling(model)]
    return np.concatenate(parts) if parts else np.zeros(0)


def load_vector(model: "torch.nn.Module", vector: Vector) -> None:
    """Write a float64 vector (d,) into the travelling parameters, rounded to their own type.

    Raises `ValueError`, and changes nothing, if the length differs or a value does not fit the parameter's type.
    """
    import torch

    parameters = [parameter for _, parameter in travelling(model)]
    count = sum(parameter.numel() for parameter in parameters)
    if vector.shape != (count,):
        raise ValueError(f"the model takes {count} parameters and was given an array of shape {vector.shape}")
    sizes = [parameter.numel() for parameter in parameters]
    pieces = torch.split(torch.from_numpy(np.array(vector, dtype=np.float64)), sizes) if sizes else ()
    rounded = [piece.to(p.dtype).view_as(p) for piece, p in zip(pieces, parameters, strict=True)]
    if not all(bool(torch.isfinite(piece).all()) for piece in rounded):
        raise ValueError("a parameter is not finite in the model's own type; nothing was loaded")
    with torch.no_grad():
        for parameter, piece in zip(parameters, rounded, strict=True):
            parameter.copy_(piece)


def known_labels(labels: NDArray[np.int64], classes: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which labels are in 0 .. classes - 1, and the labels with 0 for the others."""
    known: NDArray[np.bool_] = (labels >= 0) & (labels < classes)
    return known, np.where(known, labels, 0).astype(np.int64)
