"""What each client is sent of the model: the chunks that, by its own signed replies, it does not hold yet.

The directory of the task (`fednode.cache.coherence.round_directory`) keeps who has which chunk. A new version makes
copies stale, the next round's message says so by naming it and brings what is missing, the signed reply acknowledges.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fednode.cache.coherence import RoundDirectory, too_old
from fednode.clock import Clock
from fednode.driver.channel import Request
from fednode.driver.task import Task
from fednode.errors import PeerFault
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.model import BASIS, Basis
from fednode.protocol.openings import opening_parts
from fednode.protocol.requests import spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.stores import ParameterStore
from fednode.stores.parameter_manifest import Floats

_SPECS = 16
"""Rounds back of which a late reply still proves something."""

_LEASE = 7 * 86_400.0
"""Seconds of silence after which a client is sent everything."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A client's signed reply to the round whose spec has the digest `spec` proves that it held every chunk of
    `version`: the reply names the spec, and the spec names the digest of the model."""

    version: int
    spec: bytes


class Downloads:
    """The versions of one task's model that were published, and who has which.

    `invalidations` counts chunks that a client held as the newest, by its own word, when a new version changed them.
    What a round allows is its own spec's to say; what is kept for later rounds, the task's.
    """

    def __init__(
        self, parameters: ParameterStore, task: Task, clock: Clock, invalidated: Callable[[int], None] = lambda _: None
    ) -> None:
        self._parameters, self._task, self._clock, self._invalidated = parameters, task, clock, invalidated
        self._most_stale = task.terms.staleness
        self._outline = task.outline
        self._published: dict[int, bytes] = {}
        self._specs: dict[bytes, RoundSpec] = {}
        self._openings: dict[bytes, tuple[int, Mapping[str, bytes]]] = {}
        self.directory = RoundDirectory.of((chunk.id for chunk in self._outline.chunks()), _LEASE)
        self.proofs: dict[str, Proof] = {}
        self.invalidations = 0

    @property
    def newest(self) -> Basis:
        """The version that the next round is about."""
        version = max(self._published)
        return Basis(version, self._published[version])

    def publish(self, vector: NDArray[np.float64], round_number: int) -> None:
        """Write the next version of the model, whole or not at all. Raises `StoreError`."""
        arrays: dict[str, Floats] = {**self._task.layout.split(vector), **self._task.frozen}
        version = self._parameters.write(arrays, {"round": round_number})
        self._published[version] = self._outline.digest(arrays)
        oldest = version - self._most_stale
        self._published = {one: digest for one, digest in self._published.items() if one >= oldest}
        self._openings = {spec: kept for spec, kept in self._openings.items() if kept[0] >= oldest}
        self._invalidate(self._newer(version - 1))

    def _invalidate(self, changed: Iterable[str]) -> None:
        keys = self.directory.bits(changed)
        # who had not caught up with a chunk before has lost nothing by its next change
        stale = sum((standing.held & keys).bit_count() for standing in self.directory.standings.values())
        self.directory, _ = self.directory.write(keys)
        self.invalidations += stale
        self._invalidated(stale)

    def _newer(self, version: int) -> set[str]:
        """The chunks whose newest bytes are of a version after this one."""
        return {chunk.id for chunk in self._parameters.chunks() if chunk.version > version}

    def vector(self) -> NDArray[np.float64]:
        """The newest trained parameters, float64 [d], read-only."""
        names = self._task.layout.names
        vector = self._parameters.read(names=names).vector(names)
        vector.flags.writeable = False
        return vector

    def of_round(self, spec: RoundSpec, parts: Mapping[str, bytes]) -> "Download":
        """What goes down in the round of this spec; `parts` go to every client beside it.

        Raises `RuntimeError` for a spec that names another model than the one that was published.
        """
        if self._published.get(spec.model_version) != spec.model_digest:
            raise RuntimeError("the spec names another model than the one that is sent")
        self._specs[spec.digest()] = spec
        for old in list(self._specs)[:-_SPECS]:
            del self._specs[old]
        return Download(self, spec, {**parts, "model": self._outline.to_bytes()})

    # --- what replies prove

    def check(self, envelope: Envelope, spec: RoundSpec) -> None:
        """Return if an update says that it was computed from a model that this round allows.

        Raises `PeerFault`: "stale", "another-model" for one that was never published, "malformed".
        """
        basis = _basis(envelope, spec)
        if basis is None:
            return
        if too_old(basis.version, spec.model_version, spec.terms.staleness) and basis.version < spec.model_version:
            raise PeerFault(
                Reason.STALE, f"computed from version {basis.version}, the round is about {spec.model_version}"
            )
        if self._published.get(basis.version) != basis.digest:
            raise PeerFault(Reason.ANOTHER_MODEL, f"no version {basis.version} of this digest was ever published")

    def learn(self, envelope: Envelope) -> None:
        """Take in what a verified update proves about its sender, whatever round it is of.

        Raises `PeerFault("malformed")`.
        """
        head = envelope.head
        spec = self._specs.get(head.spec)
        # an answer of another kind, or with another round's number, is no update of this spec: it proves nothing
        if spec is None or not head.is_update(Topic(spec.task, spec.round, head.spec)):
            return
        basis = _basis(envelope, spec)
        if basis is None or basis == Basis(spec.model_version, spec.model_digest):
            known = self.proofs.get(head.sender)
            if known is None or known.version <= spec.model_version:
                self.proofs[head.sender] = Proof(spec.model_version, head.spec)
            newer = self._newer(spec.model_version)
            current = self.directory.bits(key for key in self.directory.keys if key not in newer)
            self.directory = self.directory.confirm(head.sender, current, self._clock.now())

    def forget(self, client: str) -> None:
        """The client says that it does not have what it had."""
        self.proofs.pop(client, None)
        self.directory = self.directory.forget(client)

    def certify(self, spec: RoundSpec, answers: Mapping[int, Signed]) -> None:
        """Keep the holders' word that the round was opened, for clients that train from its model later."""
        if self._most_stale:
            self._openings[spec.digest()] = (spec.model_version, opening_parts(answers))

    # --- what goes down

    def plan(self, clients: Iterable[str], spec: RoundSpec) -> dict[str, "Shipment"]:
        """What each client needs before it can train in the round of this spec."""
        vouched = {client: Shipment(vouched=proof.spec) for client in clients if (proof := self._vouched(client, spec))}
        now, others = self._clock.now(), [client for client in clients if client not in vouched]
        self.directory, parcels = self.directory.expire(now).offer(others, now)
        return vouched | {client: Shipment(parcel.send) for client, parcel in parcels.items()}

    def _vouched(self, client: str, spec: RoundSpec) -> Proof | None:
        """The proof of an older copy that may be used, since the holders vouch that it was everybody's."""
        proof = self.proofs.get(client)
        older = proof is not None and proof.version < spec.model_version and proof.spec in self._openings
        if proof is None or not older or too_old(proof.version, spec.model_version, spec.terms.staleness):
            return None
        return proof

    def vouchers(self, shipment: "Shipment") -> Mapping[str, bytes]:
        """The holders' word that goes with a shipment."""
        return {} if shipment.vouched is None else self._openings[shipment.vouched][1]

    def chunks(self, spec: RoundSpec, keys: int) -> dict[str, NDArray[np.float32]]:
        """The chunks of the round's model whose bits are in `keys`."""
        return self._parameters.travelling(self.directory.names(keys), spec.model_version) if keys else {}


def _basis(envelope: Envelope, spec: RoundSpec) -> Basis | None:
    """The model that an update of this spec says it is of; None where no round of it may be about another."""
    return Basis.from_bytes(envelope.attached.get(BASIS, b"")) if spec.terms.staleness else None


@dataclass(frozen=True, slots=True)
class Shipment:
    """The bits of the chunks that go down; or, for an older copy that will do, the round that its proof is of."""

    keys: int = 0
    vouched: bytes | None = None


class Download:
    """One round's model on its way down. Used by the round alone."""

    def __init__(self, downloads: Downloads, spec: RoundSpec, parts: Mapping[str, bytes]) -> None:
        self.spec = spec
        self._downloads, self._parts = downloads, parts
        self._resent: set[str] = set()

    def requests(self, clients: Iterable[str]) -> dict[str, Request]:
        """One request a client. Clients that hold the same share one."""
        plans = self._downloads.plan(tuple(clients), self.spec)
        made = {shipment: self._request(shipment) for shipment in set(plans.values())}
        return {client: made[shipment] for client, shipment in plans.items()}

    def again(self, client: str) -> Request | None:
        """Everything, for a client that does not hold what it was believed to hold; None the second time."""
        self._downloads.forget(client)
        if client in self._resent:
            return None
        self._resent.add(client)
        return self.requests((client,))[client]

    def check(self, envelope: Envelope) -> None:
        """Return if the update's model is one that this round allows; then remember what its sender holds.

        Raises as `Downloads.check` does.
        """
        self._downloads.check(envelope, self.spec)
        self._downloads.learn(envelope)

    def late(self, envelope: Envelope) -> None:
        """Remember what an update of an earlier round proves. Raises `PeerFault("malformed")`."""
        self._downloads.learn(envelope)

    def certify(self, answers: Mapping[int, Signed]) -> None:
        """Keep the holders' word that this round was opened."""
        self._downloads.certify(self.spec, answers)

    def _request(self, shipment: Shipment) -> Request:
        parts = {**self._parts, **self._downloads.vouchers(shipment)}
        chunks = self._downloads.chunks(self.spec, shipment.keys)
        return Request(
            "train", f"{self.spec.task}/round/{self.spec.round}", spec_frame("round", self.spec, parts), chunks
        )
