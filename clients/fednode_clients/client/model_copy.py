"""A client's copy of the model, so that the node sends only the chunks that changed.

A copy is used only if its digest is that of the round's model, or if the task allows an older model and enough holders
signed that they opened a round with it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fednode.errors import PeerFault
from fednode.protocol.chunks import Outline, chunks_of
from fednode.protocol.model import Basis
from fednode.protocol.openings import opened_by
from fednode.protocol.requests import TaskCard
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import pack, unpack
from fednode_clients.keyfolder.folder import KeyFolder

_INDEX = "copy"
Chunks: TypeAlias = Mapping[str, NDArray[np.generic]]
ModelCheck: TypeAlias = Callable[[Outline, Mapping[str, NDArray[np.float32]]], None]
"""Raises `PeerFault` for a model that its client does not train."""


@dataclass(frozen=True, slots=True)
class ModelCopy:
    """A whole model with the digest in `basis`, received in `round` of `task` under the spec with digest `spec`.

    Arrays are float32, read-only.
    """

    task: str
    round: int
    spec: bytes
    basis: Basis
    outline: Outline
    arrays: Mapping[str, NDArray[np.float32]] = field(repr=False)

    @property
    def trained(self) -> dict[str, NDArray[np.float32]]:
        """The trained arrays, in order."""
        return {name: self.arrays[name] for name in self.outline.trained.names}

    @property
    def frozen(self) -> dict[str, NDArray[np.float32]]:
        """The other arrays, in order."""
        return {name: self.arrays[name] for name in self.outline.frozen.names}


class ModelCopyStore:
    """Keeps one copy, whatever the number of models or tasks.

    In memory; also in the key folder if that can save a download, since Flower may start a process for each message.
    """

    def __init__(self, folder: KeyFolder, check: ModelCheck = lambda *_: None) -> None:
        self._folder, self._check_model = folder, check
        self._copy: ModelCopy | None = None
        self._on_disk: ModelCopy | None = None

    def take(self, card: TaskCard, spec: RoundSpec, parts: Mapping[str, bytes], chunks: Chunks) -> ModelCopy:
        """The model to train from, made of the chunks sent and the copy held.

        Raises `PeerFault`: MISSING_CHUNKS if these do not make the round's model, so that the node sends all of it;
        ANOTHER_MODEL if all of it was sent and the digest differs; UNKNOWN_CHUNK, WRONG_SHAPE, MALFORMED; what the
        client's own check of the model raises. No data have been looked at.
        """
        outline = Outline.from_bytes(parts.get("model", b""))
        if outline.trained.dimension != spec.trained:
            raise PeerFault(
                Reason.WRONG_SHAPE,
                f"{outline.trained.dimension} trained values, the sum is of {spec.trained}",
            )
        _check(outline, chunks)
        held = self._held(spec.task)
        if held is not None and not chunks and _may_lag(held, card, spec, parts) and held.outline == outline:
            self._check_model(outline, held.arrays)
            return held
        arrays = _assembled(outline, chunks, {} if held is None else held.arrays)
        if outline.digest(arrays) != spec.model_digest:
            if len(chunks) == len(outline.chunks()):
                raise PeerFault(Reason.ANOTHER_MODEL, "the arrays are not those that the round names")
            raise PeerFault(Reason.MISSING_CHUNKS, "the chunks sent and the copy held do not make the round's model")
        self._check_model(outline, arrays)
        basis = Basis(spec.model_version, spec.model_digest)
        copy = ModelCopy(spec.task, spec.round, spec.digest(), basis, outline, arrays)
        self._keep(copy, spec.terms.staleness)
        return copy

    def _held(self, task: str) -> ModelCopy | None:
        if self._copy is None or self._copy.task != task:
            self._copy = self._on_disk = self._recalled(task)
        return self._copy

    # --- on disk

    def _keep(self, copy: ModelCopy, staleness: int) -> None:
        self._copy = copy
        # when every chunk changes in every round and none may be stale, a copy on disk is never used
        if not (copy.outline.frozen.names or staleness):
            return
        before, listed = self._on_disk, self._listed()
        self._on_disk = None
        header = {
            "task": copy.task,
            "round": copy.round,
            "spec": copy.spec.hex(),
            "version": copy.basis.version,
            "digest": copy.basis.digest.hex(),
        }
        index = pack(_INDEX, header, copy.outline.to_bytes())
        if listed != copy.outline:
            # the index lists every chunk on disk, also those of other models and tasks
            self._drop_others(copy.outline, listed)
            self._folder.state.put(_INDEX, index)
        for chunk in copy.outline.chunks():
            array = copy.arrays[chunk.array]
            if before is None or before.task != copy.task or before.arrays.get(chunk.array) is not array:
                flat = array.reshape(-1)[chunk.first : chunk.first + chunk.count]
                self._folder.state.put(f"{_INDEX}/{chunk.id}", flat.astype("<f4", copy=False).tobytes())
        # the digest is checked when a copy is read, so a half-written one is not used after a crash
        if listed == copy.outline:
            self._folder.state.put(_INDEX, index)
        self._on_disk = copy

    def _listed(self) -> Outline | None:
        """The outline whose chunks may be in the key folder, of any task."""
        if self._on_disk is not None:
            return self._on_disk.outline
        try:
            index = self._folder.state.get(_INDEX)
            return None if index is None else Outline.from_bytes(unpack(_INDEX, index).body)
        except PeerFault:
            return None

    def _drop_others(self, outline: Outline, listed: Outline | None) -> None:
        kept = {chunk.id for chunk in outline.chunks()}
        for chunk in () if listed is None else listed.chunks():
            if chunk.id not in kept:
                self._folder.state.drop(f"{_INDEX}/{chunk.id}")

    def _recalled(self, task: str) -> ModelCopy | None:
        """The copy of this task in the key folder, if whole."""
        index = self._folder.state.get(_INDEX)
        if index is None:
            return None
        try:
            frame = unpack(_INDEX, index)
            fields = frame.header
            basis = Basis(fields.integer("version", 0, 1 << 62), fields.octets("digest", 32))
            outline = Outline.from_bytes(frame.body)
            if fields.text("task") != task:
                return None
            found = {chunk.id: self._folder.state.get(f"{_INDEX}/{chunk.id}") for chunk in outline.chunks()}
            chunks = {name: np.frombuffer(data, "<f4") for name, data in found.items() if data is not None}
            _check(outline, chunks)
            arrays = _assembled(outline, chunks, {})
            spec, number = fields.octets("spec", 32), fields.integer("round", 0, 1 << 62)
        except (PeerFault, ValueError):
            return None
        return ModelCopy(task, number, spec, basis, outline, arrays) if outline.digest(arrays) == basis.digest else None


def _check(outline: Outline, chunks: Chunks) -> None:
    """Raise `PeerFault` unless these are chunks of this model, each of its size."""
    places = {chunk.id: chunk for chunk in outline.chunks()}
    for name, values in chunks.items():
        if name not in places:
            raise PeerFault(Reason.UNKNOWN_CHUNK, "a chunk was sent that the model does not have")
        if values.dtype != np.float32 or values.shape != (places[name].count,):
            raise PeerFault(Reason.WRONG_SHAPE, f"a chunk is not {places[name].count} float32 values")


def _assembled(outline: Outline, chunks: Chunks, held: Chunks) -> dict[str, NDArray[np.float32]]:
    """Every array, from the chunks sent and the arrays held. Raises `PeerFault` MISSING_CHUNKS before allocating."""
    missing = [
        chunk
        for chunk in outline.chunks()
        if chunk.id not in chunks
        and (chunk.array not in held or held[chunk.array].shape != outline.shapes[chunk.array])
    ]
    if missing:
        raise PeerFault(Reason.MISSING_CHUNKS, f"{len(missing)} chunks were not sent and are not held")
    return {name: _array(name, shape, chunks, held.get(name)) for name, shape in outline.shapes.items()}


def _array(name: str, shape: tuple[int, ...], chunks: Chunks, held: NDArray[np.generic] | None) -> NDArray[np.float32]:
    places = chunks_of(name, math.prod(shape))
    came = [place for place in places if place.id in chunks]
    if not came and held is not None:
        return held.astype(np.float32, copy=False)
    flat = np.empty(math.prod(shape), dtype=np.float32)
    if len(came) < len(places) and held is not None:
        flat[:] = held.reshape(-1)
    for place in came:
        flat[place.first : place.first + place.count] = chunks[place.id]
    array = flat.reshape(shape)
    array.flags.writeable = False
    return array


def _may_lag(held: ModelCopy, card: TaskCard, spec: RoundSpec, parts: Mapping[str, bytes]) -> bool:
    """Whether the task allows this older copy, and enough holders signed that they opened a round with it.

    Otherwise a node could send one client a made-up model and count its update in a later round that all clients join.
    The node chooses version numbers, so the rounds since then are limited too: each opens once.
    """
    most = spec.terms.staleness
    if not (0 < spec.model_version - held.basis.version <= most and 0 < spec.round - held.round <= most):
        return False
    return len(opened_by(parts, card.cohort, spec.task, held.spec)) >= spec.sum_params.threshold
