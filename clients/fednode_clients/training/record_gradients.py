"""Each record's own gradient, of any torch module: what autograd gives for the record alone.

Each record is computed by itself, from one state of the model, by algorithms that give the same bits again: other
records do not change one bit of its gradient. A batch would be two to four times as fast, and is not used: sums over
records round differently with other company, and an index beyond a table can reach into another record's copy of it.

Before a sum the model is run on a few made-up records (`records.made_up`), together and each alone. If a record's
result differs, the model mixes records: what it learns alone is not what its author means, and it is refused with the
layer's name. So is one that gives a record another gradient the second time: it keeps something of earlier records.
Whether it is refused depends on the records' shapes and types only.
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
from fednode_clients.training.records import Records, as_tensors, made_up, rows_of, taken

if TYPE_CHECKING:
    import torch

Rows = NDArray[np.float64]

_FEW = 5
_BLOCK = 32
_VALUES_AT_ONCE = 2**24  # d x block float64 values: 128 MB


class RecordGradients:
    """The gradients of `(inputs, targets)` records of the given shapes; cross-entropy without a `loss`.

    Raises `ConfigError` for a model that mixes records or remembers them, `ValueError` for one that does not take them.
    """

    def __init__(self, model: "torch.nn.Module", records: Records, loss: Loss | None, least: "torch.dtype") -> None:
        self._model = LentModel(model, loss or _cross_entropy, least)
        self.few = made_up(records, _FEW)
        with self._model.lent():
            self.few_rows, outputs = self._checked()
        self._classes = outputs[0].shape[1] if loss is None else 0

    def _checked(self) -> "tuple[Rows, list[torch.Tensor]]":
        """The gradients of the made-up records, and what the model gives for the first."""
        model, tolerance = self._model, self._model.tolerance
        together = as_tensors(self.few, model.dtype, model.device)
        singles = [taken(together, slice(at, at + 1)) for at in range(_FEW)]
        whole, *each = (traced(model.module, partial(model.outputs, one[0])) for one in (together, *singles))
        failed = next((one for one in each if one.error), whole)
        if whole.error and failed is not whole:
            raise ValueError(f"the model does not take these records; in {whole.layer}: {whole.error}")
        if failed.error or not alike(whole.outputs, [one.outputs for one in each], tolerance):
            raise ConfigError(
                f"{failed.layer if failed.error else first_difference(whole, each, tolerance)} mixes records "
                f"({failed.error or 'the result of one depends on the others'}); use GroupNorm or LayerNorm instead of "
                "BatchNorm, or put it into evaluation mode, with running statistics; keep the record on the first "
                "dimension (batch_first=True); draw no random numbers"
            )
        rows = [model.alone(one) for one in (*singles, singles[0])]
        if not np.array_equal(rows.pop(), rows[0], equal_nan=True):
            again = traced(model.module, partial(model.outputs, singles[0][0]))
            raise ConfigError(
                f"{first_difference(again, each[:1], 0.0)} gives one record two gradients: it keeps something of "
                "earlier records; make it compute from its input and its parameters alone"
            )
        return np.concatenate(rows), each[0].outputs

    def rows(self, records: Records) -> Iterator[Rows]:
        """Yield float64 [block, d]: each record's own gradient, unclipped, ordered as in `models.to_vector`.

        NaN for a record with a label outside the classes or for which the model raises: a record must not decide about
        others.
        """
        width = self.few_rows.shape[1]
        size = max(1, min(_BLOCK, _VALUES_AT_ONCE // max(1, width)))
        for start in range(0, rows_of(records), size):
            inputs, targets = taken(records, slice(start, start + size))
            known = np.ones(rows_of(inputs), dtype=np.bool_)
            if self._classes:
                known, targets = known_labels(targets, self._classes)
            tensors = as_tensors((inputs, targets), self._model.dtype, self._model.device)
            rows = np.full((len(known), width), np.nan)
            with self._model.lent():
                for at in np.flatnonzero(known):
                    with suppress(Exception):
                        rows[at] = self._model.alone(taken(tensors, slice(at, at + 1)))
            yield rows


def agree(rows: Rows, others: Rows, tolerance: float) -> bool:
    """Whether gradients are finite and equal but for rounding, each relative to its norm or, if that is tiny, to 1."""
    apart, norms = np.linalg.norm(rows - others, axis=1), np.linalg.norm(others, axis=1)
    return bool((apart <= tolerance * (norms + 1024 * tolerance)).all())


def _cross_entropy(scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
    import torch

    shape = tuple(getattr(scores, "shape", ()))
    if len(shape) != 2 or shape[0] != len(labels):
        raise ValueError(f"the model gives {shape} for {len(labels)} records; it must be [records, classes]")
    return torch.nn.functional.cross_entropy(scores, labels, reduction="none")
