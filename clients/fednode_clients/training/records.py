"""Records as a model takes them: an array with one row a record, or a tuple or dict of such arrays.

Floating values are cast to the model's own type, integers (token ids) to int64; booleans (masks) stay.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Records = Any
"""An array, or a tuple, list or dict of records; in `as_tensors` and after it, of tensors."""


def mapped(change: Callable[..., Any], *records: Records) -> Records:
    """The same structure with `change` of the arrays that stand in one place."""
    first = records[0]
    if isinstance(first, dict):
        return {name: mapped(change, *(one[name] for one in records)) for name in first}
    if isinstance(first, tuple | list):
        return tuple(mapped(change, *parts) for parts in zip(*records, strict=True))
    return change(*records)


def leaves(records: Records) -> Iterator[Any]:
    """The arrays, in their order."""
    if isinstance(records, dict):
        records = tuple(records.values())
    if isinstance(records, tuple | list):
        for part in records:
            yield from leaves(part)
    else:
        yield records


def rows_of(records: Records) -> int:
    """How many records there are. Raises `ValueError` unless each array of numbers has one row for each."""
    arrays = list(leaves(records))
    if not arrays or not all(isinstance(a, np.ndarray) and a.ndim and a.dtype.kind in "fiub" for a in arrays):
        raise ValueError("give the records as arrays of numbers, with one row for each record")
    if len({len(array) for array in arrays}) != 1:
        raise ValueError(f"arrays of {[len(array) for array in arrays]} rows; give one for each record")
    return len(arrays[0])


def as_tensors(records: Records, dtype: "torch.dtype") -> tuple[Records, NDArray[np.bool_]]:
    """The records as tensors, and which of them fit: no finite value of theirs became infinite."""
    import torch

    fits = np.ones(len(next(leaves(records))), dtype=np.bool_)

    def cast(array: NDArray[Any]) -> "torch.Tensor":
        if array.dtype.kind != "f":
            return torch.from_numpy(array.astype(np.int64 if array.dtype.kind in "iu" else np.bool_))
        tensor = torch.from_numpy(array.astype(np.float64)).to(dtype)
        overflown = np.isfinite(array) & ~torch.isfinite(tensor).numpy()
        fits[overflown.reshape(len(array), -1).any(axis=1)] = False
        return tensor

    return mapped(cast, records), fits


def made_up(records: Records, count: int) -> Records:
    """`count` records of the same shapes and types, always the same ones: nothing of the given ones is in them.

    Floating values are between 0 and 1, integers 0 or 1 (the first two tokens or labels), booleans False.
    """
    rng = np.random.default_rng(0)

    def drawn(array: NDArray[Any]) -> NDArray[Any]:
        shape = (count, *array.shape[1:])
        if array.dtype.kind == "f":
            return rng.random(shape)
        return rng.integers(0, 2, shape) if array.dtype.kind in "iu" else np.zeros(shape, dtype=np.bool_)

    return mapped(drawn, records)


def arguments(inputs: Records) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments with which a model is called."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}
