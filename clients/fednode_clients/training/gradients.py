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
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fednode_clients.training.models import known_labels, parameter_count, to_vector

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
    """`vector` float64 (d,), the counts of records, of clipped records or groups, of dropped records: all private."""

    vector: Array = field(repr=False)
    records: int = field(repr=False)
    clip: float
    clipped: int = field(repr=False)
    dropped: int = field(repr=False)
    unit: str = "record"


def clipped_gradient_sum(
    model: "torch.nn.Module", features: Features, labels: Labels, clip: float, *, groups: Labels | None = None
) -> GradientSum:
    """Sum the records' clipped gradients at the model's current parameters; the module states the guarantee.

    `features` is [n, ...] as the model takes it, `labels` int [n]. A plain `torch.nn.Linear` takes the closed form in
    float64; any other module takes Opacus' grad sampler in micro-batches, in the module's own precision (dropout off).
    With `groups`, int [n], such as the customer of each record, the gradients of one group are added before clipping:
    replacing a whole group's contribution by zero moves the sum by at most `clip`. The model is left as it was.
    """
    _check(features, labels, clip)
    if groups is not None and (groups.shape != labels.shape or groups.dtype.kind not in "iu"):
        raise ValueError(f"groups are {groups.dtype} {groups.shape}; they must be integers, one for each record")
    total = np.zeros(parameter_count(model), dtype=np.float64)
    lost = np.zeros_like(total)
    records, clipped, dropped = len(labels), 0, max(0, len(labels) - MAX_RECORDS)
    if len(labels):
        features, labels = features[:MAX_RECORDS], labels[:MAX_RECORDS]
        sizes = None
        if groups is not None:
            order, sizes = _together(groups, len(labels))
            features, labels = features[order], labels[order]
        for block_sum, block_clipped, block_dropped in _blocks(model, features, labels, clip, sizes):
            owed = block_sum - lost
            grown = total + owed
            lost = (grown - total) - owed
            total = grown
            clipped += block_clipped
            dropped += block_dropped
    unit = "record" if groups is None else "customer"
    return GradientSum(total, records, clip, clipped, dropped, unit)


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


Block = tuple[Array, int, int]
"""The sum of a block's clipped gradients, how many were clipped, how many records were dropped."""


def _blocks(
    model: "torch.nn.Module", features: Features, labels: Labels, clip: float, sizes: NDArray[np.int64] | None
) -> Iterator[Block]:
    import torch

    if type(model) is torch.nn.Linear and all(p.requires_grad for p in model.parameters()):
        head = _Head(model, features, labels)
        return head.blocks(clip) if sizes is None else head.group_blocks(clip, sizes)
    return _sampled_blocks(model, features, labels, clip, sizes)


class _Head:
    """A linear layer: the gradient of record (x, y) is the outer product of r = softmax(Wx + b) - y and (x, 1)."""

    def __init__(self, model: "torch.nn.Linear", features: Features, labels: Labels) -> None:
        self._classes, dimension = model.weight.shape
        if features.shape != (len(labels), dimension):
            raise ValueError(f"features have shape {features.shape}; the model takes {(len(labels), dimension)}")
        flat = to_vector(model)
        end = self._classes * dimension
        self._weight, self._bias = flat[:end].reshape(self._classes, dimension), flat[end:]
        self._features, self._labels = features, labels

    def blocks(self, clip: float) -> Iterator[Block]:
        """Of each record alone: its norm is |r| |(x, 1)|, no need to form the product."""
        for start in range(0, len(self._labels), BLOCK):
            x, residual, usable = self._factors(slice(start, start + BLOCK))
            norms = np.where(usable, _norms(residual) * np.hypot(_norms(x), float(len(self._bias) > 0)), np.nan)
            scales = clip_scales(norms, clip)
            block = self._product(np.where(scales[:, None] > 0, residual, 0.0) * scales[:, None], x)
            yield block, *_counts(norms, clip)

    def group_blocks(self, clip: float, sizes: NDArray[np.int64]) -> Iterator[Block]:
        """Of each group, whose product is formed from its own records alone."""
        ends = np.cumsum(sizes)
        for start, end in zip(ends - sizes, ends, strict=True):
            x, residual, usable = self._factors(slice(start, end))
            usable &= np.isfinite(residual).all(axis=1)
            residual[~usable] = 0.0
            block, clipped, lost = _clipped(self._product(residual, x)[None], clip)
            yield block, clipped, int((~usable).sum()) + lost * int(usable.sum())

    def _factors(self, part: slice) -> tuple[Array, Array, NDArray[np.bool_]]:
        x = self._features[part].astype(np.float64)
        known, y = known_labels(self._labels[part], self._classes)
        usable = np.isfinite(x).all(axis=1) & known
        x[~usable] = 0.0
        return x, _residuals(x @ self._weight.T + (self._bias if len(self._bias) else 0.0), y), usable

    def _product(self, residual: Array, x: Array) -> Array:
        parts = [(residual.T @ x).ravel()] + ([residual.sum(axis=0)] if len(self._bias) else [])
        return np.concatenate(parts)


def _sampled_blocks(
    model: "torch.nn.Module", features: Features, labels: Labels, clip: float, sizes: NDArray[np.int64] | None
) -> Iterator[Block]:
    from fednode_clients.training.opacus_gradients import record_gradients

    rows = record_gradients(model, features, labels)
    return (_clipped(gradients, clip) for gradients in rows) if sizes is None else _group_blocks(rows, sizes, clip)


def _group_blocks(rows: Iterator[Array], sizes: NDArray[np.int64], clip: float) -> Iterator[Block]:
    """Each group's records are added one after the other: its sum does not depend on how micro-batches cut it."""
    each = (row for gradients in rows for row in gradients)
    for size in sizes:
        used = [False] * int(size)
        total = np.zeros(1)
        for at, row in enumerate(islice(each, int(size))):
            used[at] = bool(np.isfinite(row).all())
            total = total + (row if used[at] else np.zeros_like(row))
        block, clipped, lost = _clipped(total[None], clip)
        yield block, clipped, used.count(False) + lost * used.count(True)


def _clipped(gradients: Array, clip: float) -> Block:
    """The sum of these rows, each clipped; one that is not finite, or whose norm is not, counts as zero."""
    gradients[~np.isfinite(gradients).all(axis=1)] = np.nan
    norms = _norms(gradients)
    gradients[~np.isfinite(norms)] = 0.0
    return clip_scales(norms, clip) @ gradients, *_counts(norms, clip)


def _counts(norms: Array, clip: float) -> tuple[int, int]:
    finite = np.isfinite(norms)
    return int((finite & (norms > clip)).sum()), int((~finite).sum())


def _norms(rows: Array) -> Array:
    """The L2 norm of each row; no square overflows or vanishes. NaN for a row with NaN."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = rows / unit[:, None]
        norms: Array = unit * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return norms


def _together(groups: Labels, count: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """The order that brings the records of a group together, and how many each group has."""
    order = np.argsort(groups[:count], kind="stable")
    _, sizes = np.unique(groups[:count], return_counts=True)
    return order, sizes


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
