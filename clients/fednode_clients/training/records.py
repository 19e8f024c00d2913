"""Records as a model takes them: an array with one row a record, or a tuple or dict of such arrays.

Floating values are cast to the model's own type, integers (token ids) to int64; booleans (masks) stay.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Records = Any
"""An array, or a tuple, list or dict of arrays; from `as_tensors` on, of tensors."""


def rows_of(records: Records) -> int:
    """How many records there are. Raises `ValueError` unless each array of numbers has one row for each."""
    from torch.utils._pytree import tree_leaves

    arrays = tree_leaves(records)
    numbers = all(isinstance(array, np.ndarray) and array.ndim and array.dtype.kind in "fiub" for array in arrays)
    if not numbers or len({len(array) for array in arrays}) != 1:
        raise ValueError("give arrays of numbers, each with as many rows as there are records, one for each")
    return len(arrays[0])


def taken(records: Records, part: slice | NDArray[np.intp]) -> Records:
    """Some of the records."""
    from torch.utils._pytree import tree_map

    return tree_map(lambda array: array[part], records)


def as_tensors(records: Records, dtype: "torch.dtype", device: "torch.device | None" = None) -> Records:
    """The records as tensors on the device; a finite value that `dtype` does not hold becomes infinite."""
    import torch
    from torch.utils._pytree import tree_map

    def cast(array: NDArray[Any]) -> "torch.Tensor":
        if array.dtype.kind == "f":
            return torch.from_numpy(array.astype(np.float64)).to(dtype).to(device)
        return torch.from_numpy(array.astype(np.int64 if array.dtype.kind in "iu" else np.bool_)).to(device)

    return tree_map(cast, records)


def made_up(records: Records, count: int) -> Records:
    """`count` records of the same shapes and types, always the same ones: nothing of the given ones is in them.

    Floating values are between 0 and 1, integers 0 or 1 (the first two tokens or labels), booleans False.
    """
    from torch.utils._pytree import tree_map

    rng = np.random.default_rng(0)

    def drawn(array: NDArray[Any]) -> NDArray[Any]:
        shape = (count, *array.shape[1:])
        if array.dtype.kind == "f":
            return rng.random(shape)
        return rng.integers(0, 2, shape) if array.dtype.kind in "iu" else np.zeros(shape, dtype=np.bool_)

    return tree_map(drawn, records)


def arguments(inputs: Records) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments with which a model is called."""
    if isinstance(inputs, dict):
        return (), inputs
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}
