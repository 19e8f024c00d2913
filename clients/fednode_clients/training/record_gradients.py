"""Each record's own gradient, of any torch module: what autograd gives for the record alone.

Before a sum the model is run on a few made-up records (`records.made_up`), together and each alone. If a record's
result differs, the model mixes records and is refused with the layer's name; also if a record's second gradient
differs in one bit from its first, since then the model keeps something of earlier records.

A micro-batch always has the same shape; what is missing of it is filled with made-up records. Where torch's vmap gives
made-up records autograd's gradients, and the same bits in another place beside other records, it computes a
micro-batch at a time. Else each record is computed alone. Both ways, other records do not change one bit of a record's
gradient (vmap is trusted to keep records apart, also for values that no made-up record has), and what is decided here
depends on the records' shapes and types only.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError
from fednode_clients.training.lent import LentModel, Loss
from fednode_clients.training.mixing import alike, first_difference, traced
from fednode_clients.training.models import known_labels
from fednode_clients.training.records import Records, as_tensors, made_up, mapped, rows_of

if TYPE_CHECKING:
    import torch

Rows = NDArray[np.float64]

_FEW = 5
_MICRO_BATCH = 32
# d x micro-batch float64 values at a time: 128 MB
_VALUES_AT_ONCE = 2**24


class RecordGradients:
    """The gradients of `(inputs, targets)` records of the given shapes; cross-entropy without a `loss`.

    Raises `ConfigError` for a model that mixes records or remembers them, `ValueError` for one that does not take them.
    """

    def __init__(self, model: "torch.nn.Module", records: Records, loss: Loss | None = None) -> None:
        self._model, self._classes = LentModel(model, loss or _cross_entropy), 0
        self.few = made_up(records, _FEW)
        with self._model.lent():
            outputs = self._check()
            if loss is None:
                self._classes = outputs[0].shape[1]

    def _check(self) -> "list[torch.Tensor]":
        """What the model gives for one record."""
        model, tolerance = self._model, _tolerance(self._model.dtype)
        together, _ = as_tensors(self.few, model.dtype)
        singles = [_part(together, at) for at in range(_FEW)]
        whole, *each = (traced(model.module, partial(model.outputs, one[0])) for one in (together, *singles))
        failed = next((one for one in each if one.error), whole)
        if whole.error and failed is not whole:
            shapes = mapped(lambda array: array.shape[1:], self.few[0])
            raise ValueError(f"the model does not take records of shape {shapes}, in {whole.layer}: {whole.error}")
        if failed.error or not alike(whole.outputs, [one.outputs for one in each], tolerance):
            raise ConfigError(
                f"{failed.layer if failed.error else first_difference(whole, each, tolerance)} mixes records "
                f"({failed.error or 'the result of one depends on the others'}); use GroupNorm or LayerNorm instead of "
                "BatchNorm, or put it into evaluation mode, with running statistics; keep the record on the first "
                "dimension (batch_first=True); draw no random numbers"
            )
        self.few_rows = np.concatenate([model.alone(single) for single in singles])
        if not np.array_equal(model.alone(singles[0]), self.few_rows[:1], equal_nan=True):
            again = traced(model.module, partial(model.outputs, singles[0][0]))
            raise ConfigError(
                f"{first_difference(again, each[:1], 0.0)} gives one record two gradients: it keeps something of "
                "earlier records; make it compute from its input and its parameters alone"
            )
        return each[0].outputs

    def _choose(self, records: Records) -> None:
        """How many records make a micro-batch, and whether it is computed as one."""
        self._size = max(1, min(_MICRO_BATCH, _VALUES_AT_ONCE // max(1, self.few_rows.shape[1])))
        drawn, some = made_up(records, self._size), range(min(self._size, _FEW))
        order = np.random.default_rng(1).permutation(self._size)
        self._filling, _ = as_tensors(drawn, self._model.dtype)
        elsewhere, _ = as_tensors(mapped(lambda array: array[order], drawn), self._model.dtype)
        alone = np.concatenate([self._model.alone(_part(self._filling, at)) for at in some])
        self._together = False
        # vmap does not support every module
        with suppress(Exception):
            rows = self._model.together(self._filling)
            same = np.array_equal(self._model.together(elsewhere), rows[order])
            self._together = same and agree(rows[: len(some)], alone)

    def rows(self, records: Records) -> Iterator[Rows]:
        """Yield float64 [micro-batch, d]: each record's own gradient, unclipped, ordered as in `models.to_vector`.

        NaN for a record with a label outside the classes, with a value that its type in the model does not hold, or for
        which the model raises: a record must not decide about others.
        """
        with self._model.lent():
            self._choose(records)
        for start in range(0, rows_of(records), self._size):
            inputs, targets = mapped(lambda array, at=start: array[at : at + self._size], records)
            known = np.ones(1, dtype=np.bool_)
            if self._classes:
                known, targets = known_labels(targets, self._classes)
            some, fits = as_tensors((inputs, targets), self._model.dtype)
            with self._model.lent():
                rows = self._gradients(some, len(fits))
            rows[~(known & fits)] = np.nan
            yield rows

    def _gradients(self, some: Records, count: int) -> Rows:
        with suppress(Exception):
            return self._computed(some, slice(0, count))
        # a record for which the model raises leaves NaN
        rows = np.full((count, self.few_rows.shape[1]), np.nan)
        for at in range(count):
            with suppress(Exception):
                rows[at] = self._computed(some, slice(at, at + 1))[0]
        return rows

    def _computed(self, some: Records, part: slice) -> Rows:
        """The gradients of part of a micro-batch, each in its own place, beside made-up ones, or alone."""
        if not self._together:
            return np.concatenate([self._model.alone(_part(some, at)) for at in range(part.start, part.stop)])

        def filled(filling: "torch.Tensor", tensor: "torch.Tensor") -> "torch.Tensor":
            whole = filling.clone()
            whole[part] = tensor[part]
            return whole

        return self._model.together(mapped(filled, self._filling, some))[part]


def _part(records: Records, at: int) -> Records:
    return mapped(lambda tensor: tensor[at : at + 1], records)


def agree(rows: Rows, others: Rows, tolerance: float = 2.0**-11) -> bool:
    """Whether gradients are finite and equal but for rounding, each relative to its own norm."""
    apart = np.linalg.norm(rows - others, axis=1)
    return bool((apart <= tolerance * np.linalg.norm(others, axis=1)).all())


def _cross_entropy(scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
    import torch

    shape = tuple(getattr(scores, "shape", ()))
    if len(shape) != 2 or shape[0] != len(labels):
        raise ValueError(f"the model gives {shape} for {len(labels)} records; it must be [records, classes]")
    return torch.nn.functional.cross_entropy(scores, labels, reduction="none")


def _tolerance(dtype: "torch.dtype") -> float:
    """What rounding may do to a result: half of the digits."""
    import torch

    return float(torch.finfo(dtype).eps ** 0.5)
