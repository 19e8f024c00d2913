"""Versioned global parameters: a write is a whole model or nothing, a read is one version and never a mix.

A model is stored as chunks, each under the version that wrote it, and a manifest that names them. Versions share a
chunk whose bytes did not change. The manifest is written last, so a version is there or it is not. Replaced versions
expire.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from fednode.cache.backend import MISSING, CacheBackend, Limits, Missing, StoreFull, Value, check_ttl
from fednode.cache.fork_safety import refuse_after_fork
from fednode.errors import PeerFault, StoreError
from fednode.protocol.chunks import Outline
from fednode.stores.parameter_manifest import (
    Floats,
    ModelManifest,
    StoredArray,
    StoredChunk,
    cut,
    dtype_of,
    json_metadata,
    plain_arrays,
    travel_digest,
)

_Made = TypeVar("_Made", bound=Value)
_Wanted: TypeAlias = Callable[[StoredChunk], bool]
_METADATA: Final = 1 << 17
_DIGITS: Final = 18
_FAILURES: Final = 3
"""Failed deletions after which a pass stops: the server is away, so the rest would fail too."""
_ROW: Final = 192
"""Most bytes of a chunk or an array in a manifest, without its name and shape."""


class VersionExpired(StoreError):
    """Newer versions replaced this one, and its time to live has passed."""


class Loading(Protocol):
    """A cache that loads, such as `Guarded` or `Counted`."""

    def get_or_load(self, key: str, loader: Callable[[], Value | Missing], ttl: float | None) -> Value | Missing:
        """The value under `key`; otherwise the result of `loader`, kept for `ttl` seconds."""
        ...

    def sweep(self) -> int:
        """Free expired values."""
        ...


class ParameterSnapshot(NamedTuple):
    """One version as it was written: its arrays in order, read-only, float64 or float32 as they came."""

    version: int
    arrays: Mapping[str, Floats]

    def vector(self, names: Iterable[str]) -> NDArray[np.float64]:
        """These arrays as one float64 vector [d]."""
        return np.concatenate([np.asarray(self.arrays[name], dtype=np.float64).ravel() for name in names])


class ParameterStore:
    """The parameters called `name`: versions 1, 2, 3, ..., of which the last `keep` can always be read.

    A version becomes visible only when all of it is in the backend; snapshots never change. The last `keep` versions
    are pinned. An older one stays readable for `life` seconds, or until a write needs its room; then reads raise
    `VersionExpired`. `parameter_limits` gives the room this takes. Each version keeps its own names, shapes and dtypes.
    Stores of different names may share a backend; a name belongs to one store at a time. Thread-safe for any number of
    readers and writers. `loading` keeps values derived from a version, see `derived`.

    If an earlier store of this name was killed, the new one adopts its whole versions and continues their numbers; the
    next write frees the rest. To start afresh, use a new name or `clear`. Raises `ValueError` for a `keep` below 1 or a
    `life` not above 0, `TypeError` for a name that is not a str, `StoreError` if the backend cannot list its keys.
    """

    def __init__(
        self, backend: CacheBackend, name: str, keep: int = 2, life: float = 60.0, loading: Loading | None = None
    ) -> None:
        if type(keep) is not int or keep < 1:
            raise ValueError(f"keep is {keep!r}; it must be a whole number, at least 1")
        if type(name) is not str:
            raise TypeError(f"the name of parameters must be a str, not {type(name).__name__}")
        self._backend = backend
        self._name = name
        self._keep = keep
        self._life = check_ttl(life)
        self._loading = loading
        self._prefix = f"parameters/{quote(name, safe='')}"
        self._writing = Lock()
        self._kept: tuple[ModelManifest, ...] = ()
        self._last = 0
        # the hash of each manifest, which names the hashes of its chunks: the backend is not believed
        self._hashes: dict[int, bytes] = {}
        # a queue of keys that may be in the backend; `_free` deletes those that no version needs
        self._unfreed: dict[str, None] = {}
        self._adopt()
        refuse_after_fork(self, "_writing")

    @property
    def versions(self) -> tuple[int, ...]:
        """The pinned versions, oldest first."""
        return tuple(manifest.version for manifest in self._kept)

    def write(self, arrays: Mapping[str, Floats], metadata: Mapping[str, object]) -> int:
        """Store named arrays, float64 or float32, with JSON metadata as the next version; return its number.

        Raises `ValueError` without arrays, for masked or other arrays, for values that are not finite, and for metadata
        that would change in JSON or is over 64 KiB; `StoreError` if the backend refuses. After an error the previous
        version is still the newest, and what was stored already is freed.
        """
        plain, metadata = plain_arrays(arrays), json_metadata(metadata)
        with self._writing:
            self._backend.sweep()
            if self._loading is not None:
                self._loading.sweep()
            self._free()
            try:
                manifest = self._stored(plain, metadata)
                before = self._kept
                self._kept, self._last = (*before, manifest)[-self._keep :], manifest.version
                self._let_expire(before)
            finally:
                self._free()
        return manifest.version

    def read(self, version: int | None = None, names: Iterable[str] | None = None) -> ParameterSnapshot:
        """One version (None: the newest) with the arrays of these names (None: all), read-only.

        Raises `StoreError` if that version is missing or damaged, `ValueError` for an unknown array name, `TypeError`
        for a version that is not an int.
        """
        wanted = None if names is None else _names("names of arrays", names)
        manifest, values = self._load(version, lambda stored: wanted is None or stored.chunk.array in wanted)
        have = [array.name for array in manifest.arrays]
        unknown = sorted(map(str, (wanted or frozenset()).difference(have)))
        if unknown:
            raise ValueError(
                f"version {manifest.version} of the parameters {self._name} has no array {', '.join(unknown)}; it has "
                f"{', '.join(have)}"
            )
        arrays = [array for array in manifest.arrays if wanted is None or array.name in wanted]
        return ParameterSnapshot(manifest.version, {array.name: array.joined(values) for array in arrays})

    def metadata(self, version: int | None = None) -> Mapping[str, object]:
        """The metadata of a version (None: the newest). Raises as `read` does."""
        return self._load(version, lambda _: False)[0].metadata

    def chunks(self, version: int | None = None) -> tuple[StoredChunk, ...]:
        """The chunks of a version (None: the newest), each with the version that wrote its bytes.

        A holder of version v has every chunk whose version is at most v. Raises as `read` does.
        """
        return self._load(version, lambda _: False)[0].chunks()

    def travelling(self, ids: Iterable[str], version: int | None = None) -> dict[str, NDArray[np.float32]]:
        """The chunks with these ids of a version (None: the newest), as they travel: float32 [count], read-only.

        Reads no other chunk. Raises as `read` does.
        """
        asked = _names("ids of chunks", ids)
        manifest, values = self._load(version, lambda stored: stored.id in asked)
        found: dict[str, NDArray[np.float32]] = {}
        for array in manifest.arrays:
            for stored in array.chunks:
                if stored.id in values:
                    found[stored.id] = _as_float32(np.frombuffer(values[stored.id], dtype=array.dtype))
                    found[stored.id].flags.writeable = False
        return found

    def derived(self, what: str, version: int, make: Callable[[], _Made], life: float) -> _Made:
        """The result of `make` for a version: made once for all concurrent callers, then kept for `life` seconds.

        `what` names the kind of value. Without a `loading` cache each call makes it. Raises `VersionExpired` if it is
        not kept and the version has expired, and whatever `make` raises.
        """

        def load() -> Value | Missing:
            there = version in self.versions or self._backend.get(self._manifest_key(version)) is not MISSING
            return make() if there else MISSING

        if self._loading is None:
            found = load()
        else:
            found = self._loading.get_or_load(f"{self._prefix}/{what}@{version}", load, life)
        if isinstance(found, Missing):
            raise self._expired(version)
        # the result of `make`, or a read-only copy of it
        return cast("_Made", found)

    def clear(self) -> None:
        """Forget every version; numbering continues."""
        with self._writing:
            self._kept = ()
            self._unfreed |= dict.fromkeys(self._found_keys())
            self._free()

    def _found_keys(self) -> dict[str, int]:
        """This store's keys in the backend, each with the version it names."""
        start = len(self._prefix) + 1
        found = ((key, _number_in(key[start:])) for key in self._backend.keys(f"{self._prefix}/"))
        return {key: number for key, number in found if number is not None}

    def _adopt(self) -> None:
        """Take over the whole versions of an earlier store; queue its other keys to be freed by the next write."""
        ours = self._found_keys()
        whole: list[ModelManifest] = []
        for version in sorted((number for key, number in ours.items() if "@" not in key), reverse=True):
            found = self._backend.get_many([self._manifest_key(version)])
            with suppress(PeerFault):
                manifest = ModelManifest.from_bytes(found.get(self._manifest_key(version)), version)
                if self._keys(manifest) <= ours.keys():
                    whole.insert(0, manifest)
                    self._hashes[version] = hashlib.sha256(manifest.to_bytes()).digest()
            if len(whole) == self._keep:
                break
        self._kept, self._last = tuple(whole), max(ours.values(), default=0)
        self._unfreed |= dict.fromkeys(ours)

    # --- writing

    def _stored(self, arrays: Mapping[str, Floats], metadata: Mapping[str, object]) -> ModelManifest:
        """Pin the new chunks, then the manifest."""
        version, before = self._last + 1, self._kept[-1].arrays if self._kept else ()
        known = {(array.dtype, stored.chunk): stored for array in before for stored in array.chunks}
        listed = []
        for name, array in arrays.items():
            chunks = []
            for chunk, data in cut(name, array):
                sha = hashlib.sha256(data).digest()
                stored = known.get((dtype_of(array), chunk))
                if stored is None or stored.sha256 != sha:
                    values = np.frombuffer(data, dtype=dtype_of(array))
                    stored = StoredChunk(chunk, version, sha, travel_digest(_as_float32(values)))
                    self._pin(self._chunk_key(stored), data)
                chunks.append(stored)
            listed.append(StoredArray(name, array.shape, dtype_of(array), tuple(chunks)))
        manifest = ModelManifest(version, metadata, tuple(listed))
        data = manifest.to_bytes()
        self._pin(self._manifest_key(version), data)
        self._hashes[version] = hashlib.sha256(data).digest()
        return manifest

    def _pin(self, key: str, data: bytes) -> None:
        # queued first, so that a failed write frees it
        self._unfreed[key] = None
        try:
            self._backend.pin(key, data)
        except StoreFull:
            expiring = self._found_keys().keys() - self._unfreed.keys() - self._needed()
            if not expiring:
                raise
            for old in expiring:
                self._backend.delete(old)
            self._backend.pin(key, data)

    def _let_expire(self, before: tuple[ModelManifest, ...]) -> None:
        """Give a time to live to values that `before` needed and no version needs now.

        A reader that has started on such a version can finish while the values live.
        """
        for key in set().union(*map(self._keys, before)) - self._needed():
            try:
                value = self._backend.get(key)
                if not isinstance(value, Missing):
                    self._backend.set(key, value, self._life)
            except StoreError:
                self._unfreed[key] = None

    def _free(self) -> None:
        """Delete what no version needs; keys that cannot be deleted now go to the end of the queue."""
        failures, needed = 0, self._needed()
        for key in tuple(self._unfreed):
            del self._unfreed[key]
            if key in needed:
                continue
            try:
                self._backend.delete(key)
            except StoreError:
                self._unfreed[key] = None
                failures += 1
                if failures == _FAILURES:
                    return

    # --- keys

    def _manifest_key(self, version: int) -> str:
        return f"{self._prefix}/{version}"

    def _chunk_key(self, stored: StoredChunk) -> str:
        return f"{self._prefix}/{stored.id}@{stored.version}"

    def _keys(self, manifest: ModelManifest) -> set[str]:
        return {self._manifest_key(manifest.version), *map(self._chunk_key, manifest.chunks())}

    def _needed(self) -> set[str]:
        return set().union(*map(self._keys, self._kept))

    # --- reading

    def _load(self, version: int | None, wanted: _Wanted) -> tuple[ModelManifest, dict[str, bytes]]:
        """A version's manifest from the backend, and the values of the wanted chunks."""
        if version is not None and type(version) is not int:
            raise TypeError(f"a version must be an int, not {type(version).__name__}")
        while True:
            held = self.versions
            if not held:
                raise StoreError(f"no version of the parameters {self._name} was written yet; write one first")
            number = held[-1] if version is None else version
            if not 0 < number <= self._last:
                raise StoreError(
                    f"the parameters {self._name} have no version {number}; versions that can be read are {list(held)}"
                )
            try:
                return self._found(number, wanted)
            except _Absent as absent:
                # writers unlist a version before they let it expire: still listed, so the backend lost a part
                if number in self.versions:
                    raise self._damage(number, absent.key, "missing or damaged") from None
            if version is not None:
                raise self._expired(number)
            # `keep` writes or a `clear` ran since `held` was read: try the newest again

    def _found(self, version: int, wanted: _Wanted) -> tuple[ModelManifest, dict[str, bytes]]:
        key = self._manifest_key(version)
        manifests = self._backend.get_many([key])
        if key not in manifests or version not in self._hashes:
            raise _Absent(key)
        manifest = ModelManifest.from_bytes(self._whole(version, key, self._hashes[version], manifests[key]), version)
        chosen = {self._chunk_key(stored): stored for stored in manifest.chunks() if wanted(stored)}
        values = self._backend.get_many(chosen)
        for key in chosen:
            if key not in values:
                raise _Absent(key)
        whole = {stored.id: self._whole(version, key, stored.sha256, values[key]) for key, stored in chosen.items()}
        return manifest, whole

    def _whole(self, version: int, key: str, sha256: bytes, value: object) -> bytes:
        if not isinstance(value, bytes) or hashlib.sha256(value).digest() != sha256:
            raise self._damage(version, key, "damaged: it is not what was written")
        return value

    def _expired(self, version: int) -> VersionExpired:
        return VersionExpired(
            f"version {version} of the parameters {self._name} has expired; versions that can be read are "
            f"{list(self.versions)}"
        )

    def _damage(self, version: int, key: str, what: str) -> StoreError:
        return StoreError(
            f"version {version} of the parameters {self._name} cannot be read: {key} in {self._backend} is {what}; "
            "check what else writes there, and start from a saved model"
        )


class _Absent(Exception):
    """A part of a version is not in the backend."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def parameter_limits(outline: Outline, keep: int = 2) -> Limits:
    """Room for `keep` versions of a model, one that expires and one being written, with trained arrays in float64.

    If an older version is still there, a write deletes it early.
    """
    chunks, trained = outline.chunks(), frozenset(outline.trained.names)
    largest = max(chunk.count * (8 if chunk.array in trained else 4) for chunk in chunks)
    manifest = _METADATA + len(outline.to_bytes()) + _ROW * (len(chunks) + len(outline.names))
    return Limits(
        entries=(keep + 2) * (len(chunks) + 1),
        total_bytes=(keep + 2) * (8 * outline.trained.dimension + manifest) + 4 * outline.frozen.dimension,
        value_bytes=max(largest, manifest),
    )


def _number_in(name: str) -> int | None:
    """The version in a key without its prefix; None for a key of another store."""
    digits = name.rpartition("@")[2] if "@" in name else name
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS else None


def _names(what: str, names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise ValueError(f"{what} must be a list; write [{names!r}]")
    return frozenset(names)


def _as_float32(values: NDArray[np.generic]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
