"""What a hostile peer reaches: every reader of its bytes, in members and node, with inputs that honest ones wrote."""

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
from kit.cohort import FakeCohort, FakeSum, Size, place, wide_limits
from kit.crypto.attacker import lying_node
from kit.fuzz.fuzzer import Target
from kit.fuzz.mutations import parts_in
from kit.marks import MARK

from fednode.driver import PlannedTask, Reply, Request
from fednode.driver.query import read_answer
from fednode.driver.steps.boxes import box_request, read_checked
from fednode.driver.steps.confirm import confirm_request, read_confirmed
from fednode.driver.steps.open import OpenRequest, read_opening
from fednode.errors import ConfigError, DataError, PeerFault, StoreError
from fednode.protocol import envelope as envelopes
from fednode.protocol.boxkeys import ClientKeys, HolderKeys, box_name, client_indices
from fednode.protocol.chunks import Outline
from fednode.protocol.cohort import Cohort
from fednode.protocol.complaints import Complaint, Court, complaint_parts
from fednode.protocol.confirmations import Confirmations
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.model import Basis, Layout
from fednode.protocol.openings import opened_by
from fednode.protocol.requests import (
    KeyParts,
    TaskCard,
    frame_kind,
    read_ask,
    read_roster,
    read_round_request,
    read_spec,
    roster_part,
)
from fednode.protocol.spec import RoundSpec
from fednode.wire import digest, join_parts, parse, split_parts
from fednode_clients.holder.box_store import BoxStore
from fednode_crypto import scheme

MOST = 1 << 26
RING = Size(clients=4, holders=3, threshold=3, dimension=40, scheme="ring", staleness=1)
PLAIN = Size(clients=3, holders=3, threshold=2, dimension=5, scheme="bfv")
_MOST_VALUES = 1 << 16
OWN = (PeerFault, StoreError, ConfigError, DataError)
"""How reading a file of one's own may end."""


class World:
    """A cohort whose node has collected a round and opened nothing yet, and all that was said until then."""

    def __init__(self, root: Path, size: Size) -> None:
        self.root, self._copy = root / "live", root / "copy"
        real = scheme("ring") if size.scheme == "ring" else None
        self.cohort = FakeCohort(self.root, size, real, wide_limits(max_staleness=size.staleness))
        self.node = lying_node(self.cohort, 1)
        # the node's half of the last two steps: the confirmations, and the request to open
        names = self.node.names
        self._copy_keys(self.root, self._copy)
        self.complaint = self._complaint("holder-1", names[0]) if self.cohort.scheme.boxed else None
        if self.cohort.scheme.boxed:
            self.node.confirm_all(names)
        with suppress(PeerFault):
            self.node.answers(names)
        self.requests: dict[str, list[tuple[str, Request]]] = {}
        for name, request in self.cohort.sent:
            self.requests.setdefault(frame_kind(request.frame), []).append((name, request))
        heads = self.node.heads(names)
        opening = Request("query", "open", self.node.frame(heads))
        self.requests["open"] = [(name, opening) for name in self.node.holders]
        self.replies = {key: frames[-1] for key, frames in self.cohort.said.items()}
        self.task: PlannedTask = self.cohort.task()
        if self.complaint is not None:
            self._ask_for_complaints(names)
        self._keys = {one.name: self.cohort.folder(one.name).signer.key for one in self.cohort.cohort.members}

    def _complaint(self, holder: str, client: str) -> Complaint:
        """A false one: nothing is wrong with the box."""
        spec, update, point = self.node.spec, self.node.updates[client], self.node.point(holder)
        indices = client_indices(self.cohort.cohort)
        secret = BoxStore(self.cohort.folder(holder))._current(spec).key(indices[client]).private_bytes()
        key = self.box_keys()[point].of(indices[client])
        return Complaint(update.signed, update.attached[box_name(point)], key, secret)

    def _ask_for_complaints(self, names: Collection[str]) -> None:
        heads = {point: keys.signed for point, keys in self.box_keys().items()}
        parts, roster = complaint_parts(heads, [self.complaint] if self.complaint else []), self.node.heads(names)
        asked = confirm_request(self.task, self.node.spec, roster_part(roster), self.node.holders, (MARK, parts))
        self.requests["confirm"] += asked.messages.items()

    def box_keys(self) -> dict[int, HolderKeys]:
        """The keys of each holder for round 1, by point."""
        cohort, topic = self.cohort.cohort, Topic(self.node.spec.task, self.node.spec.round)
        said = {one.point: self.cohort.said[one.name, "box-key"][-1] for one in cohort.holders}
        return {
            point: HolderKeys.verified(Envelope.from_bytes(frame, MOST), cohort, point, topic)
            for point, frame in said.items()
        }

    def renew(self) -> None:
        """Members as they were when the round was collected."""
        self._copy_keys(self._copy, self.root)
        for name in (*self.cohort.size.client_names, *self.cohort.size.holder_names):
            self.cohort.restart(name)

    @staticmethod
    def _copy_keys(source: Path, target: Path) -> None:
        shutil.rmtree(target / "keys", ignore_errors=True)
        shutil.copytree(source / "keys", target / "keys")

    def sign(self, head: bytes) -> bytes:
        """As a member would that signs anything in its own name."""
        try:
            key = self._keys[json.loads(head)["sender"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return bytes(64)
        return key.sign(envelopes._DOMAIN, head)


def all_targets(ring: World, plain: World) -> list[Target]:
    """Every reader there is."""
    of_plain = (*member_targets(plain), *node_targets(plain))
    of_ring = (*member_targets(ring), *node_targets(ring), *reader_targets(ring), *complaint_targets(ring))
    of_ring += (chunk_target(ring), file_target(ring))
    return [replace(one, sign=world.sign) for world, some in ((ring, of_ring), (plain, of_plain)) for one in some]


def member_targets(world: World) -> list[Target]:
    """The requests of a world, each given to the member that got it."""
    label = world.cohort.size.scheme
    targets = []
    for kind, asked in sorted(world.requests.items()):
        role = "query" if asked[0][1].call == "query" else "train"
        for name in sorted({who for who, _ in asked if who.endswith("1")}):
            seeds = [request.frame for who, request in asked if who == name]
            request = next(request for who, request in asked if who == name)
            told, allowed = _spoken(world, name, request), () if role == "query" else (PeerFault, StoreError)
            targets.append(Target(f"{label} {role} {kind} {name}", seeds, told, allowed, world.renew))
            if role == "query":
                inside = _inside(world, name)
                targets.append(Target(f"{label} inside {kind} {name}", seeds, inside, prepare=world.renew))
    return targets


def _inside(world: World, name: str) -> Callable[[bytes], object]:
    """A member's own reader of a frame, behind the check of who sent it."""
    if name.startswith("holder"):
        return lambda data: world.cohort.holder(name).handle(data)
    return lambda data: world.cohort.client(name).take_task(data)


def _spoken(world: World, name: str, request: Request) -> Callable[[bytes], object]:
    """What a member says to a frame, as the kind of its answer or the reason of its refusal; a query raises nothing."""
    if request.call == "query":
        return lambda data: _kind(world.cohort.members(name).query(place(name), world.cohort.signed(name, data)))

    def trained(data: bytes) -> object:
        client = world.cohort.client(name)
        spec, parts = read_spec("round", data)
        joined = client.join(spec, parts, request.chunks)
        if isinstance(joined, bytes):
            return "repeated"
        return _kind(client.answer(spec, lambda: FakeSum(world.cohort.learned[name], world.cohort.size.records)))

    return trained


def _kind(frame: bytes) -> str:
    head = Envelope.from_bytes(frame, MOST, MOST).head
    return str(head.about["reason"]) if head.kind == "refusal" else head.kind


def node_targets(world: World) -> list[Target]:
    """The node's readers, on what members said."""
    label, task = world.cohort.size.scheme, world.task
    targets = []
    for (name, kind), frame in sorted(world.replies.items()):
        if not name.endswith("1"):
            continue
        said = Envelope.from_bytes(frame, MOST, MOST).head.kind

        def read(data: bytes, name: str = name, said: str = said) -> object:
            return read_answer(Reply(name, "tag", data), said, task, MOST, MOST)

        targets.append(Target(f"{label} node {kind} of {name}", [frame], read))
    return targets + [Target(f"{label} node reads {kind}", [seed], one) for kind, seed, one in _steps(world)]


def _steps(world: World) -> Iterator[tuple[str, bytes, Callable[[bytes], object]]]:
    """The node's reader of each step of a round, with what holder-1 said."""
    task, spec, heads = world.task, world.node.spec, world.node.heads(world.node.names)
    said, me = {kind: frame for (name, kind), frame in world.replies.items() if name == "holder-1"}, "holder-1"
    roster, wanted = digest("roster", roster_part(heads)), bytes(spec.sum_params.request_bytes)
    opening = OpenRequest(spec.digest(), roster, digest("open-request", wanted), MARK, {})
    yield "open", said["open"], lambda data: read_opening(Reply(me, "t", data), opening, task, world.cohort.scheme)
    if not world.cohort.scheme.boxed:
        return
    member, updates = task.cohort.member(me), world.node.updates
    boxes = {name: update.attached[box_name(member.point)] for name, update in updates.items()}
    asked, final = (
        box_request(task, spec, heads, member, boxes),
        confirm_request(task, spec, roster_part(heads), [me], (MARK, {})),
    )
    yield "boxes", said["boxes"], lambda data: read_checked(Reply(me, "t", data), asked, task)
    yield "confirm", said["confirm"], lambda data: read_confirmed(Reply(me, "t", data), final, task)
    topic = Topic(spec.task, spec.round)
    yield (
        "box-key",
        said["box-key"],
        lambda data: HolderKeys.verified(Envelope.from_bytes(data, MOST), task.cohort, member.point, topic),
    )


def complaint_targets(world: World) -> list[Target]:
    """What a holder shows when it strikes a client, and the keys that a client is sent."""
    cohort, spec = world.cohort.cohort, world.node.spec
    heads = {point: keys.signed for point, keys in world.box_keys().items()}
    court = Court(spec, cohort, world.cohort.scheme, heads, client_indices(cohort))
    topic, name = Topic(spec.task, spec.round), world.node.names[0]

    def judged(data: bytes) -> object:
        return str(court.judge(Complaint.from_bytes(data, len(cohort.clients))).reason)

    def keys(data: bytes) -> object:
        return ClientKeys.from_parts(split_parts(data, 64), cohort).verified(cohort, topic, name)

    own = {key: part for key, part in world.node.own[name].items() if key.startswith("box-key")}
    seed = world.complaint.to_bytes() if world.complaint else b""
    return [Target("complaint", [seed], judged), Target("client keys", [join_parts(own)], keys)]


def reader_targets(world: World) -> list[Target]:
    """The readers of the protocol, each on its own."""
    cohort, node = world.cohort.cohort, world.node
    open_parts = read_spec("open", world.requests["open"][0][1].frame)[1]
    card = read_ask("task", world.requests["task"][0][1].frame)[1]
    topic = Topic(node.spec.task, node.spec.round, node.spec.digest())
    update, root = node.updates[node.names[0]], world.cohort.folder(node.names[0]).enrolment_key
    readers: Mapping[str, tuple[Sequence[bytes], Callable[[bytes], object]]] = {
        "roster": ([open_parts["roster"]], read_roster),
        "outline": ([node.parts["model"]], lambda data: Outline.from_bytes(data).chunks()),
        "cohort": ([card["cohort"]], Cohort.from_bytes),
        "card": ([join_parts(card)], lambda data: TaskCard.from_parts("task-1", split_parts(data, 64), root)),
        "key parts": ([join_parts(card)], lambda data: KeyParts.from_parts(split_parts(data, 64))),
        "spec": ([json.dumps(node.spec.to_dict(), sort_keys=True, separators=(",", ":")).encode()], _spec),
        "envelope": ([update.to_bytes()], lambda data: Envelope.from_bytes(data, MOST, MOST).signed.verified(cohort)),
        "signed": ([update.signed.to_bytes()], lambda data: _signed(data, cohort)),
        "confirmations": ([join_parts(open_parts)], lambda data: _confirmations(data, cohort, topic)),
        "openings": (
            [join_parts({f"opened-{n}": open_parts[f"confirmed-{n}"] for n in (1, 2)})],
            lambda data: opened_by(split_parts(data, 64), cohort, topic.task, topic.spec),
        ),
        "basis": ([Basis(3, bytes(32)).to_bytes()], Basis.from_bytes),
        "round request": ([world.requests["box-key"][0][1].frame], lambda data: read_round_request("box-key", data)),
    }
    return [Target(f"reader {name}", seeds, read, weight=2) for name, (seeds, read) in readers.items()]


def _spec(data: bytes) -> object:
    return RoundSpec.from_fields(parse(data)).digest()


def _signed(data: bytes, cohort: Cohort) -> object:
    signed = Signed.from_bytes(data)
    signed.head.attached()
    return signed.verified(cohort), signed.to_bytes()


def _confirmations(data: bytes, cohort: Cohort, topic: Topic) -> object:
    return Confirmations.from_parts(split_parts(data, 64), cohort).verified(cohort, topic, bytes(32))


def chunk_target(world: World) -> Target:
    """A model of any outline, with chunks that fit it, or nearly."""
    name, request = world.requests["round"][0]
    _, parts = read_spec("round", request.frame)
    plain = Outline.from_bytes(parts["model"])
    kept = Outline(plain.trained, Layout(("scale", "none"), ((2, 3), (1, 4))))
    kinds = ("<f4", ">f4", "<f8", "<f2", "<i4", "?", "<c8", "S4")

    def read(data: bytes) -> object:
        random = Random(data)
        outline = parts_in(data).get("model", b"")
        places = Outline.from_bytes(outline).chunks()
        if sum(place.count for place in places) > _MOST_VALUES:
            return "too large to make here"
        given = {place.id: np.zeros(place.count, np.float32) for place in places}
        for key in [key for key in given if random.random() < 0.1]:
            values = given.pop(key)
            shape = random.choice([values.shape, (), (0,), (1, *values.shape), (values.size + 1,)])
            given[random.choice([key, key + "/", "é", ""])] = np.resize(values, shape).astype(random.choice(kinds))
        spec = replace(world.node.spec, round=2)
        return world.cohort.client(name).join(spec, {**parts, "model": outline}, given)

    seeds = [join_parts({"model": outline.to_bytes()}) for outline in (plain, kept)]
    return Target("chunks", seeds, read, (PeerFault,), world.renew, weight=3)


def file_target(world: World) -> Target:
    """A small file of a holder's or a client's key folder, damaged, when the next request comes."""
    names = ("holder-1", "client-1")
    asked = {name: [one for ask in world.requests.values() for who, one in ask if who == name] for name in names}
    files = {name: sorted(path for path in (world.root / "keys" / name).rglob("*") if path.is_file()) for name in names}
    seeds = [path.read_bytes() for name in names for path in files[name]]

    def read(data: bytes) -> object:
        random = Random(data)
        name = random.choice(names)
        path = random.choice(files[name])
        kept = path.read_bytes() if path.exists() else None
        mode = path.stat().st_mode & 0o777 if kept is not None else 0o600
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        try:
            world.cohort.restart(name)
            return _spoken(world, name, request := random.choice(asked[name]))(request.frame)
        finally:
            path.unlink(missing_ok=True) if kept is None else path.write_bytes(kept)

    return Target("own files", seeds, read, OWN, world.renew, weight=3)
