"""Per-record gradients of any torch module, by Opacus' grad sampler: the one file that imports Opacus.

Only the sampler is used, not Opacus' optimiser, noise or accountant: `gradients` clips, integer noise is added before
sealing, and the node's ledger does the accounting.
"""

import copy
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError
from fednode_clients.training.models import known_labels, travelling

if TYPE_CHECKING:
    import torch

# d x micro-batch float64 values at a time: 128 MB
_VALUES_AT_ONCE = 2**24
_MAX_MICRO_BATCH = 64


def record_gradients(
    model: "torch.nn.Module", features: NDArray[np.float32], labels: NDArray[np.int64]
) -> Iterator[NDArray[np.float64]]:
    """Yield float64 [micro-batch, d]: each record's own cross-entropy gradient, unclipped, ordered as in `to_vector`.

    A record with a label outside the classes has a row of NaN. Works on a copy with dropout off. Raises `ConfigError`
    for a module that mixes records or that Opacus cannot sample, `ValueError` for a shape that it does not take.
    """
    import torch

    sampler = _sampler(model)
    parameters = [parameter for _, parameter in travelling(sampler)]
    count = sum(parameter.numel() for parameter in parameters)
    size = max(1, min(_MAX_MICRO_BATCH, _VALUES_AT_ONCE // max(1, count)))
    for start in range(0, len(labels), size):
        x = torch.from_numpy(np.array(features[start : start + size], dtype=np.float32))
        scores = _scores(sampler, x)
        known, y = known_labels(labels[start : start + size], scores.shape[1])
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(y), reduction="sum")
        with warnings.catch_warnings():
            # the hook of a first layer sees no input gradient; the sampler does not need it
            warnings.filterwarnings("ignore", message="Full backward hook is firing", category=UserWarning)
            torch.autograd.backward(loss)
        rows = np.concatenate([_rows(parameter, len(y)) for parameter in parameters], axis=1)
        rows[~known] = np.nan
        yield rows
        sampler.zero_grad(set_to_none=True)


def _sampler(model: "torch.nn.Module") -> "torch.nn.Module":
    import torch
    from opacus import GradSampleModule
    from opacus.validators import ModuleValidator

    twin = copy.deepcopy(model).train()
    refused = ModuleValidator.validate(twin, strict=False)
    if refused:
        raise ConfigError(
            f"the model has a layer that mixes records or has no per-record gradient ({refused[0]}); "
            "use GroupNorm or LayerNorm instead of BatchNorm, or freeze the layer"
        )
    try:
        sampler: torch.nn.Module = GradSampleModule(twin, batch_first=True, loss_reduction="sum", strict=True)
    except NotImplementedError as error:
        raise ConfigError(f"the model has a layer that Opacus cannot sample ({error}); freeze or replace it") from None
    for module in sampler.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.eval()
    return sampler


def _scores(sampler: "torch.nn.Module", x: "torch.Tensor") -> "torch.Tensor":
    try:
        scores: torch.Tensor = sampler(x)
    except RuntimeError as error:
        raise ValueError(f"the model does not take features of shape {tuple(x.shape)}: {error}") from None
    if scores.ndim != 2 or len(scores) != len(x):
        raise ValueError(f"the model gives {tuple(scores.shape)} for {len(x)} records; it must be [records, classes]")
    return scores


def _rows(parameter: "torch.nn.Parameter", count: int) -> NDArray[np.float64]:
    sampled = getattr(parameter, "grad_sample", None)
    if sampled is None:
        return np.zeros((count, parameter.numel()))
    rows: NDArray[np.float64] = sampled.detach().cpu().double().reshape(count, -1).numpy()
    return rows
