"""Versioned global parameters: a write is a whole model or nothing, a read is one version and never a mix."""

from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fednode import wire
from fednode.cache.backend import CacheBackend, Missing
from fednode.errors import PeerFault, StoreError

_KIND = "parameters"


def parameter_digest(vector: NDArray[np.float64]) -> bytes:
    """SHA-256 over dtype, shape and little-endian bytes, each with its length: equal digests, equal bits."""
    plain = np.ascontiguousarray(vector, dtype="<f8")
    shape = wire.canonical({"shape": list(vector.shape)})
    return wire.digest(_KIND, plain.dtype.str.encode("ascii"), shape, plain.tobytes())


class ParameterSnapshot(NamedTuple):
    """One version as it was written; `vector` is read-only float64."""

    version: int
    vector: NDArray[np.float64]
    digest: bytes


class ParameterStore:
    """The parameters called `name`: versions 1, 2, 3, ..., of which the last `keep` can be read.

    A version becomes visible only when all of it is in the backend, and what a reader got stays as it is. The backend
    needs room for `keep` + 1 versions and must not evict: a version that it lost is a `StoreError`. Several stores may
    share one backend under different names. Thread-safe for any number of readers and writers.
    """

    def __init__(self, backend: CacheBackend, name: str, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keeping {keep} versions leaves nothing to read; keep at least 1")
        self._backend = backend
        self._name = name
        self._keep = keep
        self._writing = Lock()
        self._versions: tuple[int, ...] = ()

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that can be read, oldest first."""
        return self._versions

    def write(self, vector: NDArray[np.float64], metadata: Mapping[str, object]) -> int:
        """Store a float64 vector of any shape, with JSON metadata, as the next version; returns its number.

        Raises `ValueError` for another dtype, a value that is not finite, or a header (metadata above all) over 64 KiB;
        `StoreError` where the backend refuses. The version before is then still the newest.
        """
        if vector.dtype != np.float64 or not np.isfinite(vector).all():
            raise ValueError(
                f"parameters are finite float64 numbers; this {vector.dtype} vector is not: check what made it"
            )
        with self._writing:
            version = self._versions[-1] + 1 if self._versions else 1
            self._backend.set(self._key(version), _encode(version, vector, metadata), None)
            versions = (*self._versions, version)
            self._versions = versions[-self._keep :]
            for old in versions[: -self._keep]:
                self._backend.delete(self._key(old))
        return version

    def read(self, version: int | None = None) -> ParameterSnapshot:
        """One version (None: the newest), its array read-only, its digest as `parameter_digest` gives it.

        Raises `StoreError` if that version is not held, or is not what was written.
        """
        number, frame = self._load(version)
        header = frame.header.raw()
        vector = np.frombuffer(frame.body, dtype="<f8").astype(np.float64, copy=False).reshape(_shape(header))
        vector.flags.writeable = False
        return ParameterSnapshot(number, vector, frame.header.octets("digest", 32))

    def metadata(self, version: int | None = None) -> Mapping[str, object]:
        """The metadata that a version (None: the newest) was written with. Raises as `read` does."""
        _, frame = self._load(version)
        return frame.header.fields("metadata").raw()

    def _key(self, version: int) -> str:
        return f"parameters/{self._name}/{version}"

    def _load(self, version: int | None) -> tuple[int, wire.Frame]:
        while True:
            held = self._versions
            if not held:
                raise StoreError(f"no version of the parameters {self._name} was written yet; write one first")
            number = held[-1] if version is None else version
            value = self._backend.get(self._key(number))
            if not isinstance(value, Missing):
                return number, self._decode(number, value)
            # a reader of the newest may have been overtaken by `keep` writes between the two lines above
            if version is not None or number == self._versions[-1]:
                raise StoreError(f"version {number} of the parameters {self._name} is not held; held are {list(held)}")

    def _decode(self, version: int, value: bytes) -> wire.Frame:
        try:
            frame = wire.unpack(_KIND, value)
            frame.header.integer("version", version, version)
        except PeerFault as fault:
            raise StoreError(
                f"version {version} of the parameters {self._name} came out damaged ({fault}); start from a saved model"
            ) from fault
        return frame


def _encode(version: int, vector: NDArray[np.float64], metadata: Mapping[str, object]) -> bytes:
    header = {
        "version": version,
        "shape": list(vector.shape),
        "digest": parameter_digest(vector).hex(),
        "metadata": dict(metadata),
    }
    return wire.pack(_KIND, header, np.ascontiguousarray(vector, dtype="<f8").tobytes())


def _shape(header: Mapping[str, object]) -> tuple[int, ...]:
    shape = header["shape"]
    return tuple(int(size) for size in shape) if isinstance(shape, list) else ()
