"""What stands in the cache for one version of the parameters: which chunk of which version holds which values."""

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

Floats: TypeAlias = NDArray[np.float64] | NDArray[np.float32]
Dtype = Literal["<f8", "<f4"]
_KIND: Final = "parameters"


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it lies in the backend: `version` wrote it, later ones share it as long as its bytes stay the same.

    `sha256` is that of the stored bytes, `digest` that of the float32 bytes that travel (`travel_digest`).
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
    """An array in its chunks, in order."""

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    chunks: tuple[StoredChunk, ...]

    def joined(self, values: Mapping[str, bytes]) -> Floats:
        """The array, read-only, from the bytes of its chunks."""
        # bytes are what no caller can write to, so neither can whoever gets a view of them
        pieces = [values[stored.id] for stored in self.chunks]
        flat: Floats = np.frombuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces), dtype=self.dtype)
        return flat.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of one version."""

    version: int
    metadata: Mapping[str, object]
    arrays: tuple[StoredArray, ...]

    def chunks(self) -> tuple[StoredChunk, ...]:
        """Every chunk, in the order of the arrays."""
        return tuple(stored for array in self.arrays for stored in array.chunks)

    def to_bytes(self) -> bytes:
        """The value under the manifest's key. Raises `ValueError` where the metadata is no JSON, or over 64 KiB."""
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
    def from_bytes(data: object, version: int) -> "Manifest":
        """The manifest of `version`. Raises `PeerFault` for anything else: what a store gives back can be damaged."""
        if not isinstance(data, bytes):
            raise PeerFault("malformed", "it is not bytes")
        frame = wire.unpack(_KIND, data)
        frame.header.integer("version", version, version)
        arrays = tuple(map(_array, json.loads(frame.body)["arrays"]))
        return Manifest(version, frame.header.fields("metadata").raw(), arrays)


def _array(row: Mapping[str, Any]) -> StoredArray:
    """The frame's digest has vouched for the row, so it is as `to_bytes` wrote it."""
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
    """An array's chunks with the little-endian bytes that are stored."""
    flat = np.ascontiguousarray(array).reshape(-1)
    dtype = dtype_of(array)
    return [
        (place, flat[place.first : place.first + place.count].astype(dtype, copy=False).tobytes())
        for place in chunks_of(name, flat.size)
    ]


def dtype_of(array: Floats) -> Dtype:
    """How an array is stored."""
    return "<f8" if array.dtype == np.float64 else "<f4"
