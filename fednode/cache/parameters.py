"""Versioned global parameters: a write is a whole model or nothing, a read is one version and never a mix.

A model lies in chunks, each under the version that wrote it, and a manifest that names them. A chunk whose bytes did
not change is not written again: versions share it. The manifest is written last, so a version is there or it is not.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from fednode import wire
from fednode.cache.backend import CacheBackend, Limits
from fednode.cache.manifests import Floats, Manifest, StoredArray, StoredChunk, cut, dtype_of, travel_digest
from fednode.errors import PeerFault, StoreError
from fednode.protocol.chunks import Outline

_Wanted: TypeAlias = Callable[[StoredChunk], bool]
_METADATA: Final = 1 << 17
_ROW: Final = 192
"""Bytes that a chunk or an array takes in a manifest at most, but for its name and shape."""


class ParameterSnapshot(NamedTuple):
    """One version as it was written: its arrays in order, read-only, float64 or float32 as they came."""

    version: int
    arrays: Mapping[str, Floats]

    def vector(self, names: Iterable[str]) -> NDArray[np.float64]:
        """These arrays as one float64 vector [d]."""
        return np.concatenate([np.asarray(self.arrays[name], dtype=np.float64).ravel() for name in names])


class ParameterStore:
    """The parameters called `name`: versions 1, 2, 3, ..., of which the last `keep` can be read.

    A version becomes visible only when all of it is in the backend, and what a reader got stays as it is. Everything is
    pinned; `parameter_limits` says how much room it takes. A version that the backend lost is a `StoreError`. Each
    version has the names, shapes and dtypes that it was written with: a later one may have others. Several stores may
    share one backend under different names. Thread-safe for any number of readers and writers.
    """

    def __init__(self, backend: CacheBackend, name: str, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keeping {keep} versions leaves nothing to read; keep at least 1")
        self._backend = backend
        self._name = name
        self._keep = keep
        self._prefix = f"parameters/{quote(name, safe='')}"
        self._writing = Lock()
        self._kept: tuple[Manifest, ...] = ()
        self._last = 0
        self._unfreed: set[str] = set()

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that can be read, oldest first."""
        return tuple(manifest.version for manifest in self._kept)

    def write(self, arrays: Mapping[str, Floats], metadata: Mapping[str, object]) -> int:
        """Store named arrays of float64 or float32, with JSON metadata, as the next version; returns its number.

        Raises `ValueError` for no arrays, what is no such array, a value that is not finite, and metadata that is no
        JSON or over 64 KiB; `StoreError` where the backend refuses. The version before is then still the newest, and
        what was stored already is freed.
        """
        _check(arrays, metadata)
        with self._writing:
            self._free(())
            fresh: list[str] = []
            try:
                manifest = self._stored(arrays, metadata, fresh)
            except BaseException:
                self._free(fresh)
                raise
            kept = (*self._kept, manifest)
            self._kept, self._last = kept[-self._keep :], manifest.version
            living = {key for one in self._kept for key in self._keys(one)}
            self._free({key for one in kept[: -self._keep] for key in self._keys(one)} - living)
        return manifest.version

    def read(self, version: int | None = None, names: Collection[str] | None = None) -> ParameterSnapshot:
        """One version (None: the newest), its arrays of these names (None: all) read-only.

        Raises `StoreError` if that version is not held, or is not what was written; `ValueError` for a name that no
        array of it has.
        """
        if isinstance(names, str):
            raise ValueError(f"the names of arrays come in a list; write [{names!r}]")
        manifest, values = self._load(version, lambda stored: names is None or stored.chunk.array in names)
        have = [array.name for array in manifest.arrays]
        unknown = sorted(map(str, set(names or ()).difference(have)))
        if unknown:
            raise ValueError(
                f"version {manifest.version} of the parameters {self._name} has no array {', '.join(unknown)}; it has "
                f"{', '.join(have)}"
            )
        arrays = [array for array in manifest.arrays if names is None or array.name in names]
        return ParameterSnapshot(manifest.version, {array.name: array.joined(values) for array in arrays})

    def metadata(self, version: int | None = None) -> Mapping[str, object]:
        """The metadata that a version (None: the newest) was written with. Raises as `read` does."""
        return self._load(version, lambda _: False)[0].metadata

    def chunks(self, version: int | None = None) -> tuple[StoredChunk, ...]:
        """The chunks of a version (None: the newest), with the version that each one has had its bytes since.

        Whoever holds all of version v holds each chunk whose version is v or less. Raises as `read` does.
        """
        return self._load(version, lambda _: False)[0].chunks()

    def travelling(self, ids: Iterable[str], version: int | None = None) -> dict[str, NDArray[np.float32]]:
        """Those chunks of a version (None: the newest) that have these ids, as they travel: float32 [count], read-only.

        Nothing else of the model is read. Raises as `read` does.
        """
        asked = frozenset(ids)
        manifest, values = self._load(version, lambda stored: stored.id in asked)
        found: dict[str, NDArray[np.float32]] = {}
        for array in manifest.arrays:
            for stored in array.chunks:
                if stored.id in values:
                    found[stored.id] = _as_float32(np.frombuffer(values[stored.id], dtype=array.dtype))
                    found[stored.id].flags.writeable = False
        return found

    def clear(self) -> None:
        """Forget every version; the next one is numbered as if they were still there."""
        with self._writing:
            gone = {key for one in self._kept for key in self._keys(one)}
            self._kept = ()
            self._free(gone)

    # --- writing

    def _stored(self, arrays: Mapping[str, Floats], metadata: Mapping[str, object], fresh: list[str]) -> Manifest:
        """Pin what is new of these arrays, then their manifest; each key is in `fresh` before it is stored."""
        version, before = self._last + 1, self._kept[-1].arrays if self._kept else ()
        known = {(array.dtype, stored.chunk): stored for array in before for stored in array.chunks}
        listed = []
        for name, array in arrays.items():
            chunks = []
            for chunk, data in cut(name, array):
                sha = hashlib.sha256(data).digest()
                stored = known.get((dtype_of(array), chunk))
                if stored is None or stored.sha256 != sha:
                    digest = travel_digest(_as_float32(np.frombuffer(data, dtype=dtype_of(array))))
                    stored = StoredChunk(chunk, version, sha, digest)
                    self._pin(self._chunk_key(stored), data, fresh)
                chunks.append(stored)
            listed.append(StoredArray(name, array.shape, dtype_of(array), tuple(chunks)))
        manifest = Manifest(version, metadata, tuple(listed))
        self._pin(self._manifest_key(version), manifest.to_bytes(), fresh)
        return manifest

    def _pin(self, key: str, data: bytes, fresh: list[str]) -> None:
        fresh.append(key)
        self._backend.pin(key, data)
        self._unfreed.discard(key)

    def _free(self, keys: Iterable[str]) -> None:
        """Delete these, and what could not be deleted before; what cannot be deleted now is left for the next time."""
        self._unfreed.update(keys)
        for key in tuple(self._unfreed):
            with suppress(StoreError):
                self._backend.delete(key)
                self._unfreed.discard(key)

    # --- keys

    def _manifest_key(self, version: int) -> str:
        return f"{self._prefix}/{version}"

    def _chunk_key(self, stored: StoredChunk) -> str:
        return f"{self._prefix}/{stored.id}@{stored.version}"

    def _keys(self, manifest: Manifest) -> set[str]:
        return {self._manifest_key(manifest.version), *map(self._chunk_key, manifest.chunks())}

    # --- reading

    def _load(self, version: int | None, wanted: _Wanted) -> tuple[Manifest, dict[str, bytes]]:
        """A version's manifest as it lies in the backend, and the values of those chunks that are wanted."""
        while True:
            held = self.versions
            if not held:
                raise StoreError(f"no version of the parameters {self._name} was written yet; write one first")
            number = held[-1] if version is None else version
            if number in held:
                try:
                    return self._found(number, wanted)
                except _Absent as absent:
                    # a writer that frees a version has made it unreadable before
                    if number in self.versions:
                        raise self._damage(number, absent.key, "missing or damaged") from None
            if version is not None:
                raise StoreError(f"version {number} of the parameters {self._name} is not held; held are {list(held)}")
            # a reader of the newest was overtaken by `keep` writes, or by `clear`

    def _found(self, version: int, wanted: _Wanted) -> tuple[Manifest, dict[str, bytes]]:
        key = self._manifest_key(version)
        manifests = self._backend.get_many([key])
        if key not in manifests:
            raise _Absent(key)
        try:
            manifest = Manifest.from_bytes(manifests[key], version)
        except PeerFault as fault:
            raise self._damage(version, key, f"damaged ({fault})") from fault
        chosen = {self._chunk_key(stored): stored for stored in manifest.chunks() if wanted(stored)}
        values = self._backend.get_many(chosen)
        for key in chosen:
            if key not in values:
                raise _Absent(key)
        return manifest, {stored.id: self._whole(version, key, stored, values[key]) for key, stored in chosen.items()}

    def _whole(self, version: int, key: str, stored: StoredChunk, value: object) -> bytes:
        if not isinstance(value, bytes) or hashlib.sha256(value).digest() != stored.sha256:
            raise self._damage(version, key, "damaged: it is not what was written")
        return value

    def _damage(self, version: int, key: str, what: str) -> StoreError:
        return StoreError(
            f"version {version} of the parameters {self._name} cannot be read: {key} in {self._backend} is {what}; see "
            "who else writes there, and start from a saved model"
        )


class _Absent(Exception):
    """A part of a version is not in the backend."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def parameter_limits(outline: Outline, keep: int = 2) -> Limits:
    """Room for `keep` versions of a model and the one that is being written, trained arrays in float64, and no more."""
    chunks, trained = outline.chunks(), frozenset(outline.trained.names)
    largest = max(chunk.count * (8 if chunk.array in trained else 4) for chunk in chunks)
    manifest = _METADATA + len(outline.to_bytes()) + _ROW * (len(chunks) + len(outline.names))
    return Limits(
        entries=(keep + 1) * (len(chunks) + 1),
        total_bytes=(keep + 1) * (8 * outline.trained.dimension + manifest) + 4 * outline.frozen.dimension,
        value_bytes=max(largest, manifest),
    )


def _check(arrays: object, metadata: object) -> None:
    if not isinstance(arrays, Mapping) or not arrays:
        raise ValueError('parameters are arrays by name, one at least; write them as {"weights": array}')
    for name, array in arrays.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise ValueError(
                f"parameters are numpy arrays by name; {name!r} is a {type(array).__name__}: make it an array of "
                "float64 or float32, its name text"
            )
        if array.dtype not in (np.float64, np.float32) or not np.isfinite(array).all():
            raise ValueError(
                f"parameters are finite float64 or float32 numbers; {name} ({array.dtype}) is not: check what made it"
            )
    if not isinstance(metadata, Mapping):
        raise ValueError(f"the metadata of parameters are a dict of JSON values, no {type(metadata).__name__}")
    try:
        wire.canonical(metadata)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"the metadata of parameters are no JSON ({error}); use text, finite numbers, lists and dicts"
        ) from error


def _as_float32(values: NDArray[np.generic]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
