"""The manifest of one version of the parameters: which chunk of which version holds which values."""

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
class ModelManifest:
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
    def from_bytes(data: object, version: int) -> "ModelManifest":
        """The manifest of `version`. Raises `PeerFault` for anything else: what a store gives back can be damaged."""
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


def plain_arrays(arrays: object) -> dict[str, Floats]:
    """Plain views of these arrays by name. Raises `ValueError` for what cannot be stored, as `write` says."""
    if not isinstance(arrays, Mapping) or not arrays:
        raise ValueError('parameters are arrays by name, one at least; write them as {"weights": array}')
    return {_plain_name(name): _plain_array(name, array) for name, array in arrays.items()}


def json_metadata(metadata: object) -> Mapping[str, object]:
    """`metadata` as a reader will get them. Raises `ValueError` where they would change, except tuples to lists.

    JSON turns keys that are not text into text, so two different dicts could be stored as the same.
    """
    if not isinstance(metadata, Mapping):
        raise ValueError(f"the metadata of parameters are a dict of JSON values, no {type(metadata).__name__}")
    _check_depth(metadata)
    try:
        # with the levels around it, as it is stored
        text = wire.canonical({"metadata": dict(metadata), "version": 0})
        back = None if len(text) > _METADATA else wire.parse(text).fields("metadata").raw()
    except (TypeError, ValueError, PeerFault) as error:
        raise ValueError(
            f"the metadata of parameters are no JSON that can be read again ({error}); use text, finite numbers, lists "
            "and dicts with text for keys"
        ) from error
    if back is None:
        raise ValueError(
            f"the metadata of parameters take {len(text)} bytes as JSON, over the limits ({_METADATA} bytes); "
            "keep large things elsewhere, or in an array"
        )
    if not _same(metadata, back):
        raise ValueError(
            "the metadata of parameters would come back as others: no JSON has keys that are no text, or text with "
            "surrogates; make them text"
        )
    return back


def _check_depth(metadata: object) -> None:
    level: list[Any] = [metadata]
    # its parts, but for one level around it and one of plain values
    for _ in range(wire.MAX_DEPTH - 1):
        inside = (part for one in level for part in (one.values() if isinstance(one, Mapping) else one))
        # a list that is there twice is looked at once
        level = list({id(part): part for part in inside if isinstance(part, Mapping | list | tuple)}.values())
    if level:
        raise ValueError(
            f"the metadata of parameters are no JSON to be read again: nested over {wire.MAX_DEPTH - 2} deep; make "
            "them flatter"
        )


def _plain_name(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError(f"parameters are numpy arrays by name; the name {name!r} is none: make a name text")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the name {name!r} has a lone surrogate (at {error.start}); give UTF-8 text") from error
    return str(name)


def _plain_array(name: str, array: object) -> Floats:
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise ValueError(
            f"parameters are numpy arrays by name; {name!r} is a {type(array).__name__}: make it an array of "
            "float64 or float32"
        )
    # of its own: whoever reshapes the array meanwhile cannot come between shape and values
    view: Floats = array.view(np.ndarray)
    if view.dtype not in (np.float64, np.float32) or not np.isfinite(view).all():
        raise _no_parameters(name, view)
    return view


def _no_parameters(name: str, array: NDArray[np.generic]) -> ValueError:
    return ValueError(
        f"parameters are finite float64 or float32 numbers; {name} ({array.dtype}) is not: check what made it"
    )


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
