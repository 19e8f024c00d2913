"""What leaves the members of a `FakeCohort` when a node asks them: the real app and mods, over Flower's messages."""

import shutil
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from kit import cohort as kit
from kit.clocks import FakeClock
from kit.cohort import FakeCohort
from kit.crypto.attacker import envelope
from kit.crypto.insecure import InsecureRng

from fednode.driver import Driver, Request
from fednode.inproc import InProcGrid
from fednode.protocol.chunks import Outline
from fednode.protocol.envelope import Envelope
from fednode.protocol.model import Layout
from fednode.protocol.requests import read_spec, spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.records import FRAME, frame_of
from fednode.server import GridChannel
from fednode_clients.app import Train, build_app
from fednode_clients.limits import MemberLimits
from fednode_clients.membership import MemberParts

ENROLLED = "enrolled"
"""The folder with the members' keys as they were before anything was asked."""

Script = Iterable[tuple[str, Request]]
"""Whom the node asks what, in order."""

Around = Callable[[Request], AbstractContextManager[object]]
"""What holds while a request is answered, such as a disk that is full."""


@dataclass(frozen=True, slots=True)
class Said:
    """One answer, or the error that a member's app let out, which Flower sends as text."""

    name: str
    frame: bytes = field(repr=False, default=b"")
    records: tuple[str, ...] = (FRAME,)
    error: str = ""

    @property
    def envelope(self) -> Envelope:
        return envelope(self.frame)

    @property
    def kind(self) -> str:
        return "error" if self.error else self.envelope.head.kind

    @property
    def reason(self) -> str:
        """Why it refuses; "" for another answer."""
        return self.envelope.about.text("reason", 64) if self.kind == "refusal" else ""

    def visible(self) -> tuple[object, ...]:
        """All but hashes, signatures and what is sealed; of a refusal every byte."""
        if self.error:
            return self.name, self.error
        told, head = self.envelope, self.envelope.head
        about = {name: value for name, value in head.about.items() if name not in ("attached", "check")}
        attached = {name: len(data) for name, data in told.attached.items()}
        plain = self.frame if self.kind == "refusal" else b""
        sizes = (len(self.frame), head.size, len(head.to_bytes()), len(head.check()))
        return self.name, self.records, head.kind, head.sender, head.topic, about, attached, sizes, plain


def offered(cohort: FakeCohort, layout: Layout, rounds: int = 1) -> list[tuple[str, Request]]:
    """What an honest node asks the clients in these rounds over a model of zeros, while all of them are silent."""
    shutil.copytree(cohort.root / "keys", cohort.root / ENROLLED)
    for name in cohort.size.client_names:
        cohort.tell(name, kit.silent)
    driver = Driver(cohort.node(), replace(cohort.task(), layout=layout))
    driver.begin(np.zeros(layout.dimension))
    causes = {driver.run_round(number).cause for number in range(1, rounds + 1)}
    if causes != {"too-few-survivors"}:
        raise AssertionError(f"the rounds without clients ended as {causes}")
    cohort.forgive()
    return [
        (name, request)
        for name, request in cohort.sent
        if name in cohort.size.client_names and kit.frame_kind(request.frame) in ("task", "round")
    ]


def offering(
    request: Request, arrays: dict[str, np.ndarray] | None = None, outline: bytes = b"", **changes: object
) -> Request:
    """The same round over another model or with other terms, as a node that lies would ask for it.

    `outline` is the model's description if it is not the true one. `changes` are of the spec, or of its terms.
    """
    spec, parts = read_spec("round", request.frame)
    chunks = dict(request.chunks)
    if arrays is not None:
        true = Outline(Layout.of(arrays))
        parts, spec = parts | {"model": true.to_bytes()}, replace(spec, model_digest=true.digest(arrays))
        chunks = {
            chunk.id: arrays[chunk.array].reshape(-1)[chunk.first : chunk.first + chunk.count]
            for chunk in true.chunks()
        }
    own = {name: value for name, value in changes.items() if name in RoundSpec.__dataclass_fields__}
    terms = {name: value for name, value in changes.items() if name not in own}
    spec = replace(spec, terms=replace(spec.terms, **terms), **own)  # type: ignore[arg-type]
    return Request(
        "train", request.tag, spec_frame("round", spec, parts | ({"model": outline} if outline else {})), chunks
    )


@dataclass
class Overheard:
    """Clients of a cohort that was `offered` rounds, on key folders as enrolled, and all that they say, in order.

    The node's messages reach them as it sent them. Each client draws from a generator with a seed, on a clock that
    stands still: two runs differ in what the clients know, and in the boxes, which have randomness of their own.
    """

    cohort: FakeCohort
    folders: Path
    train: Train
    limits: MemberLimits = field(default_factory=MemberLimits)
    layout: Layout | None = None
    said: list[Said] = field(default_factory=list)

    def __post_init__(self) -> None:
        shutil.copytree(self.cohort.root / ENROLLED, self.folders)
        self.names = self.cohort.size.client_names
        parts = MemberParts(
            rng=lambda: InsecureRng(7),
            limits=self.limits,
            folder=lambda place: self.folders / self.names[place.partition()],
            clock=FakeClock(),
            layout=lambda _: self.layout,
        )
        self.app = build_app(parts, self.train)

    def _spied(self, message: Message, context: Context) -> Message:
        name = self.names[int(context.node_config["partition-id"])]
        try:
            reply = self.app(message, context)
        except Exception as error:
            self.said.append(Said(name, error=f"{type(error).__name__}: {error}"))
            raise
        self.said.append(Said(name, frame_of(reply.content), tuple(reply.content)))
        return reply

    def hear(self, script: Script, around: Around = lambda _: nullcontext()) -> list[Said]:
        """All that leaves while the node asks this."""
        app: ClientApp = self._spied  # type: ignore[assignment]
        channel = GridChannel(InProcGrid(app, self.names, {}), self.cohort.cohort, self.cohort.signer)
        channel._nodes = {name: 100 + number for number, name in enumerate(self.names)}
        for name, request in script:
            with around(request):
                channel.send({name: request})
                channel.receive()
        return self.said
