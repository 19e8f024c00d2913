"""What each client is sent of the model: the chunks that, by its own signed replies, it does not hold yet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fednode.cache import ParameterStore
from fednode.cache.manifests import Floats
from fednode.driver.channel import Request
from fednode.driver.copies import Copies, Proof
from fednode.driver.parts import Task
from fednode.errors import PeerFault
from fednode.protocol.envelope import Envelope, Signed
from fednode.protocol.model import BASIS, Basis
from fednode.protocol.openings import opening_parts
from fednode.protocol.requests import spec_frame
from fednode.protocol.spec import RoundSpec

_SPECS = 16
"""Rounds back of which a late reply still proves something."""


class Downloads:
    """The versions of one task's model that were published, and who has which."""

    def __init__(self, parameters: ParameterStore, task: Task) -> None:
        self._parameters, self._task = parameters, task
        self._staleness = task.terms.staleness
        self._outline = task.outline
        self._published: dict[int, bytes] = {}
        self._specs: dict[bytes, int] = {}
        self._openings: dict[bytes, tuple[int, Mapping[str, bytes]]] = {}
        self.copies = Copies()

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
        oldest = version - self._staleness
        self._published = {one: digest for one, digest in self._published.items() if one >= oldest}
        self._openings = {spec: kept for spec, kept in self._openings.items() if kept[0] >= oldest}

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
        self._specs[spec.digest()] = spec.model_version
        for old in list(self._specs)[:-_SPECS]:
            del self._specs[old]
        return Download(self, spec, {**parts, "model": self._outline.to_bytes()})

    # --- what replies prove

    def check(self, envelope: Envelope, spec: RoundSpec) -> None:
        """Return if an update says that it was computed from a model that this round allows.

        Raises `PeerFault`: "stale", "another-model" for one that was never published, "malformed".
        """
        basis = self._basis(envelope)
        if basis is None:
            return
        if basis.version < spec.model_version - self._staleness:
            raise PeerFault("stale", f"computed from version {basis.version}, the round is about {spec.model_version}")
        if self._published.get(basis.version) != basis.digest:
            raise PeerFault("another-model", f"no version {basis.version} of this digest was ever published")

    def learn(self, envelope: Envelope) -> None:
        """Take in what a verified update proves about its sender, whatever round it is of."""
        head, basis = envelope.head, self._basis(envelope)
        version = self._specs.get(head.spec)
        if version is not None and (basis is None or basis.version == version):
            self.copies.learn(head.sender, Proof(version, head.spec))

    def certify(self, spec: RoundSpec, answers: Mapping[int, Signed]) -> None:
        """Keep the holders' word that the round was opened, for clients that train from its model later."""
        if self._staleness:
            self._openings[spec.digest()] = (spec.model_version, opening_parts(answers))

    def _basis(self, envelope: Envelope) -> Basis | None:
        return Basis.from_bytes(envelope.attached.get(BASIS, b"")) if self._staleness else None

    # --- what goes down

    def plan(self, client: str, newest: int) -> "Shipment":
        """What this client needs before it can train in a round about version `newest`."""
        proof = self.copies.of(client)
        if proof is None:
            return Shipment(0)
        if proof.version == newest:
            return Shipment(newest)
        # an older copy may be used where the holders vouch that it was everybody's
        if proof.spec in self._openings and proof.version >= newest - self._staleness:
            return Shipment(newest, proof.spec)
        return Shipment(proof.version)

    def vouchers(self, shipment: "Shipment") -> Mapping[str, bytes]:
        """The holders' word that goes with a shipment."""
        return {} if shipment.vouched is None else self._openings[shipment.vouched][1]

    def chunks(self, spec: RoundSpec, above: int) -> dict[str, NDArray[np.float32]]:
        """The chunks of the round's model whose bytes are newer than version `above`."""
        stored = self._parameters.chunks(spec.model_version)
        wanted = [chunk.id for chunk in stored if chunk.version > above]
        return self._parameters.travelling(wanted, spec.model_version) if wanted else {}


@dataclass(frozen=True, slots=True)
class Shipment:
    """Chunks that changed after version `above`; and, for an older copy, the round that its proof is of."""

    above: int
    vouched: bytes | None = None


class Download:
    """One round's model on its way down. Used by the round alone."""

    def __init__(self, downloads: Downloads, spec: RoundSpec, parts: Mapping[str, bytes]) -> None:
        self.spec = spec
        self._downloads, self._parts = downloads, parts
        self._resent: set[str] = set()

    def requests(self, clients: Iterable[str]) -> dict[str, Request]:
        """One request a client. Clients that hold the same share one."""
        plans = {client: self._downloads.plan(client, self.spec.model_version) for client in clients}
        made = {shipment: self._request(shipment) for shipment in set(plans.values())}
        return {client: made[shipment] for client, shipment in plans.items()}

    def again(self, client: str) -> Request | None:
        """Everything, for a client that does not hold what it was believed to hold; None the second time."""
        self._downloads.copies.forget(client)
        if client in self._resent:
            return None
        self._resent.add(client)
        return self._request(Shipment(0))

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
        chunks = self._downloads.chunks(self.spec, shipment.above)
        return Request(
            "train", f"{self.spec.task}/round/{self.spec.round}", spec_frame("round", self.spec, parts), chunks
        )
