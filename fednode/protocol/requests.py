"""What the node asks, as frames. The node signs nothing: a member believes only what enrolled members signed.

    key-commit   task, cohort, sum parameters           -> commitment
    key-reveal   every holder's commitment              -> a part of the joint key, and a boxed share for each holder
    key-join     every part, and the boxes for me       -> the digest of the joint key, signed
    key-check    the spec of round 0                    -> a known vector, sealed
    task         cohort, parameters, commitments, parts -> ready
    box-key      a round                                -> a fresh public key for it
    round        a spec, box keys, the model's outline   -> update
    boxes        a spec, a roster, the boxes for me     -> checked: whose box is no good
    confirm      a spec, the final roster               -> confirmed: this one and no other
    open         a spec, that roster, who confirmed it, what is to be opened -> answer
    close        a round that was not opened            -> closed: there is no key of it here

Any of them may be answered by a `refusal` with a reason.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fednode.errors import PeerFault
from fednode.protocol.cohort import MAX_COHORT, Cohort
from fednode.protocol.envelope import Envelope, Signed
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import Frame, canonical, digest, join_parts, pack, parse, split_parts, unpack
from fednode_crypto import SumParams, WrongParameters, params_from_dict
from fednode_crypto.params import LARGEST_COHORT

MAX_KEY_PART = 1 << 22
"""Bytes that one holder's part of a joint key, or one boxed share, may take."""

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
"""Bytes of each kind of request, for the largest cohort, model and sum that there may be."""

_SMALL: Final = 1 << 16
"""Bytes of any other kind: what it says stands in its header."""

MAX_PARTS = 64
"""Parts of a request: a few for each of at most 10 holders."""

MAX_UPDATE_HEAD = 1 << 12
"""Bytes of an update's head with its signature, as it stands in a roster."""

_LEAST_HEAD = 64
_POINT = re.compile(r"[1-9][0-9]{0,2}")


@dataclass(frozen=True, slots=True)
class TaskCard:
    """What a member needs to know of a task before it takes part; whose word it is stands in the signatures inside."""

    task: str
    cohort: Cohort
    sum_params: SumParams

    def key_context(self) -> bytes:
        """32 bytes that the joint key is bound to: this task and this cohort, for node and members alike."""
        return digest("joint-key", self.task.encode("utf-8"), self.cohort.digest())

    def parts(self) -> dict[str, bytes]:
        """The card as named bytes."""
        return {"cohort": self.cohort.to_bytes(), "params": canonical(self.sum_params.to_dict())}

    @staticmethod
    def from_parts(task: str, parts: Mapping[str, bytes]) -> "TaskCard":
        """A card from untrusted parts; the cohort's signature is not checked yet.

        Raises `PeerFault`: "oversize" before anything is parsed, "malformed".
        """
        if not {"cohort", "params"} <= set(parts):
            raise PeerFault(Reason.MALFORMED, "a task comes with a cohort and sum parameters")
        try:
            params = params_from_dict(parse(parts["params"]).raw())
        except WrongParameters as error:
            raise PeerFault(Reason.MALFORMED, str(error)) from error
        return TaskCard(task, Cohort.from_bytes(parts["cohort"]), params)


@dataclass(frozen=True, slots=True)
class KeyParts:
    """What the holders published of a joint key: signed commitments and signed parts, by Shamir point."""

    commitments: Mapping[int, Envelope] = field(repr=False)
    reveals: Mapping[int, Envelope] = field(repr=False)

    def parts(self) -> dict[str, bytes]:
        """As named bytes: commitment-1, reveal-1, ..."""
        commitments = {f"commitment-{point}": envelope.to_bytes() for point, envelope in self.commitments.items()}
        return commitments | {f"reveal-{point}": envelope.to_bytes() for point, envelope in self.reveals.items()}

    @staticmethod
    def from_parts(parts: Mapping[str, bytes]) -> "KeyParts":
        """The published parts among untrusted ones; nothing is verified yet. Raises `PeerFault`."""
        return KeyParts(_numbered(parts, "commitment-"), _numbered(parts, "reveal-"))

    def commitments_digest(self) -> bytes:
        """32 bytes over all commitments as they were signed: every part names what it was revealed under."""
        return digest("commitments", *(self.commitments[point].signed.to_bytes() for point in sorted(self.commitments)))

    def verified(self, card: TaskCard) -> "KeyParts":
        """Itself, if each of the card's holders signed exactly its own commitment and, where given, its own part.

        A part has to name these very commitments: a holder that signs a second one after it has seen the others' parts
        is found out by what the honest ones signed.

        Raises `PeerFault`: "bad-key-part", "stranger" or "bad-signature".
        """
        points = [holder.point for holder in card.cohort.holders]
        for kind, given in (("key-commitment", self.commitments), ("key-part", self.reveals)):
            if sorted(given) != points and (given or kind == "key-commitment"):
                raise PeerFault(Reason.BAD_KEY_PART, f"{kind}s of {sorted(given)}, not of {points}")
            for point, envelope in given.items():
                member = envelope.signed.verified(card.cohort)
                head = envelope.head
                if (member.role, member.point, head.kind, head.task) != ("holder", point, kind, card.task):
                    raise PeerFault(
                        Reason.BAD_KEY_PART, f"{member.name} signed no {kind} of point {point} for {card.task}"
                    )
        for envelope in self.reveals.values():
            if envelope.head.about.get("commitments") != self.commitments_digest().hex():
                raise PeerFault(Reason.BAD_KEY_PART, f"{envelope.head.sender} showed its part under other commitments")
        return self

    def bodies(self, kind: str) -> dict[int, bytes]:
        """The bodies of the commitments ("commitments") or of the parts ("reveals")."""
        chosen = self.commitments if kind == "commitments" else self.reveals
        return {point: envelope.body for point, envelope in chosen.items()}


def _numbered(parts: Mapping[str, bytes], prefix: str) -> dict[int, Envelope]:
    found: dict[int, Envelope] = {}
    for name, data in parts.items():
        if name.startswith(prefix):
            number = name.removeprefix(prefix)
            if not _POINT.fullmatch(number):
                raise PeerFault(Reason.MALFORMED, f"{name} names no point")
            found[int(number)] = Envelope.from_bytes(data, MAX_KEY_PART)
    return found


def share_context(task: str, cohort: Cohort, sender: str, receiver: str) -> bytes:
    """Associated data of a boxed share: it opens for this task, this cohort and this pair only."""
    return canonical({"task": task, "cohort": cohort.digest().hex(), "from": sender, "to": receiver})


def ask_frame(kind: str, task: str, parts: Mapping[str, bytes] | None = None) -> bytes:
    """A request without a spec."""
    return pack(kind, {"task": task}, join_parts(parts or {}))


def read_ask(kind: str, data: bytes) -> tuple[str, dict[str, bytes]]:
    """Task name and parts of a request without a spec. Raises `PeerFault`."""
    frame = unpack(kind, data, _MOST.get(kind, _SMALL))
    return frame.header.only("task").text("task"), split_parts(frame.body, MAX_PARTS)


def key_request(task: str, round_number: int) -> bytes:
    """The request for a fresh box key for a round."""
    return _numbered_ask("box-key", task, round_number)


def read_key_request(data: bytes) -> tuple[str, int]:
    """Task and round of a request for a box key. Raises `PeerFault("malformed")`; rounds count from 1."""
    return _read_numbered_ask("box-key", data)


def close_request(task: str, round_number: int) -> bytes:
    """The word that a round is over and will not be opened."""
    return _numbered_ask("close", task, round_number)


def read_close_request(data: bytes) -> tuple[str, int]:
    """Task and round of a request to close it. Raises `PeerFault("malformed")`; rounds count from 1."""
    return _read_numbered_ask("close", data)


def _numbered_ask(kind: str, task: str, round_number: int) -> bytes:
    return ask_frame(kind, task, {"round": str(round_number).encode("ascii")})


def _read_numbered_ask(kind: str, data: bytes) -> tuple[str, int]:
    task, parts = read_ask(kind, data)
    text = parts.get("round", b"").decode("ascii", "replace")
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and str(int(text)) == text and int(text) > 0):
        raise PeerFault(Reason.MALFORMED, f"{kind} is asked about a round from 1 on")
    return task, int(text)


def spec_frame(kind: str, spec: RoundSpec, parts: Mapping[str, bytes] | None = None) -> bytes:
    """A request about a round."""
    return pack(kind, spec.to_dict(), join_parts(parts or {}))


def read_spec(kind: str, data: bytes) -> tuple[RoundSpec, dict[str, bytes]]:
    """Spec and parts of a request about a round. Raises `PeerFault`."""
    frame: Frame = unpack(kind, data, _MOST.get(kind, _SMALL))
    return RoundSpec.from_fields(frame.header), split_parts(frame.body, MAX_PARTS)


def frame_kind(data: bytes) -> str:
    """The kind a frame says it is of, before anything is checked; "" if it is no frame or its kind is not ASCII."""
    if len(data) < 16 or data[:2] != b"FN":
        return ""
    kind = data[16 : 16 + data[3]]
    return kind.decode("ascii") if kind.isascii() else ""


def roster_part(updates: Iterable[Signed]) -> bytes:
    """Signed heads as one byte string, in the order given."""
    heads = {f"{index:06d}": signed.to_bytes() for index, signed in enumerate(updates)}
    return join_parts(heads)


def read_roster(data: bytes, most: int = LARGEST_COHORT) -> tuple[Signed, ...]:
    """At most `most` signed heads of updates from untrusted bytes; no signature is checked yet.

    Raises `PeerFault`: "too-many" before any is parsed, "malformed" for the first that says what no update does.
    """
    count = int.from_bytes(data[:4], "little")
    if most < count <= len(data) // _LEAST_HEAD:
        raise PeerFault(Reason.TOO_MANY, f"{count} updates, the sum has room for {most}")
    return tuple(map(_update_head, split_parts(data, most).values()))


def _update_head(data: bytes) -> Signed:
    """A head that takes little more memory than its bytes: nothing in it but the hashes of what is attached."""
    signed = Signed.from_bytes(data, MAX_UPDATE_HEAD)
    signed.head.attached()
    if not signed.head.terse:
        raise PeerFault(Reason.MALFORMED, f"{signed.head.sender} signed something else than an update")
    return signed
