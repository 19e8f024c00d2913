"""The manifest of one version of the parameters: it names the chunks, and the version that wrote each."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fednode import wire
from fednode.errors import PeerFault
from fednode.protocol.chunks import Chunk, chunks_of
from fednode.reasons import Reason

Floats: TypeAlias = NDArray[np.float64] | NDArray[np.float32]
Dtype = Literal["<f8", "<f4"]
_KIND: Final = "parameters"
_METADATA: Final = wire.MAX_HEADER - 20
"""Bytes of JSON, with room for the digits of a version's number."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk in the backend. `version` wrote it; later versions share it until its bytes change.

    `sha256` is over the stored bytes, `digest` over the float32 bytes that travel (`travel_digest`).
    """

    chunk: Chunk
    version: int
    sha256: bytes
    digest: bytes

    @property
    def id(self) -> str:
        """The chunk's name, the same in all versions."""
        return self.chunk.id


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array as its chunks, in order."""

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    chunks: tuple[StoredChunk, ...]

    def joined(self, values: Mapping[str, bytes]) -> Floats:
        """The array, read-only, from the bytes of its chunks."""
        # a view of bytes is read-only
        pieces = [values[stored.id] for stored in self.chunks]
        flat: Floats = np.frombuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces), dtype=self.dtype)
        return flat.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class ModelManifest:
    """One whole version."""

    version: int
    metadata: Mapping[str, object]
    arrays: tuple[StoredArray, ...]

    def chunks(self) -> tuple[StoredChunk, ...]:
        """Every chunk, in the order of the arrays."""
        return tuple(stored for array in self.arrays for stored in array.chunks)

    def to_bytes(self) -> bytes:
        """The value under the manifest's key. Raises `ValueError` if the metadata is not JSON, or over 64 KiB."""
        rows = [
            {
                "name": array.name,
                "shape": list(array.shape),
                "dtype": array.dtype,
                "chunks": [[c.version, c.sha256.hex(), c.digest.hex()] for c in array.chunks],
            }
            for array in self.arrays
        ]
        return wire.pack(
            _KIND, {"version": self.version, "metadata": dict(self.metadata)}, wire.canonical({"arrays": rows})
        )

    @staticmethod
    def from_bytes(data: object, version: int) -> "ModelManifest":
        """The manifest of `version`. Raises `PeerFault` for anything else: a stored value can be damaged."""
        if not isinstance(data, bytes):
            raise PeerFault(Reason.MALFORMED, "it is not bytes")
        frame = wire.unpack(_KIND, data)
        frame.header.integer("version", version, version)
        try:
            arrays = tuple(map(_array, json.loads(frame.body)["arrays"]))
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise PeerFault(Reason.MALFORMED, "its arrays do not parse") from error
        return ModelManifest(version, frame.header.fields("metadata").raw(), arrays)


def _array(row: Mapping[str, Any]) -> StoredArray:
    """The frame's digest was checked, so the row is as `to_bytes` wrote it."""
    name, shape = str(row["name"]), tuple(int(size) for size in row["shape"])
    stored = tuple(
        StoredChunk(place, int(version), bytes.fromhex(sha), bytes.fromhex(digest))
        for place, (version, sha, digest) in zip(chunks_of(name, math.prod(shape)), row["chunks"], strict=True)
    )
    return StoredArray(name, shape, "<f8" if row["dtype"] == "<f8" else "<f4", stored)


def travel_digest(values: NDArray[np.generic]) -> bytes:
    """32 bytes over the little-endian float32 bytes of a chunk, as it travels."""
    return wire.digest("chunk", np.ascontiguousarray(values, dtype="<f4").tobytes())


def cut(name: str, array: Floats) -> list[tuple[Chunk, bytes]]:
    """An array's chunks, each with the little-endian bytes to store."""
    flat = np.ascontiguousarray(array).reshape(-1)
    dtype = dtype_of(array)
    return [
        (place, flat[place.first : place.first + place.count].astype(dtype, copy=False).tobytes())
        for place in chunks_of(name, flat.size)
    ]


def dtype_of(array: Floats) -> Dtype:
    """The dtype in which an array is stored."""
    return "<f8" if array.dtype == np.float64 else "<f4"


def plain_arrays(arrays: object) -> dict[str, Floats]:
    """Plain views of these arrays by name. Raises `ValueError` for what cannot be stored, as `write` says."""
    if not isinstance(arrays, Mapping) or not arrays:
        raise ValueError('parameters must be at least one array by name; write them as {"weights": array}')
    return {_plain_name(name): _plain_array(name, array) for name, array in arrays.items()}


def json_metadata(metadata: Mapping[str, object]) -> Mapping[str, object]:
    """`metadata` as a reader will get it: tuples become lists. Raises `ValueError` if anything else would change.

    JSON turns keys that are not text into text, so two different dicts could be stored as the same.
    """
    try:
        # with the levels around it, as it is stored
        text = wire.canonical({"metadata": dict(metadata), "version": 0})
        back = wire.parse(text, _METADATA).fields("metadata").raw()
    except (TypeError, ValueError, RecursionError, PeerFault) as error:
        raise ValueError(
            f"the metadata of parameters must be a dict of JSON values, at most {_METADATA} bytes and "
            f"{wire.MAX_DEPTH - 2} levels: {error}"
        ) from error
    if not _same(metadata, back):
        raise ValueError("the metadata of parameters would change in JSON: keys must be text, without surrogates")
    return back


def _plain_name(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError(f"names of parameters must be str, not {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the name {name!r} has a lone surrogate (at {error.start}); give UTF-8 text") from error
    return str(name)


def _plain_array(name: str, array: object) -> Floats:
    if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray):
        view: Floats = array.view(np.ndarray)
        if view.dtype in (np.float64, np.float32) and np.isfinite(view).all():
            return view
    raise ValueError(f"parameters must be numpy arrays of finite float64 or float32 values; {name!r} is not")


def _same(given: object, back: object) -> bool:
    if isinstance(given, Mapping):
        return (
            isinstance(back, dict)
            and len(given) == len(back)
            and all(isinstance(key, str) and key in back and _same(one, back[key]) for key, one in given.items())
        )
    if isinstance(given, list | tuple):
        return isinstance(back, list) and len(given) == len(back) and all(map(_same, given, back))
    return bool(given == back)
