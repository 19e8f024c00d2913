"""The result of local training: the sum of the records' gradients, each clipped on its own.

Guarantee: replacing one record's contribution by zero moves the vector by at most `clip` in L2 norm, floating-point
error included, for a model that computes from its input, parameters and buffers. So does leaving the record out where
there are no more than 2^20; of more, the next one takes its place. A record's gradient is what autograd gives for it
alone (`record_gradients`), or, for a plain linear layer, the closed form in float64. Each is clipped to clip * (1 -
2^-20); the rest covers rounding: of the norm, below 2^-21 relative, and of two float64 sums over up to 2^20 records, in
blocks of up to 1,024 added by Kahan's method, below 2 * 2^20 * (2^10 + 3) * 2^-53 < 2^-21 of `clip`.

    gradient not finite (NaN or infinity in features, or overflow)   contributes zero, counted in `dropped`
    label outside the model's classes                                contributes zero, counted in `dropped`
    a record for which the model raises, such as an unknown token    contributes zero, counted in `dropped`
    records after the first 2^20                                     contribute zero, counted in `dropped`
    no records                                                       zeros, records = 0
    wrong shapes or types                                            ValueError
    a layer that mixes records, such as BatchNorm, or remembers them ConfigError with the layer's name

The values of records raise nothing: what a client says must not depend on them, and one record must not decide whether
the others contribute. So the check of the model takes made-up records of the same shapes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fednode_clients.training.lent import Loss
from fednode_clients.training.models import known_labels, parameter_count, travelling
from fednode_clients.training.record_gradients import RecordGradients, agree
from fednode_clients.training.records import Records, rows_of, taken

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]
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


def clipped_gradient_sum(  # noqa: PLR0913 - what a sum is made of, the last two by name
    model: "torch.nn.Module",
    features: Records,
    labels: Records,
    clip: float,
    *,
    groups: Labels | None = None,
    loss: Loss | None = None,
) -> GradientSum:
    """Sum the records' clipped gradients at the model's current parameters; the module states the guarantee.

    `features` is [n, ...] as the model takes it, or a tuple or dict of such arrays, floating or integers. `labels` is
    int [n], and the loss cross-entropy; or anything that `loss` takes: it gets what the model gives for records, and
    their labels, and gives one value a record. A plain `torch.nn.Linear` takes the closed form; any other module
    computes in its own precision, but for half precision, which is widened to float32. Dropout is off; BatchNorm has to
    be in evaluation mode. With `groups`, int [n], such as the customer of each record, the gradients of one group are
    added before clipping: leaving out a whole group moves the sum by at most `clip`. The model is left as it was.
    """
    count = _check(features, labels, clip, groups, labelled=loss is None)
    total = np.zeros(parameter_count(model), dtype=np.float64)
    lost = np.zeros_like(total)
    clipped, dropped = 0, max(0, count - MAX_RECORDS)
    if count:
        records, sizes = taken((features, labels), slice(0, MAX_RECORDS)), None
        if groups is not None:
            records = taken(records, np.argsort(groups[:MAX_RECORDS], kind="stable"))
            sizes = np.unique(groups[:MAX_RECORDS], return_counts=True)[1]
        for block_sum, block_clipped, block_dropped in _blocks(model, records, loss, clip, sizes):
            owed = block_sum - lost
            grown = total + owed
            lost = (grown - total) - owed
            total = grown
            clipped += block_clipped
            dropped += block_dropped
    unit = "record" if groups is None else "customer"
    return GradientSum(total, count, clip, clipped, dropped, unit)


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
    model: "torch.nn.Module", records: Records, loss: Loss | None, clip: float, sizes: NDArray[np.int64] | None
) -> Iterator[Block]:
    import torch

    plain = loss is None and _is_plain(model)
    sampler = RecordGradients(model, records, loss, torch.float64 if plain else torch.float32)
    if plain:
        one_each = np.ones(len(sampler.few_rows), dtype=np.int64)
        few = [row for row, _, _ in _Head(model, *sampler.few).group_blocks(math.inf, one_each)]
        # what the type does not show, such as a hook for all modules
        if agree(np.array(few), sampler.few_rows, 2.0**-20):
            head = _Head(model, *records)
            return head.blocks(clip) if sizes is None else head.group_blocks(clip, sizes)
    rows = sampler.rows(records)
    return (_clipped(gradients, clip) for gradients in rows) if sizes is None else _group_blocks(rows, sizes, clip)


def _is_plain(model: "torch.nn.Module") -> bool:
    """Whether this is a linear layer whose trained weight and bias are all that it has."""
    import torch

    names = [name for name, _ in travelling(model)]
    return (
        type(model) is torch.nn.Linear
        and names in (["weight", "bias"], ["weight"])
        and len(names) == len(list(model.parameters()))
        and not any(value for name, value in vars(model).items() if name.endswith("hooks"))
        and not any((model._buffers, model._modules, "forward" in vars(model), "weight" in vars(model)))
    )


class _Head:
    """A linear layer: the gradient of record (x, y) is the outer product of r = softmax(Wx + b) - y and (x, 1)."""

    def __init__(self, model: "torch.nn.Module", features: NDArray[np.floating], labels: Labels) -> None:
        weight, *bias = (parameter.detach().double().cpu().numpy() for _, parameter in travelling(model))
        self._weight, self._bias = weight, bias[0] if bias else np.zeros(0)
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
        known, y = known_labels(self._labels[part], len(self._weight))
        usable = np.isfinite(x).all(axis=1) & known
        x[~usable] = 0.0
        # each record's scores by themselves: those of one product round differently with other records beside them,
        # and where features are huge, that is another gradient
        scores = np.matmul(self._weight, x[:, :, None])[:, :, 0]
        return x, _residuals(scores + (self._bias if len(self._bias) else 0.0), y), usable

    def _product(self, residual: Array, x: Array) -> Array:
        parts = [(residual.T @ x).ravel()] + ([residual.sum(axis=0)] if len(self._bias) else [])
        return np.concatenate(parts)


def _group_blocks(rows: Iterator[Array], sizes: NDArray[np.int64], clip: float) -> Iterator[Block]:
    """Each group's records are added one after the other: its sum does not depend on how micro-batches cut it."""
    each = (row for gradients in rows for row in gradients)
    for size in sizes:
        total, unusable = np.zeros(1), 0
        for row in islice(each, int(size)):
            usable = bool(np.isfinite(row).all())
            total, unusable = total + np.where(usable, row, 0.0), unusable + (not usable)
        block, clipped, lost = _clipped(total[None], clip)
        yield block, clipped, unusable + lost * (int(size) - unusable)


def _clipped(gradients: Array, clip: float) -> Block:
    """The sum of these rows, each clipped; one that is not finite, or whose norm is not, counts as zero."""
    gradients[~np.isfinite(gradients).all(axis=1)] = np.nan
    norms = _norms(gradients)
    gradients[~np.isfinite(norms)] = 0.0
    return clip_scales(norms, clip) @ gradients, *_counts(norms, clip)


def _counts(norms: Array, clip: float) -> tuple[int, int]:
    return int(((norms > clip) & (norms < np.inf)).sum()), int((~np.isfinite(norms)).sum())


def _norms(rows: Array) -> Array:
    """The L2 norm of each row; no square overflows or vanishes. NaN for a row with NaN."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = rows / unit[:, None]
        norms: Array = unit * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return norms


def _residuals(scores: Array, labels: Labels) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        residual: Array = np.exp(scores - scores.max(axis=1, keepdims=True))
        residual /= residual.sum(axis=1, keepdims=True)
    residual[np.arange(len(labels)), labels] -= 1.0
    return residual


def _check(features: Records, labels: Records, clip: float, groups: Labels | None, *, labelled: bool) -> int:
    """How many records there are."""
    if not (math.isfinite(clip) and clip > 0):
        raise ValueError(f"clip is {clip}; it must be a positive number")
    count = rows_of((features, labels))
    for name, numbers in (("labels", labels if labelled else None), ("groups", groups)):
        if numbers is not None and (rows_of(numbers) != count or numbers.ndim != 1 or numbers.dtype.kind not in "iu"):
            raise ValueError(f"{name} are {numbers.dtype} {numbers.shape}; they must be integers, one for each record")
    return count
