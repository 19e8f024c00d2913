"""The two sides of a round, asked one question at a time: the real `Downloads` with its `RoundDirectory`, and the real
`ModelCopyStore` over a folder in memory. Each is put into the state that is asked about, and read back after it.
"""

from collections.abc import Callable, Mapping
from copy import copy as shallow
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
from kit.cache.chunking import chunked, outline_of
from kit.clocks import FakeClock
from kit.coherence.moves import Violation
from kit.coherence.round_parts import Down, Model, Part, Round, Shared, Up
from kit.cohort import Size

from fednode.assemble.enrolment import enrol_simulation
from fednode.cache.round_directory import RoundDirectory
from fednode.driver.downloads import Download, Downloads, Proof
from fednode.errors import PeerFault
from fednode.protocol.envelope import Head, Signed, Topic
from fednode.protocol.model import BASIS, Basis
from fednode.protocol.openings import opening_parts
from fednode.protocol.requests import TaskCard
from fednode.protocol.spec import RoundSpec
from fednode_clients.client.model_copy import ModelCopyStore
from fednode_clients.keyfolder.folder import KeyFolder

TASK = "task"
ARRAYS = ("w", "ice")
"""One that is trained and one that is not: a client keeps copies of both on its disk. Here both may change."""


@dataclass(frozen=True)
class Sides:
    """What is searched; the classes are real, or have a planted fault."""

    staleness: int = 0
    durable: bool = True
    """Whether copies are kept on disk: there are frozen arrays, or older copies may be used."""
    downloads: type[Downloads] = Downloads
    directory: type[RoundDirectory] = RoundDirectory
    room: type[ModelCopyStore] = ModelCopyStore


class MemoryFolder:
    """What a `ModelCopyStore` needs of a key folder."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.state = self

    def get(self, name: str) -> bytes | None:
        return self.files.get(name)

    def put(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def drop(self, name: str) -> None:
        self.files.pop(name, None)


class Store:
    """What `Downloads` needs of a `ParameterStore`: the chunks of the newest model and when each came to be."""

    def __init__(self) -> None:
        self.model = Model(0, (0,) * len(ARRAYS))

    def write(self, arrays: Mapping[str, np.ndarray], metadata: object) -> int:
        content = tuple(int(arrays[name].flat[0]) for name in ARRAYS)
        self.model = Model(self.model.version + 1, content)
        return self.model.version

    def chunks(self) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(id=f"{name}/0", version=at) for name, at in zip(ARRAYS, self.model.content, strict=True)
        ]

    def travelling(self, names: tuple[str, ...], version: int) -> dict[str, np.ndarray]:
        return {name: chunk for name, chunk in chunked(arrays_of(self.model)).items() if name in names}

    def derived(self, what: str, version: int, make: Callable[[], bytes], life: float) -> bytes:
        return make()


def arrays_of(model: Model) -> dict[str, np.ndarray]:
    """Unlike values for unlike versions of an array."""
    return {name: np.full(1, number, dtype=np.float32) for name, number in zip(ARRAYS, model.content, strict=True)}


def model_in(arrays: Mapping[str, np.ndarray], version: int) -> Model:
    return Model(version, tuple(int(arrays[name].flat[0]) for name in ARRAYS))


class NamedSpec(RoundSpec):
    """A spec that makes its digest once."""

    def digest(self) -> bytes:
        if "made" not in self.__dict__:
            self.__dict__["made"] = RoundSpec.digest(self)
        return self.__dict__["made"]


class World:
    """Specs, signatures and outlines for a search, each made once."""

    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        self.size = Size(
            clients=3, holders=2, threshold=2, dimension=1 if sides.durable else 2, staleness=sides.staleness
        )
        with TemporaryDirectory() as root:
            self.cohort = enrol_simulation(Path(root) / "keys", 3, 2).cohort
            self.signers = {m.point: KeyFolder.open(Path(root) / "keys" / m.name).signer for m in self.cohort.holders}
        frozen = ARRAYS[1:] if sides.durable else ()
        some = arrays_of(Model(0, (0,) * len(ARRAYS)))
        trained = {name: array for name, array in some.items() if name not in frozen}
        self.outline = outline_of(trained, {name: some[name] for name in frozen})
        self.card = TaskCard(TASK, self.cohort, self.size.sum_params())
        task = SimpleNamespace(terms=self.size.terms(), outline=self.outline)
        self._empty = sides.downloads(Store(), task, FakeClock())  # type: ignore[arg-type]
        chunks = self._empty.directory.keys
        self._empty.directory = sides.directory.of(chunks, self._empty.directory.lease)
        self.spec = cache(self._spec)
        self.name = cache(lambda one: self.spec(one).digest())
        self.digest = cache(lambda model: self.outline.digest(arrays_of(model)))
        self.openings = cache(self._openings)
        self.word = cache(lambda one: opening_parts(self.openings(one)))
        self.files = cache(self._files)

    def _spec(self, one: Round) -> RoundSpec:
        digest, key = self.digest(one.model), bytes(32)
        terms, params = self.size.terms(), self.size.sum_params()
        return NamedSpec(TASK, one.number, one.model.version, digest, key, key, terms, params)

    def _openings(self, one: Round) -> Mapping[int, Signed]:
        topic = Topic(TASK, one.number, self.name(one))
        return {point: signer.write("answer", topic).signed for point, signer in self.signers.items()}

    # --- the client

    def take(self, copy: Round | None, message: Down) -> tuple[Round | None, Up]:
        """What a client that holds `copy` does with a request: what it holds then, and its reply.

        Asked with its memory and, where copies are kept on disk, after a restart as well: the answer is the same.
        """
        folder, room = MemoryFolder({}), None
        if copy is not None:
            room = self._holding(copy, folder)
        after = self._taken(room or self.sides.room(folder), copy, message)
        if self.sides.durable:
            restarted = MemoryFolder({} if copy is None else self.files(copy))
            again = self._taken(self.sides.room(restarted), copy, message)
            whole = {} if after[0] is None else self.files(after[0])
            honest = after[1].basis in (None, message.round.model, None if copy is None else copy.model)
            if again != after or (honest and not folder.files == restarted.files == whole):
                raise Violation("a restart between two messages changes what a client does")
        return after

    def _holding(self, copy: Round, folder: MemoryFolder) -> ModelCopyStore:
        room = ModelCopyStore(folder)
        room.take(self.card, self.spec(copy), self._parts(None), chunked(arrays_of(copy.model)))
        room.__class__ = self.sides.room
        return room

    def _files(self, copy: Round) -> Mapping[str, bytes]:
        folder = MemoryFolder({})
        self._holding(copy, folder)
        return folder.files

    def _taken(self, room: ModelCopyStore, copy: Round | None, message: Down) -> tuple[Round | None, Up]:
        chunks = chunked(arrays_of(message.round.model))
        sent = {f"{name}/0": chunks[f"{name}/0"] for k, name in enumerate(ARRAYS) if message.send >> k & 1}
        try:
            taken = room.take(self.card, self.spec(message.round), self._parts(message.vouched), sent)
        except PeerFault as fault:
            if fault.reason != "missing-chunks":
                raise
            return copy, Up(message.round, None)
        basis = model_in(taken.arrays, taken.basis.version)
        # an older copy that may be used stays where it is
        held = message.round if taken.spec == self.name(message.round) else copy
        return held, Up(message.round, basis)

    def _parts(self, vouched: Round | None) -> dict[str, bytes]:
        word = {} if vouched is None else self.word(vouched)
        return {"model": self.outline.to_bytes(), **word}

    # --- the node

    def node(self, shared: Shared, parts: tuple[Part, ...]) -> Downloads:
        """The node as it stands, before the requests of a round or in it; clients are called 0, 1, 2."""
        node, store, current = shallow(self._empty), Store(), shared.round
        store.model = current.model
        frozen = {name: arrays_of(current.model)[name] for name in self.outline.frozen.names}
        node._parameters, node.proofs = store, {}  # type: ignore[assignment]
        node._task = SimpleNamespace(layout=self.outline.trained, frozen=frozen)  # type: ignore[assignment]
        names = [str(number) for number in range(len(parts))]
        node.directory = replace(
            node.directory,
            standings={name: part.standing for name, part in zip(names, parts, strict=True)},
            numbers=dict.fromkeys(names, 0),
            leases=dict.fromkeys(names, 1e9),
        )
        for name, part in zip(names, parts, strict=True):
            if part.proof is not None:
                node.proofs[name] = Proof(part.proof.model.version, self.name(part.proof))
        node._published = {one.version: self.digest(one) for one in shared.published}
        known = {current, *(up.round for part in parts for up in part.up)}
        node._specs = {self.name(one): self.spec(one) for one in known}
        node._openings = {self.name(one): (one.model.version, self.word(one)) for one in shared.opened}
        return node

    def read_back(self, node: Downloads, parts: tuple[Part, ...], rounds: Mapping[bytes, Round]) -> tuple[Part, ...]:
        """The parts with what `node` knows of them now."""
        after = []
        for number, part in enumerate(parts):
            proof = node.proofs.get(str(number)) if self.sides.staleness else None
            standing = node.directory.standings.get(str(number), type(part.standing)())
            known = None if proof is None else rounds[proof.spec]
            # what the parcel's number would need is of no use where proofs acknowledge
            after.append(part._replace(standing=standing._replace(parcel=0, dropping=0), proof=known))
        return tuple(after)

    def rounds(self, shared: Shared, parts: tuple[Part, ...]) -> dict[bytes, Round]:
        """Every round that somebody may name, by its digest."""
        named = {shared.round, *shared.opened}
        for part in parts:
            named |= {up.round for up in part.up} | ({part.proof} - {None})
        return {self.name(one): one for one in named}

    def replied(self, shared: Shared, part: Part, reply: Up) -> tuple[Part, Down | None, str]:
        """What the node makes of a reply: the client's part, what is sent at once, and "counted", "late" or a fault."""
        node = self.node(shared, (part,))
        download = Download(node, self.spec(shared.round), lambda _: self._parts(None))
        if part.resent:
            download._resent.add("0")
        again, word = None, "late"
        if reply.basis is None:
            if reply.round == shared.round:
                again, word = download.again("0"), "missing"
        else:
            word = self._learnt(download, shared, reply)
        rounds = self.rounds(shared, (part,))
        (after,) = self.read_back(node, (part,), rounds)
        resent = part.resent or again is not None
        send = 0 if again is None else node.directory.bits(again.chunks)
        return after._replace(resent=resent), None if again is None else Down(shared.round, send, None), word

    def _learnt(self, download: Download, shared: Shared, reply: Up) -> str:
        head = Head("update", "0", TASK, reply.round.number, self.name(reply.round), {}, 0, b"")
        basis = Basis(reply.basis.version, self.digest(reply.basis)).to_bytes()
        envelope = SimpleNamespace(head=head, attached={BASIS: basis} if self.sides.staleness else {})
        if reply.round != shared.round:
            download.late(envelope)  # type: ignore[arg-type]
            return "late"
        try:
            download.check(envelope)  # type: ignore[arg-type]
        except PeerFault as fault:
            return fault.reason
        return "counted"

    def silent(self, shared: Shared, part: Part) -> Part:
        """The part once the client's lease has run out at the node."""
        node = self.node(shared, (part,))
        node.directory = replace(node.directory, leases={"0": 0.0}).expire(1.0)
        return self.read_back(node, (part,), self.rounds(shared, (part,)))[0]

    def next_round(
        self, shared: Shared, parts: tuple[Part, ...], changed: int | None
    ) -> tuple[Shared, tuple[Part, ...]]:
        """The next round's requests, under way: after a release that changes the keys `changed`, or after a round that
        failed (None). All clients are invited."""
        node, number = self.node(shared, parts), shared.round.number + 1
        model, published, opened = shared.round.model, shared.published, shared.opened
        if changed is not None:
            at = model.version + 1
            content = tuple(at if changed >> k & 1 else old for k, old in enumerate(model.content))
            model = Model(at, content)
            node.certify(self.spec(shared.round), self.openings(shared.round))
            self._publish(node, model)
            published = tuple(one for one in (*published, model) if one.version in node._published)
            opened = tuple(one for one in dict.fromkeys((*opened, shared.round)) if self.name(one) in node._openings)
        rounds = self.rounds(shared, parts)
        after = Shared(Round(number, model), published, opened)
        shipments = node.plan([str(n) for n in range(len(parts))], self.spec(after.round))
        told = []
        for n, part in enumerate(self.read_back(node, parts, rounds)):
            shipment = shipments[str(n)]
            vouched = None if shipment.vouched is None else rounds[shipment.vouched]
            down = Down(after.round, shipment.keys, vouched)
            told.append(part._replace(down=(*part.down, down), resent=False))
        return after, tuple(told)

    def _publish(self, node: Downloads, model: Model) -> None:
        arrays = arrays_of(model)
        node._task.frozen = {name: arrays[name] for name in self.outline.frozen.names}
        vector = np.array([arrays[name].flat[0] for name in self.outline.trained.names], dtype=np.float64)
        node.publish(vector, 0)
        if node._published.get(model.version) != self.digest(model):
            raise RuntimeError("the node published another model")
