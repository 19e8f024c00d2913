"""Client data as arrays: numpy arrays, tensors, a `Dataset` or a `DataLoader`."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fednode.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """Records as arrays with a row each: `inputs` and `targets`, an array or a tuple or dict of arrays; `groups` int
    [n], the customer of each record, if the unit is a customer."""

    inputs: Any = field(repr=False)
    targets: Any = field(repr=False)
    groups: NDArray[np.int64] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        from fednode_clients.training.records import rows_of

        return rows_of((self.inputs, self.targets))

    def part(self, rows: slice) -> "ClientData":
        """Some of the records."""
        from fednode_clients.training.records import taken

        inputs, targets = taken((self.inputs, self.targets), rows)
        return ClientData(inputs, targets, None if self.groups is None else self.groups[rows])


def client_data(data: Any, unit: str, whose: str) -> ClientData:
    """The records of one client. `whose` names it in errors.

    `data` is (inputs, targets), with unit customer (inputs, targets, customers); a map-style `Dataset` of such items,
    or a `DataLoader` over one. Raises `DataError` with one sentence for anything else.
    """
    from torch.utils.data import DataLoader, Dataset, default_collate

    if isinstance(data, DataLoader):
        data = _joined(list(data), whose)
    elif isinstance(data, Dataset) and not hasattr(data, "__len__"):
        raise DataError(f"{whose}: a {type(data).__name__} has no length; give a DataLoader over it, or arrays")
    elif isinstance(data, Dataset):
        data = default_collate([data[at] for at in range(len(data))])  # type: ignore[arg-type]  # map-style
    parts = 3 if unit == "customer" else 2
    if not isinstance(data, tuple | list) or len(data) != parts:
        wanted = "(inputs, targets, customers)" if parts == 3 else "(inputs, targets)"
        raise DataError(f"{whose}: give {wanted}, a Dataset or a DataLoader of such items, not {_kind(data)}")
    arrays = [as_arrays(part) for part in data]
    try:
        found = ClientData(arrays[0], arrays[1], _groups(arrays[2]) if parts == 3 else None)
        _ = len(found)
    except ValueError as error:
        raise DataError(f"{whose}: {error}") from error
    return found


def digest(clients: Sequence[ClientData]) -> str:
    """The SHA-256 of all records of all clients, in hexadecimal: it names the population, and shows nothing of it."""
    from torch.utils._pytree import tree_leaves

    found = hashlib.sha256()
    for client in clients:
        for array in tree_leaves((client.inputs, client.targets)):
            found.update(f"{array.dtype}{array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def as_arrays(part: Any) -> Any:
    """Tensors as arrays, bfloat16 as float32; a list of numbers as one array."""
    import torch
    from torch.utils._pytree import tree_map

    def array(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach().cpu()
            return (leaf.float() if leaf.dtype is torch.bfloat16 else leaf).numpy()
        return np.asarray(leaf) if hasattr(leaf, "__array__") else leaf

    if isinstance(part, list) and part and not isinstance(part[0], dict | np.ndarray | torch.Tensor):
        # numbers, or rows of numbers; ragged ones are no array
        with suppress(ValueError):
            return np.asarray(part)
    return tree_map(array, part)


def _groups(customers: Any) -> NDArray[np.int64]:
    found: NDArray[np.int64] = np.unique(np.asarray(customers), return_inverse=True)[1].astype(np.int64)
    return found


def _joined(batches: list[Any], whose: str) -> Any:
    import torch
    from torch.utils._pytree import tree_map

    if not batches:
        raise DataError(f"{whose}: the DataLoader gives no batch; leave a client without records out")
    return tree_map(lambda *leaves: torch.cat([torch.as_tensor(leaf) for leaf in leaves]), *batches)


def _kind(data: Any) -> str:
    return f"{type(data).__name__} of {len(data)}" if isinstance(data, tuple | list) else type(data).__name__
