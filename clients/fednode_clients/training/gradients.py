"""The result of local training: the sum of the records' cross-entropy gradients, each clipped on its own.

Guarantee: replacing one record's contribution by zero moves the vector by at most `clip` in L2 norm, floating-point
error included. Each contribution is clipped to clip * (1 - 2^-20); the rest covers rounding: of the norm, below 2^-21
relative, and of two float64 sums over up to 2^20 records, in blocks of up to 1,024 added with Kahan's compensation,
below 2 * 2^20 * (2^10 + 3) * 2^-53 < 2^-21 of `clip`. On Opacus' path the module computes gradients in its own
precision. The guarantee assumes that other records of a micro-batch do not change a record's gradient, so layers that
mix records are refused.

    gradient not finite (NaN or infinity in features, or overflow)   contributes zero, counted in `dropped`
    label outside the model's classes                                contributes zero, counted in `dropped`
    records after the first 2^20                                     contribute zero, counted in `dropped`
    gradient zero                                                    contributes zero
    no records                                                       zeros, records = 0
    wrong shapes                                                     ValueError
    a layer that mixes records, such as BatchNorm                    ConfigError

The values of records raise nothing: what a client says must not depend on them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fednode_clients.training.models import known_labels, parameter_count, to_vector, travelling

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]
Features = NDArray[np.float32]
Labels = NDArray[np.int64]

BLOCK = 1024
MAX_RECORDS = 2**20
_KEPT = 1.0 - 2.0**-20


@dataclass(frozen=True, slots=True, eq=False)
class GradientSum:
    """`vector` float64 (d,) and the counts of records, clipped and dropped ones: all private until noised."""

    vector: Array = field(repr=False)
    records: int = field(repr=False)
    clip: float
    clipped: int = field(repr=False)
    dropped: int = field(repr=False)


def clipped_gradient_sum(model: "torch.nn.Module", features: Features, labels: Labels, clip: float) -> GradientSum:
    """Sum the records' clipped gradients at the model's current parameters; the module states the guarantee.

    `features` is [n, ...] as the model takes it, `labels` int [n]. A plain `torch.nn.Linear` takes the closed form in
    float64; any other module takes Opacus' grad sampler in micro-batches, in the module's own precision (dropout off).
    The model is left as it was.
    """
    _check(features, labels, clip)
    total = np.zeros(parameter_count(model), dtype=np.float64)
    lost = np.zeros_like(total)
    clipped, dropped = 0, max(0, len(labels) - MAX_RECORDS)
    if len(labels):
        used = slice(0, MAX_RECORDS)
        for block_sum, block_clipped, block_dropped in _blocks(model, features[used], labels[used], clip):
            owed = block_sum - lost
            grown = total + owed
            lost = (grown - total) - owed
            total = grown
            clipped += block_clipped
            dropped += block_dropped
    return GradientSum(total, len(labels), clip, clipped, dropped)


def clip_scales(norms: Array, clip: float) -> Array:
    """The factors that clip gradients of these L2 norms, float64 (n,): 0 where the norm is not finite.

    Scaled norms never exceed `clip`: a norm above clip * (1 - 2^-20) is scaled to that.
    """
    bound = clip * _KEPT
    over = np.isfinite(norms) & (norms > bound)
    scales = np.isfinite(norms).astype(np.float64)
    np.divide(bound, norms, out=scales, where=over)
    # a subnormal scale has too few bits to bring the norm to the bound
    scales[scales < np.finfo(np.float64).tiny] = 0.0
    return scales


def _blocks(
    model: "torch.nn.Module", features: Features, labels: Labels, clip: float
) -> Iterator[tuple[Array, int, int]]:
    import torch

    if type(model) is torch.nn.Linear and all(p.requires_grad for p in model.parameters()):
        return _linear_blocks(model, features, labels, clip)
    return _sampled_blocks(model, features, labels, clip)


def _linear_blocks(
    model: "torch.nn.Linear", features: Features, labels: Labels, clip: float
) -> Iterator[tuple[Array, int, int]]:
    """The gradient of record (x, y) is the outer product of r = softmax(Wx + b) - y and (x, 1): no need to form it."""
    names = [name for name, _ in travelling(model)]
    classes, dimension = model.weight.shape
    if features.shape != (len(labels), dimension):
        raise ValueError(f"features have shape {features.shape}; the model takes {(len(labels), dimension)}")
    flat = to_vector(model)
    weight, bias = flat[: classes * dimension].reshape(classes, dimension), flat[classes * dimension :]
    for start in range(0, len(labels), BLOCK):
        x = features[start : start + BLOCK].astype(np.float64)
        known, y = known_labels(labels[start : start + BLOCK], classes)
        usable = np.isfinite(x).all(axis=1) & known
        x[~usable] = 0.0
        residual = _residuals(x @ weight.T + (bias if "bias" in names else 0.0), y)
        inputs = np.einsum("ij,ij->i", x, x) + ("bias" in names)
        norms = np.sqrt(np.einsum("ij,ij->i", residual, residual)) * np.sqrt(inputs)
        norms[~usable] = np.nan
        scales = clip_scales(norms, clip)
        residual = np.where(scales[:, None] > 0, residual, 0.0) * scales[:, None]
        parts = [(residual.T @ x).ravel()] + ([residual.sum(axis=0)] if "bias" in names else [])
        yield np.concatenate(parts), int((norms > clip).sum()), int((~np.isfinite(norms)).sum())


def _sampled_blocks(
    model: "torch.nn.Module", features: Features, labels: Labels, clip: float
) -> Iterator[tuple[Array, int, int]]:
    from fednode_clients.training.opacus_gradients import record_gradients

    for gradients in record_gradients(model, features, labels):
        usable = np.isfinite(gradients).all(axis=1)
        gradients[~usable] = 0.0
        norms = np.sqrt(np.einsum("ij,ij->i", gradients, gradients))
        yield clip_scales(norms, clip) @ gradients, int((norms > clip).sum()), int((~usable).sum())


def _residuals(scores: Array, labels: Labels) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        residual: Array = np.exp(scores - scores.max(axis=1, keepdims=True))
        residual /= residual.sum(axis=1, keepdims=True)
    residual[np.arange(len(labels)), labels] -= 1.0
    return residual


def _check(features: Features, labels: Labels, clip: float) -> None:
    if not (math.isfinite(clip) and clip > 0):
        raise ValueError(f"clip is {clip}; it must be a positive number")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"labels are {labels.dtype} {labels.shape}; they must be integers, one for each record")
    if features.ndim < 2 or features.dtype.kind != "f" or len(features) != len(labels):
        raise ValueError(
            f"features are {features.dtype} {features.shape} for {len(labels)} labels; give floating rows, one for each"
        )
