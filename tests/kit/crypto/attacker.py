"""A node that lies: it has collected a round of a `FakeCohort`, nobody was asked to open it, and now it asks what it
likes."""

import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from kit import cohort as kit
from kit.cohort import TASK, FakeCohort, Size
from kit.marks import MARK, MARKED
from numpy.typing import NDArray

from fednode.driver import Request
from fednode.errors import PeerFault
from fednode.protocol.confirmations import CONFIRMED, Confirmations, about_roster
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.requests import read_spec, roster_part, spec_frame
from fednode.protocol.spec import RoundSpec
from fednode.wire import digest
from fednode_clients.client.model_copy import Chunks
from fednode_clients.limits import MemberLimits
from fednode_crypto import SealedSum, scheme

MOST = 1 << 26
RING = Size(clients=5, holders=5, threshold=4, dimension=40, scheme="ring")
BFV = Size(clients=4, holders=3, threshold=2, dimension=40, scheme="bfv")
SIZES = {"ring": RING, "bfv": BFV}


class Refused(Exception):
    """A member said no; the text is its reason."""


def real_cohort(root: Path, size: Size = RING, limits: MemberLimits | None = None) -> FakeCohort:
    """By default, under `ring`, members with default limits, but any number of rounds."""
    if limits is None and size.scheme == "ring":
        limits = MemberLimits(max_staleness=size.staleness, max_epsilon=math.inf)
    return FakeCohort(root, size, scheme(size.scheme), limits)


def envelope(frame: bytes) -> Envelope:
    return Envelope.from_bytes(frame, MOST, MOST)


def asked(cohort: FakeCohort, name: str, frame: bytes, chunks: Chunks | None = None) -> Envelope:
    """The answer of `name` to any frame, in training if there are chunks; raises `Refused` with its reason."""
    request = Request("query", "a lie", frame) if chunks is None else Request("train", "a lie", frame, chunks)
    said = envelope(cohort.speak(name, request))
    if said.head.kind == "refusal":
        raise Refused(said.about.text("reason", 64))
    return said


def reason_of(cohort: FakeCohort, name: str, frame: bytes, chunks: Chunks | None = None) -> str:
    """Why `name` refuses; "" if it does not."""
    try:
        asked(cohort, name, frame, chunks)
    except Refused as refusal:
        return str(refusal)
    return ""


@dataclass
class LyingNode:
    """All that a node has of a round before it opens it: the spec, the box keys and model, every signed update. `parts`
    are those of the first client, `own` those of each."""

    cohort: FakeCohort
    spec: RoundSpec
    sent: Request = field(repr=False)
    own: dict[str, dict[str, bytes]] = field(repr=False)
    updates: dict[str, Envelope] = field(repr=False)
    confirmed: dict[tuple[str, ...], dict[int, Signed]] = field(default_factory=dict, repr=False)

    @property
    def parts(self) -> dict[str, bytes]:
        return self.own[min(self.own)]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.updates))

    @property
    def holders(self) -> tuple[str, ...]:
        return self.cohort.size.holder_names

    def learned(self, name: str) -> kit.FakeSum:
        return kit.FakeSum(self.cohort.learned[name], self.cohort.size.records)

    def heads(self, names: Collection[str]) -> list[Signed]:
        return [self.updates[name].signed for name in names]

    def frame(self, heads: Sequence[Signed], request: bytes | None = None, spec: RoundSpec | None = None) -> bytes:
        """A request to open, with all confirmations that were had for this roster."""
        spec = spec or self.spec
        wanted = bytes(spec.sum_params.request_bytes) if request is None else request
        signed = Confirmations(self.confirmed.get(tuple(head.head.sender for head in heads), {}))
        return spec_frame("open", spec, {**MARKED, "roster": roster_part(heads), "request": wanted, **signed.parts()})

    def confirm(self, holder: str, names: Collection[str]) -> None:
        """Get an honest holder's signature under a roster; raises `Refused`."""
        frame = spec_frame("confirm", self.spec, {**MARKED, "roster": roster_part(self.heads(names))})
        self._keep(holder, names, asked(self.cohort, holder, frame).signed)

    def corrupt_confirm(self, holder: str, names: Collection[str]) -> None:
        """The signature of a holder that works for the node: under anything."""
        topic = Topic(self.spec.task, self.spec.round, self.spec.digest())
        about = about_roster(digest("roster", roster_part(self.heads(names))), MARK.entry())
        self._keep(holder, names, self.cohort.folder(holder).signer.write(CONFIRMED, topic, b"", about).signed)

    def _keep(self, holder: str, names: Collection[str], signed: Signed) -> None:
        self.confirmed.setdefault(tuple(names), {})[self.point(holder)] = signed

    def opened_by(self, holder: str, names: Collection[str], request: bytes | None = None) -> bytes:
        """The answer of an honest holder; raises `Refused`. The first roster asked for is signed by all that will."""
        if self.cohort.scheme.boxed and not self.confirmed:
            self.confirm_all(names)
        return asked(self.cohort, holder, self.frame(self.heads(names), request)).body

    def answers(self, names: Collection[str], request: bytes | None = None) -> dict[int, bytes]:
        """The answers of all holders; raises `Refused`."""
        return {self.point(holder): self.opened_by(holder, names, request) for holder in self.holders}

    def confirm_all(self, names: Collection[str]) -> None:
        """Ask every holder to confirm this roster; some may refuse."""
        for holder in self.holders:
            with suppress(Refused):
                self.confirm(holder, names)

    def corrupt_answer(self, holder: str, names: Collection[str]) -> bytes:
        """What a holder that works for the node says: anything, and it records nothing."""
        insider = self.cohort.holder(holder)
        return insider._boxes.answer(insider._task(TASK), self.spec, names)

    def sum_of(self, names: Collection[str]) -> SealedSum:
        total = self.cohort.scheme.zero(self.spec.sum_params)
        for name in names:
            total.absorb(self.updates[name].body)
        return total

    def combined(self, names: Collection[str], answers: dict[int, bytes]) -> NDArray[np.int64]:
        return self.cohort.scheme.combine(self.spec.sum_params, self.sum_of(names), answers, self.spec.digest())

    def point(self, holder: str) -> int:
        return self.cohort.cohort.member(holder).point


def lying_node(cohort: FakeCohort, number: int = 1) -> LyingNode:
    """Run rounds 1 to `number`; the last one ends when every update is in and every holder has its boxes."""
    next_step = "confirm" if cohort.scheme.boxed else "open"
    for name in cohort.size.holder_names:
        cohort.tell(name, kit.silent, next_step, {number})
        # a node that lies does not tell them that the round has failed
        cohort.tell(name, kit.silent, "close")
    driver = cohort.begun()
    causes = [driver.run_round(n).cause for n in range(1, number + 1)]
    if causes != [""] * (number - 1) + ["too-few-holders"]:
        raise AssertionError(f"the rounds before the attack ended as {causes}")
    cohort.forgive()
    requests = {name: request for name, request in cohort.asked("round") if kit.round_of(request) == number}
    sent = requests[min(requests)]
    spec, own = read_spec("round", sent.frame)[0], {n: read_spec("round", r.frame)[1] for n, r in requests.items()}
    updates = {name: envelope(cohort.said[name, "round"][-1]) for name in requests}
    return LyingNode(cohort, spec, sent, own, updates)


def must_refuse(ask, *reasons: str) -> None:
    """`ask` ends in a `PeerFault` with one of these reasons."""
    try:
        ask()
    except PeerFault as fault:
        if fault.reason not in reasons:
            raise AssertionError(f"refused as {fault.reason}, not as {reasons}") from fault
        return
    raise AssertionError("it was not refused")
