"""Which chunks of the model each client is sent: those that it does not hold, by its own signed replies.

The directory of the task (`fednode.cache.round_directory`) keeps which client holds which chunk:
    1. publishing a version marks the changed chunks as stale at every client;
    2. the next round's request names the version and brings each client the chunks that it lacks;
    3. the client's signed reply to that round proves that it now holds them all.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fednode.cache.round_directory import RoundDirectory, too_old
from fednode.clock import Clock
from fednode.driver.channel import Request
from fednode.driver.task import PlannedTask
from fednode.errors import PeerFault
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.model import BASIS, Basis
from fednode.protocol.openings import opening_parts
from fednode.protocol.requests import spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.stores import ParameterStore, VersionExpired
from fednode.stores.parameter_manifest import Floats

_SPECS = 16
"""How many rounds back a late reply still counts as a proof."""

_LEASE = 7 * 86_400.0
"""After so many seconds of silence a client is sent the whole model."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A client's signed reply to the round whose spec has the digest `spec` proves that it held every chunk of
    `version`: the reply names the spec, and the spec names the digest of the model."""

    version: int
    spec: bytes


class Downloads:
    """The published versions of one task's model, and which client holds which.

    `invalidations` counts the chunks that were current at a client when a new version changed them. The round's spec
    says which versions the round allows; the task's terms say how many are kept for later rounds.
    """

    def __init__(
        self,
        parameters: ParameterStore,
        task: PlannedTask,
        clock: Clock,
        invalidated: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._parameters, self._task, self._clock, self._invalidated = parameters, task, clock, invalidated
        self._most_stale = task.terms.staleness
        self._outline = task.outline
        self._outline_bytes = self._outline.to_bytes()
        self._published: dict[int, bytes] = {}
        self._specs: dict[bytes, RoundSpec] = {}
        self._openings: dict[bytes, tuple[int, Mapping[str, bytes]]] = {}
        self.directory = RoundDirectory.of((chunk.id for chunk in self._outline.chunks()), _LEASE)
        self.proofs: dict[str, Proof] = {}
        self.invalidations = 0

    @property
    def newest(self) -> Basis:
        """The version that the next round trains."""
        version = max(self._published)
        return Basis(version, self._published[version])

    def publish(self, vector: NDArray[np.float64], round_number: int) -> None:
        """Write the next version of the model (float64 [d]), whole or not at all. Raises `StoreError`."""
        arrays: dict[str, Floats] = {**self._task.layout.split(vector), **self._task.frozen}
        version = self._parameters.write(arrays, {"round": round_number})
        self._published[version] = self._outline.digest(arrays)
        oldest = version - self._most_stale
        self._published = {one: digest for one, digest in self._published.items() if one >= oldest}
        self._openings = {spec: kept for spec, kept in self._openings.items() if kept[0] >= oldest}
        self._invalidate(self._newer(version - 1))

    def _invalidate(self, changed: Iterable[str]) -> None:
        keys = self.directory.bits(changed)
        # count only copies that were current: a client that was already stale loses nothing
        stale = sum((standing.held & keys).bit_count() for standing in self.directory.standings.values())
        self.directory, _ = self.directory.write(keys)
        self.invalidations += stale
        self._invalidated(stale)

    def _newer(self, version: int) -> set[str]:
        """The chunks that changed after this version."""
        return {chunk.id for chunk in self._parameters.chunks() if chunk.version > version}

    def vector(self) -> NDArray[np.float64]:
        """The newest trained parameters, float64 [d], read-only."""
        names = self._task.layout.names
        vector = self._parameters.read(names=names).vector(names)
        vector.flags.writeable = False
        return vector

    def of_round(self, spec: RoundSpec, own: Callable[[str], Mapping[str, bytes]]) -> "Download":
        """The download of the round of this spec; a client also gets the parts that `own` returns for its name.

        Raises `RuntimeError` if the spec names a model that was not published.
        """
        if self._published.get(spec.model_version) != spec.model_digest:
            raise RuntimeError("the spec names a model that was not published")
        self._specs[spec.digest()] = spec
        for old in list(self._specs)[:-_SPECS]:
            del self._specs[old]
        return Download(self, spec, own)

    # --- what replies prove

    def check(self, envelope: Envelope, spec: RoundSpec) -> None:
        """Raise `PeerFault` unless the update names a model that this round allows.

        `STALE` for a version that is too old, `ANOTHER_MODEL` for one that was never published, `MALFORMED`.
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
        """Note what a verified update, of this or an earlier round, proves about its sender.

        Raises `PeerFault(MALFORMED)`.
        """
        head = envelope.head
        spec = self._specs.get(head.spec)
        # only an update of this very spec is a proof
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
        """Note that the client lost its copy."""
        self.proofs.pop(client, None)
        self.directory = self.directory.forget(client)

    def certify(self, spec: RoundSpec, answers: Mapping[int, Signed]) -> None:
        """Keep the holders' signatures that the round was opened, for clients that train from its model later."""
        if self._most_stale:
            self._openings[spec.digest()] = (spec.model_version, opening_parts(answers))

    # --- what goes down

    def plan(self, clients: Iterable[str], spec: RoundSpec) -> dict[str, "Shipment"]:
        """For each client, what it needs to train in the round of this spec."""
        vouched = {client: Shipment(vouched=proof.spec) for client in clients if (proof := self._vouched(client, spec))}
        now, others = self._clock.now(), [client for client in clients if client not in vouched]
        self.directory, parcels = self.directory.expire(now).offer(others, now)
        return vouched | {client: Shipment(parcel.send) for client, parcel in parcels.items()}

    def _vouched(self, client: str, spec: RoundSpec) -> Proof | None:
        """The proof of an older copy that the round allows and that the holders vouch for."""
        proof = self.proofs.get(client)
        older = proof is not None and proof.version < spec.model_version and proof.spec in self._openings
        if proof is None or not older or too_old(proof.version, spec.model_version, spec.terms.staleness):
            return None
        return proof

    def frame(self, spec: RoundSpec, shipment: "Shipment", own: Mapping[str, bytes]) -> bytes:
        """The round's request to one client that gets this shipment and its `own` parts."""
        vouchers = {} if shipment.vouched is None else self._openings[shipment.vouched][1]
        return spec_frame("round", spec, {**own, **vouchers, "model": self._outline_bytes})

    def chunks(self, spec: RoundSpec, keys: int) -> dict[str, NDArray[np.float32]]:
        """The chunks of the round's model whose bits are in `keys`; each is read and converted once for all clients.

        Raises `PeerFault`: "expired-version" for a request that comes when the version has expired.
        """
        names = self.directory.names(keys) if keys else ()
        try:
            return {name: self._chunk(name, spec) for name in names}
        except VersionExpired as expired:
            raise PeerFault(Reason.EXPIRED_VERSION, str(expired)) from expired

    def _chunk(self, name: str, spec: RoundSpec) -> NDArray[np.float32]:
        """One chunk of the round's version, loaded once and kept for as long as a round lasts."""

        def loaded() -> NDArray[np.float32]:
            return self._parameters.travelling((name,), spec.model_version)[name]

        return self._parameters.derived(f"chunk/{name}", spec.model_version, loaded, spec.terms.deadline)


def _basis(envelope: Envelope, spec: RoundSpec) -> Basis | None:
    """The model that an update names; None where the terms allow no older one."""
    return Basis.from_bytes(envelope.attached.get(BASIS, b"")) if spec.terms.staleness else None


@dataclass(frozen=True, slots=True)
class Shipment:
    """The chunks to send, as bits; or, for an allowed older copy, the spec digest of the round that proves it."""

    keys: int = 0
    vouched: bytes | None = None


class Download:
    """The download of one round: its spec, and the requests to the clients."""

    def __init__(self, downloads: Downloads, spec: RoundSpec, own: Callable[[str], Mapping[str, bytes]]) -> None:
        self.spec = spec
        self._tag = f"{spec.task}/round/{spec.round}"
        self._downloads, self._own = downloads, own
        self._resent: set[str] = set()

    def requests(self, clients: Iterable[str]) -> dict[str, Request]:
        """One request a client. The chunks that go to several clients are in memory once.

        Raises `PeerFault`: "expired-version" where newer versions have replaced the round's, and it has expired.
        """
        plans = self._downloads.plan(tuple(clients), self.spec)
        return {client: self._request(client, shipment) for client, shipment in plans.items()}

    def again(self, client: str) -> Request | None:
        """A request with the whole model, for a client that lost its copy; None the second time."""
        self._downloads.forget(client)
        if client in self._resent:
            return None
        self._resent.add(client)
        return self.requests((client,))[client]

    def check(self, envelope: Envelope) -> None:
        """Check that the update's model is allowed, as `Downloads.check` does; then note what its sender holds."""
        self._downloads.check(envelope, self.spec)
        self._downloads.learn(envelope)

    def late(self, envelope: Envelope) -> None:
        """Note what an update of an earlier round proves. Raises `PeerFault(MALFORMED)`."""
        self._downloads.learn(envelope)

    def certify(self, answers: Mapping[int, Signed]) -> None:
        """Keep the holders' signatures that this round was opened."""
        self._downloads.certify(self.spec, answers)

    def _request(self, client: str, shipment: Shipment) -> Request:
        frame = self._downloads.frame(self.spec, shipment, self._own(client))
        return Request("train", self._tag, frame, self._downloads.chunks(self.spec, shipment.keys))
