"""A cohort in memory: real clients and holders on key folders, behind a carrier where each does as it is told.

What members say is what `fednode_clients` says; what is fake is the way there, and what the test makes of it.
"""

import hashlib
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from kit.clocks import FakeClock
from kit.crypto.insecure import InsecureRng
from kit.crypto.plainsum import InsecurePlainSum
from numpy.typing import NDArray

from fednode.assemble.enrolment import enrol_simulation
from fednode.cache import Limits as CacheLimits
from fednode.cache import MemoryBackend, WhenFull
from fednode.driver import Driver, Node, PlannedTask, Reply, Request, RoundOutcome
from fednode.errors import PeerFault, StoreError
from fednode.members import member_names
from fednode.optimiser import ServerOptimiser
from fednode.privacy import AdaptiveClip, Budget, Ledger
from fednode.protocol.envelope import Envelope, Topic
from fednode.protocol.model import Basis, Layout
from fednode.protocol.requests import frame_kind, read_round_request, read_spec
from fednode.protocol.signed_requests import SignedRequest, sign_request, topic_of
from fednode.protocol.spec import RoundSpec, Terms
from fednode.stores import ParameterStore, UpdateStore
from fednode_clients.client.client import Client
from fednode_clients.holder.holder import Holder
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.limits import MemberLimits
from fednode_clients.membership import MemberParts, Members, NodeContext, storage_fault
from fednode_crypto import Demand, Rng, Sealing, SumParams, SumScheme, noise_tail, plan
from fednode_crypto import scheme as real_scheme
from fednode_crypto.interfaces import JointKey

TASK = "task-1"


@dataclass(frozen=True)
class Size:
    """How many of what; `records` are a client's, each clipped to 1."""

    clients: int = 4
    holders: int = 3
    threshold: int = 2
    dimension: int = 5
    scheme: str = "bfv"
    records: int = 8
    min_survivors: int = 3
    colluders: int = 1
    staleness: int = 0
    rotated: bool = False
    adaptive_clip: float | None = None

    def terms(self) -> Terms:
        return Terms(
            unit="record" if self.adaptive_clip is None else "client",
            clip=1.0,
            grid_bits=8,
            local_variance=1 << 16,
            max_records=self.records,
            divisor=1.0,
            min_survivors=self.min_survivors,
            assumed_colluders=self.colluders,
            deadline=60.0,
            staleness=self.staleness,
            rotated=self.rotated,
            adaptive_clip=self.adaptive_clip,
        )

    @cache  # noqa: B019 - a size is a value, and there are few
    def sum_params(self) -> SumParams:
        terms = self.terms()
        signal = terms.max_records * (1 << terms.grid_bits) + 1
        bound = self.clients * signal + noise_tail(self.clients * terms.local_variance, 1 << 20)
        summands = max(self.clients, self.holders)
        dimension = self.dimension + (self.adaptive_clip is not None)
        return plan(self.scheme, Demand(dimension, summands, bound, self.holders, self.threshold))

    @property
    def client_names(self) -> tuple[str, ...]:
        return member_names("client", self.clients)

    @property
    def holder_names(self) -> tuple[str, ...]:
        return member_names("holder", self.holders)


def wide_limits(**changes: Any) -> MemberLimits:
    """Limits that take part in both schemes, any majority of holders and any number of rounds; the defaults do not."""
    wide = {"schemes": ("ring", "bfv"), "min_threshold": 1, "max_corrupt": 0, "max_epsilon": math.inf}
    return MemberLimits(**(wide | changes))


@dataclass(frozen=True)
class FakeSum:
    """What training would give."""

    vector: NDArray[np.float64] = field(repr=False)
    records: int = 8
    clip: float = 1.0
    unit: str = "record"


class _SpiedSealer:
    def __init__(self, cohort: "FakeCohort", inner: object) -> None:
        self._cohort, self._inner = cohort, inner

    def seal(self, values: NDArray[np.int64], rng: Rng, context: bytes = b"") -> Sealing:
        self._cohort.plain[self._cohort.speaking] = values.copy()
        return self._inner.seal(values, rng, context)  # type: ignore[attr-defined, no-any-return]


class _SpiedScheme:
    """The scheme itself, but what is sealed is written down first."""

    def __init__(self, cohort: "FakeCohort", inner: SumScheme) -> None:
        self._cohort, self._inner = cohort, inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def sealer(self, params: SumParams, key: JointKey | None = None) -> _SpiedSealer:
        return _SpiedSealer(self._cohort, self._inner.sealer(params, key))


Conduct = Callable[["FakeCohort", str, Request], Sequence[bytes | None]]
"""What a member sends back: frames; None is the carrier's word that it broke."""


class FakeCohort:
    """All members, and the `Channel` to them. `plain` holds the integers that each client sealed last."""

    def __init__(
        self, root: Path, size: Size | None = None, scheme: SumScheme | None = None, limits: MemberLimits | None = None
    ) -> None:
        self.root, self.size = root, size or Size()
        self.scheme = scheme or (InsecurePlainSum() if self.size.scheme == "bfv" else real_scheme(self.size.scheme))
        self.limits = limits or wide_limits(max_staleness=self.size.staleness, colluders=self.size.colluders)
        self.frozen: dict[str, NDArray[np.float32]] = {}
        enrolled = enrol_simulation(root / "keys", self.size.clients, self.size.holders)
        self.cohort, self.signer = enrolled.cohort, enrolled.signer
        self.plain: dict[str, NDArray[np.int64]] = {}
        self.learned = {name: self._some_vector(name) for name in self.size.client_names}
        self.trained_from: dict[str, Basis] = {}
        self.speaking = ""
        self.clock = FakeClock()
        self.sent: list[tuple[str, Request]] = []
        self.said: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        self.late: list[Reply] = []
        self._starts: Counter[str] = Counter()
        self._members = {member.name: self._opened(member.name) for member in self.cohort.members}
        self._told: dict[str, list[tuple[str, Collection[int] | None, Conduct]]] = defaultdict(list)
        self._queue: deque[tuple[str, Request]] = deque()
        self._inbox: deque[Reply] = deque()

    # --- members

    def _some_vector(self, name: str) -> NDArray[np.float64]:
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
        return np.random.default_rng(seed).uniform(-1, 1, self.size.dimension)

    def _opened(self, name: str) -> Members:
        self._starts[name] += 1
        seed = int.from_bytes(hashlib.sha256(f"rng {name} {self._starts[name]}".encode()).digest()[:4], "big")
        spied: SumScheme = _SpiedScheme(self, self.scheme)  # type: ignore[assignment]
        parts = MemberParts(
            schemes=lambda _: spied,
            rng=lambda: InsecureRng(seed),
            limits=self.limits,
            clock=self.clock,
            folder=lambda place: self.root / "keys" / str(place.node["name"]),
        )
        return Members(parts)

    def restart(self, name: str) -> None:
        """The process ends; what is left is the key folder, and the next one draws other randomness."""
        self._members[name] = self._opened(name)

    def members(self, name: str) -> Members:
        return self._members[name]

    def client(self, name: str) -> Client:
        return self._members[name].client(place(name))

    def holder(self, name: str) -> Holder:
        return self._members[name].holder(place(name))

    def folder(self, name: str) -> KeyFolder:
        return KeyFolder.open(self.root / "keys" / name)

    def signed(self, name: str, frame: bytes) -> SignedRequest:
        """The frame as the node signs it for this member, also where it is no request."""
        try:
            topic = topic_of(frame)
        except (PeerFault, MemoryError):
            topic = Topic(TASK)
        return SignedRequest(frame, sign_request(self.signer, name, frame, topic))

    def speak(self, name: str, request: Request) -> bytes:
        """The honest answer."""
        self.speaking = name
        if request.call == "query":
            frame = self._members[name].query(place(name), self.signed(name, request.frame))
        else:
            frame = self._train(self.client(name), request)
        self.said[name, frame_kind(request.frame)].append(frame)
        return frame

    def _train(self, client: Client, request: Request) -> bytes:
        spec, parts = read_spec("round", request.frame)
        try:
            joined = client.join(spec, parts, request.chunks)
            if isinstance(joined, bytes):
                return joined
            self.trained_from[client.folder.name] = joined.basis
            clip, unit = spec.terms.training_clip, spec.terms.unit
            learned = self.learned[client.folder.name]
            return client.answer(spec, lambda: FakeSum(learned, self.size.records, clip, unit))
        except PeerFault as fault:
            return client.refuse(spec, fault)
        except StoreError as error:
            return client.refuse(spec, storage_fault(error))

    # --- the carrier

    def tell(self, name: str, conduct: Conduct, kind: str = "round", rounds: Collection[int] | None = None) -> None:
        """From now on `name` behaves so when it is asked `kind`, in these rounds or in all."""
        self._told[name].insert(0, (kind, rounds, conduct))

    def forgive(self) -> None:
        """Everybody is honest again."""
        self._told.clear()

    def send(self, requests: Mapping[str, Request]) -> None:
        self._inbox.extend(self.late)
        self.late.clear()
        self._queue.extend(requests.items())
        self.sent.extend(requests.items())

    def receive(self) -> Sequence[Reply]:
        while self._queue and not self._inbox:
            name, request = self._queue.popleft()
            try:
                frames = self._conduct(name, request)(self, name, request)
            except StoreError as error:
                self._inbox.append(Reply(name, request.tag, None, str(error)))
                continue
            self._inbox.extend(Reply(name, request.tag, frame) for frame in frames)
        return [self._inbox.popleft()] if self._inbox else []

    def _conduct(self, name: str, request: Request) -> Conduct:
        kind = frame_kind(request.frame)
        for told, rounds, conduct in self._told[name]:
            if told == kind and (rounds is None or round_of(request) in rounds):
                return conduct
        return honest

    # --- the node over it

    def task(self, rounds: int = 8) -> PlannedTask:
        layout = Layout(("w",), ((self.size.dimension,),))
        optimiser = ServerOptimiser(rounds, path=1.0)
        rule = None if self.size.adaptive_clip is None else AdaptiveClip(0.5, rounds)
        sizes = self.size.terms(), self.size.sum_params(), layout, optimiser
        return PlannedTask(TASK, self.cohort, *sizes, 1e-30, self.frozen, clipping=rule)

    def node(self, epsilon: float = 1e6, stop: Callable[[], bool] = lambda: False) -> Node:
        budget = Budget(epsilon, 1e-5)
        roomy = CacheLimits(256, 1 << 28, 1 << 26)
        return Node(
            channel=self,
            scheme=self.scheme,
            ledger=Ledger.open(self.root / "ledger.jsonl", budget, self.clock, TASK),
            updates=UpdateStore(MemoryBackend(self.clock, roomy, WhenFull.REFUSE), retry_after=1.0),
            parameters=ParameterStore(MemoryBackend(self.clock, roomy, WhenFull.REFUSE), TASK),
            clock=self.clock,
            stop=stop,
        )

    def begun(self, node: Node | None = None) -> Driver:
        """A driver whose joint key is made."""
        driver = Driver(node or self.node(), self.task())
        driver.begin(np.zeros(self.size.dimension))
        return driver

    def sum_of(self, names: Collection[str]) -> NDArray[np.int64]:
        """The plain integer sum of what these clients sealed last."""
        return np.sum([self.plain[name] for name in names], axis=0)

    def asked(self, kind: str) -> list[tuple[str, Request]]:
        """Every request of this kind that was sent."""
        return [(name, request) for name, request in self.sent if frame_kind(request.frame) == kind]


def opened_sum(mean: NDArray[np.float64], terms: Terms) -> NDArray[np.int64]:
    """The integers behind a release, exactly."""
    scaled = mean * terms.divisor * 2.0**terms.grid_bits
    values = scaled.astype(np.int64)
    if not np.array_equal(values, scaled):
        raise AssertionError("the release is not on the grid")
    return values


def round_of(request: Request) -> int:
    kind = frame_kind(request.frame)
    return read_round_request(kind, request.frame)[1] if kind == "box-key" else read_spec(kind, request.frame)[0].round


def place(name: str) -> NodeContext:
    return NodeContext(1, {"name": name}, {})


# --- conducts


def honest(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
    return [cohort.speak(name, request)]


def silent(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
    return []


def breaking(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
    return [None]


def garbage(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
    frame = cohort.speak(name, request)
    return [hashlib.shake_256(frame).digest(len(frame))]


def repeating(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
    frame = cohort.speak(name, request)
    return [frame, frame]


def stale(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
    """What it said to the last request of this kind."""
    frame = cohort.said[name, frame_kind(request.frame)][-1]
    cohort.speak(name, request)
    return [frame]


def slow(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
    """The answer comes after the next thing that the node sends to anyone."""
    cohort.late.append(Reply(name, request.tag, cohort.speak(name, request)))
    return []


def reborn(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
    """Answers, dies before the answer is sent, comes back from its key folder and is asked again."""
    cohort.speak(name, request)
    cohort.restart(name)
    return [cohort.speak(name, request)]


def borrowing(other: str) -> Conduct:
    """Sends what `other` says as its own."""
    return lambda cohort, name, request: [cohort.speak(other, request)]


def flipping(share: float) -> Conduct:
    """One bit flips on the way, at this share of the frame's length."""

    def conduct(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
        frame = bytearray(cohort.speak(name, request))
        frame[int(share * (len(frame) - 1))] ^= 4
        return [bytes(frame)]

    return conduct


def spoiling_box(point: int) -> Conduct:
    """A client that boxes junk for one holder, and signs it."""

    box = f"box-{point}"
    return resigning(lambda told: {"attached": {**told.attached, box: bytes(len(told.attached[box]))}})


def resigning(change: Callable[[Envelope], dict[str, Any]]) -> Conduct:
    """Answers honestly, but signs another `body`, `attached` or `about` of the same kind: what `change` gives."""

    def conduct(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
        told = Envelope.from_bytes(cohort.speak(name, request), 1 << 26, 1 << 20)
        topic = Topic(told.head.task, told.head.round, told.head.spec)
        about = {name: value for name, value in told.head.about.items() if name != "attached"}
        signed = {"body": told.body, "attached": told.attached, "about": about} | change(told)
        return [cohort.folder(name).signer.write(told.head.kind, topic, **signed).to_bytes()]

    return conduct


def saying(change: Callable[[RoundSpec, Envelope], tuple[RoundSpec, bytes]]) -> Conduct:
    """Signs something else than the honest answer: for this spec, this body."""

    def conduct(cohort: FakeCohort, name: str, request: Request) -> Sequence[bytes | None]:
        spec, _ = read_spec(frame_kind(request.frame), request.frame)
        told = Envelope.from_bytes(cohort.speak(name, request), 1 << 26)
        spec, body = change(spec, told)
        topic = Topic(spec.task, spec.round, spec.digest())
        return [cohort.folder(name).signer.write(told.head.kind, topic, body, told.head.about).to_bytes()]

    return conduct


wrong_opening = saying(lambda spec, told: (spec, bytes(len(told.body))))
short_body = saying(lambda spec, told: (spec, told.body[:-8]))
next_round = saying(lambda spec, told: (replace(spec, round=spec.round + 1), told.body))


def check_released(cohort: FakeCohort, outcome: RoundOutcome, without: Iterable[str] = ()) -> RoundOutcome:
    """The outcome, if it is the release of the exact sum over all clients but `without`."""
    if outcome.cause or outcome.release is None:
        raise AssertionError(f"{outcome.cause}: {outcome.reason}")
    if set(outcome.survivors) != set(cohort.size.client_names) - set(without):
        raise AssertionError(f"the survivors are {outcome.survivors}")
    if not np.array_equal(opened_sum(outcome.release.mean, cohort.size.terms()), cohort.sum_of(outcome.survivors)):
        raise AssertionError("the released sum is not the sum of the survivors' updates")
    return outcome


def last_asked(cohort: FakeCohort, kind: str, name: str = "holder-1") -> bytes:
    """The frame of the last request of this kind to a member."""
    return [request.frame for member, request in cohort.asked(kind) if member == name][-1]


def refusal(cohort: FakeCohort, name: str, frame: bytes) -> str:
    """The reason with which a member refuses this frame."""
    envelope = Envelope.from_bytes(cohort.speak(name, Request("query", "t", frame)), 1 << 26)
    if envelope.head.kind != "refusal":
        raise AssertionError(f"{name} answered with {envelope.head.kind}")
    return envelope.about.text("reason", 64)


def failing(error: BaseException) -> Callable[..., NoReturn]:
    """A function that raises `error`, whatever it is called with."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail
