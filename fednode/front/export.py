"""Trained arrays as a file of the formats that others read."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fednode.disk.atomic import write_whole
from fednode.errors import ConfigError


def write_arrays(arrays: Mapping[str, NDArray[np.generic]], path: Path) -> Path:
    """Write named arrays to `path`: safetensors, npz, or pt, a state dict of torch, by what its name ends with.

    Raises `ConfigError` for another ending, `StoreError`.
    """
    memory = io.BytesIO()
    match path.suffix:
        case ".safetensors":
            from safetensors.numpy import save

            memory.write(save(dict(arrays)))
        case ".npz":
            np.savez(memory, **arrays)  # type: ignore[arg-type]  # no array is called allow_pickle
        case ".pt":
            import torch

            torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, memory)
        case _:
            raise ConfigError(f"{path} names no format; end it with .safetensors, .npz or .pt")
    write_whole(path, memory.getvalue(), 0o644)
    return path
