"""The node's requests as frames. The node signs each one (`signed_requests`), so that nobody else asks in its place.

About members it is not believed: what they sent is trusted only where they signed it.

    hello        a nonce                                -> who is here; the nonce, signed
    key-commit   task, cohort, sum parameters           -> commitment
    key-reveal   every holder's commitment              -> a part of the joint key, and a boxed share for each holder
    key-join     every part, and the boxes for me       -> the digest of the joint key, signed
    key-check    the spec of round 0                    -> a known vector, sealed
    task         cohort, parameters, commitments, parts -> ready
    box-key      a round                                -> fresh public keys for it, one a client
    round        a spec, my box keys, the model's outline   -> update
    boxes        a spec, a roster, the boxes for me     -> checked: whose box does not open
    confirm      a spec, the final roster               -> confirmed: no other roster for this round
    open         a spec, that roster, its confirmations, what to open -> answer
    close        a round that was not opened            -> closed: its key is destroyed

A member may answer any of them with a `refusal` and a reason.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fednode.errors import PeerFault
from fednode.protocol.cohort import MAX_COHORT, Cohort
from fednode.protocol.envelope import Envelope, Signed, numbered
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import canonical, digest, join_parts, pack, parse, split_parts, unpack
from fednode_crypto import SumParams, WrongParameters, params_from_dict
from fednode_crypto.identity import VerifyKey
from fednode_crypto.params import LARGEST_COHORT

MAX_KEY_PART = 1 << 22
"""The most bytes of one holder's part of a joint key, or of one boxed share."""

MAX_REQUEST = 1 << 30
_MOST: Final[Mapping[str, int]] = {
    "key-commit": MAX_COHORT + (1 << 17),
    "key-reveal": 1 << 26,
    "key-join": 1 << 27,
    "task": 1 << 27,
    "round": 1 << 25,
    "boxes": MAX_REQUEST,
    "confirm": 1 << 29,
    "open": MAX_REQUEST,
}
"""The most bytes of each kind of request, for the largest cohort, model and sum."""

_SMALL: Final = 1 << 16
"""The most bytes of any other kind: its content is in its header."""

NONCE_SIZE = 32
"""The bytes of a hello's nonce."""

MAX_PARTS = 64
"""The most parts of a request: a few for each of at most 10 holders."""

MAX_UPDATE_HEAD = 1 << 12
"""The most bytes of an update's head with its signature in a roster."""

_LEAST_HEAD = 64
_POINT, _ROUND = re.compile(r"[1-9][0-9]{0,2}"), re.compile(rb"[1-9][0-9]{0,6}")


@dataclass(frozen=True, slots=True)
class TaskCard:
    """What a member must know of a task before it takes part; the signatures inside say who vouches for it."""

    task: str
    cohort: Cohort
    sum_params: SumParams

    def key_context(self) -> bytes:
        """Return 32 bytes that bind the joint key to this task and cohort."""
        return digest("joint-key", self.task.encode("utf-8"), self.cohort.digest())

    def parts(self) -> dict[str, bytes]:
        """Return the card as named parts."""
        return {"cohort": self.cohort.to_bytes(), "params": canonical(self.sum_params.to_dict())}

    @staticmethod
    def from_parts(task: str, parts: Mapping[str, bytes], enrolment_key: VerifyKey) -> "TaskCard":
        """Return the card in untrusted parts, whose cohort `enrolment_key` signed.

        Raises `PeerFault`: "oversize" and "unknown-cohort" before anything is parsed, "malformed".
        """
        if not {"cohort", "params"} <= set(parts):
            raise PeerFault(Reason.MALFORMED, "a task needs a cohort and sum parameters")
        cohort = Cohort.verified_from_bytes(parts["cohort"], enrolment_key)
        try:
            params = params_from_dict(parse(parts["params"]).raw())
        except WrongParameters as error:
            raise PeerFault(Reason.MALFORMED, str(error)) from error
        return TaskCard(task, cohort, params)


@dataclass(frozen=True, slots=True)
class KeyParts:
    """The public parts of a joint key: signed commitments and signed reveals, by Shamir point."""

    commitments: Mapping[int, Envelope] = field(repr=False)
    reveals: Mapping[int, Envelope] = field(repr=False)

    def parts(self) -> dict[str, bytes]:
        """Return named parts: commitment-1, reveal-1, ..."""
        return numbered("commitment", self.commitments) | numbered("reveal", self.reveals)

    @staticmethod
    def from_parts(parts: Mapping[str, bytes]) -> "KeyParts":
        """Return the key parts among untrusted parts, not verified yet. Raises `PeerFault`."""
        return KeyParts(_numbered(parts, "commitment-"), _numbered(parts, "reveal-"))

    def commitments_digest(self) -> bytes:
        """Return 32 bytes over all signed commitments; every reveal names them."""
        return digest("commitments", *(self.commitments[point].signed.to_bytes() for point in sorted(self.commitments)))

    def verified(self, card: TaskCard) -> "KeyParts":
        """Return self if each of the card's holders signed its own commitment and, if given, its own reveal.

        A reveal must name exactly these commitments. So a holder that signs a second commitment after it has seen the
        others' reveals is detected: the honest reveals name the first.

        Raises `PeerFault`: "bad-key-part", "stranger" or "bad-signature".
        """
        points = [holder.point for holder in card.cohort.holders]
        for kind, given in (("key-commitment", self.commitments), ("key-part", self.reveals)):
            if sorted(given) != points and (given or kind == "key-commitment"):
                raise PeerFault(Reason.BAD_KEY_PART, f"{kind}s of {sorted(given)}, not of {points}")
            for point, envelope in given.items():
                member = envelope.signed.verified_holder(card.cohort, point, Reason.BAD_KEY_PART)
                if (envelope.head.kind, envelope.head.task) != (kind, card.task):
                    raise PeerFault(Reason.BAD_KEY_PART, f"{member.name} signed no {kind} for {card.task}")
        for envelope in self.reveals.values():
            if envelope.head.about.get("commitments") != self.commitments_digest().hex():
                raise PeerFault(Reason.BAD_KEY_PART, f"{envelope.head.sender} revealed its part for other commitments")
        return self

    def bodies(self, kind: str) -> dict[int, bytes]:
        """Return the bodies of the "commitments" or of the "reveals", by point."""
        chosen = self.commitments if kind == "commitments" else self.reveals
        return {point: envelope.body for point, envelope in chosen.items()}


def _numbered(parts: Mapping[str, bytes], prefix: str) -> dict[int, Envelope]:
    found: dict[int, Envelope] = {}
    for name, data in parts.items():
        if name.startswith(prefix):
            number = name.removeprefix(prefix)
            if not _POINT.fullmatch(number):
                raise PeerFault(Reason.MALFORMED, f"{name} does not end in a Shamir point")
            found[int(number)] = Envelope.from_bytes(data, MAX_KEY_PART)
    return found


def share_context(task: str, cohort: Cohort, sender: str, receiver: str) -> bytes:
    """Return the associated data of a boxed share, so that it opens for this task, cohort and pair only."""
    return canonical({"task": task, "cohort": cohort.digest().hex(), "from": sender, "to": receiver})


def ask_frame(kind: str, task: str, parts: Mapping[str, bytes] | None = None) -> bytes:
    """Return a request without a spec."""
    return pack(kind, {"task": task}, join_parts(parts or {}))


def read_ask(kind: str, data: bytes) -> tuple[str, dict[str, bytes]]:
    """Return task name and parts of a request without a spec. Raises `PeerFault`."""
    frame = unpack(kind, data, _MOST.get(kind, _SMALL))
    return frame.header.only("task").text("task"), split_parts(frame.body, MAX_PARTS)


def hello_request(nonce: bytes) -> bytes:
    """Return the question who is there; the answer signs the nonce, so that no earlier answer serves."""
    return ask_frame("hello", "hello", {"nonce": nonce})


def read_hello(data: bytes) -> bytes:
    """Return the nonce of a hello. Raises `PeerFault("malformed")`."""
    nonce = read_ask("hello", data)[1].get("nonce", b"")
    if len(nonce) != NONCE_SIZE:
        raise PeerFault(Reason.MALFORMED, f"a hello has a nonce of {NONCE_SIZE} bytes")
    return nonce


def key_request(task: str, round_number: int) -> bytes:
    """Return the request for a fresh box key for a round."""
    return _round_request("box-key", task, round_number)


def close_request(task: str, round_number: int) -> bytes:
    """Return the notice that a round is over and will not be opened."""
    return _round_request("close", task, round_number)


def _round_request(kind: str, task: str, round_number: int) -> bytes:
    return ask_frame(kind, task, {"round": str(round_number).encode("ascii")})


def read_round_request(kind: str, data: bytes) -> tuple[str, int]:
    """Return task and round of a "box-key" or "close" request. Raises `PeerFault("malformed")`; rounds count from 1."""
    task, parts = read_ask(kind, data)
    text = parts.get("round", b"")
    if not _ROUND.fullmatch(text):
        raise PeerFault(Reason.MALFORMED, f"a {kind} request names a round from 1 on")
    return task, int(text)


def spec_frame(kind: str, spec: RoundSpec, parts: Mapping[str, bytes] | None = None) -> bytes:
    """Return a request with the spec of a round."""
    return pack(kind, spec.to_dict(), join_parts(parts or {}))


def read_spec(kind: str, data: bytes) -> tuple[RoundSpec, dict[str, bytes]]:
    """Return spec and parts of a request with the spec of a round. Raises `PeerFault`."""
    frame = unpack(kind, data, _MOST.get(kind, _SMALL))
    return RoundSpec.from_fields(frame.header), split_parts(frame.body, MAX_PARTS)


def frame_kind(data: bytes) -> str:
    """Return the kind that an unchecked frame claims; "" if it is not a frame or the kind is not ASCII."""
    if len(data) < 16 or data[:2] != b"FN":
        return ""
    kind = data[16 : 16 + data[3]]
    return kind.decode("ascii") if kind.isascii() else ""


def roster_part(updates: Iterable[Signed]) -> bytes:
    """Return signed heads as one byte string, in the order given."""
    return join_parts({f"{index:06d}": signed.to_bytes() for index, signed in enumerate(updates)})


def read_roster(data: bytes, most: int = LARGEST_COHORT) -> tuple[Signed, ...]:
    """Return at most `most` signed heads of updates in untrusted bytes; no signature is checked yet.

    Raises `PeerFault`: "too-many" before any is parsed, "malformed" for the first that is not the head of an update.
    """
    count = int.from_bytes(data[:4], "little")
    if most < count <= len(data) // _LEAST_HEAD:
        raise PeerFault(Reason.TOO_MANY, f"{count} updates in a sum of at most {most}")
    return tuple(map(_update_head, split_parts(data, most).values()))


def _update_head(data: bytes) -> Signed:
    """Return a head that takes little more memory than its bytes: hashes of its attachments, and a check."""
    signed = Signed.from_bytes(data, MAX_UPDATE_HEAD)
    signed.head.attached()
    signed.head.check()
    if not signed.head.terse:
        raise PeerFault(Reason.MALFORMED, f"{signed.head.sender} signed something other than an update")
    return signed
