"""The facts of a cached value, and its form as a file."""

import io
import sys
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from fednode.cache.backend import Value
from fednode.cache.values.codec import encode
from fednode.cache.values.freeze import size_of


@dataclass(frozen=True, slots=True)
class Contents:
    """One value: its kind, the bytes that it counts in the cache, and the SHA-256 of its file."""

    kind: str
    size: int
    digest: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


def file_of(value: Value) -> bytes:
    """The bytes that `--out` writes: bytes as they are, text as UTF-8, arrays and tensors as `.npy`, the rest as
    `fednode.cache.values.codec.encode` writes it."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    array = _array(value)
    if array is None:
        return encode(value)
    written = io.BytesIO()
    np.save(written, array, allow_pickle=False)
    return written.getvalue()


def contents_of(value: Value) -> tuple[Contents, bytes]:
    """The facts of `value`, and its file."""
    file = file_of(value)
    tensor = _is_tensor(value)
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    if tensor or isinstance(value, np.ndarray):
        shaped: Any = value
        dtype, shape = str(shaped.dtype), tuple(int(side) for side in shaped.shape)
    kind = "tensor" if tensor else "array" if shape is not None else "none" if value is None else type(value).__name__
    return Contents(kind, size_of(value), sha256(file).hexdigest(), dtype, shape), file


def _array(value: Value) -> Any:
    if isinstance(value, np.ndarray):
        return value
    if not _is_tensor(value):
        return None
    tensor: Any = value
    try:
        return tensor.numpy()
    except TypeError:
        # numpy has no such dtype (bfloat16): it gets the general form
        return None


def _is_tensor(value: Value) -> bool:
    # whoever holds a tensor has imported torch
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
