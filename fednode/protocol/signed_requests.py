"""The node's signature on a request: whom it asks, for what, and the digest of the frame. It travels beside the frame.

It is the signed head of an envelope of kind "request" without a body. The recipient is in it, so that a request for one
member is not repeated to another; the frame's digest covers everything else.
"""

from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.envelope import Signed, Signer, Topic
from fednode.protocol.requests import frame_kind, read_ask, read_spec
from fednode.reasons import Reason
from fednode_crypto.identity import VerifyKey

_KIND, _DIGEST_SIZE = "request", 32
_MAX_SEAL = 1 << 12
_WITH_SPEC = ("round", "boxes", "confirm", "open", "key-check")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A frame as it arrived, and the node's signature beside it, b"" without one; neither is checked."""

    frame: bytes = field(repr=False)
    seal: bytes = field(default=b"", repr=False)


def topic_of(frame: bytes) -> Topic:
    """Return the task of a request, with round and spec where it has a spec. Raises `PeerFault` for no request."""
    kind = frame_kind(frame)
    if kind in _WITH_SPEC:
        spec, _ = read_spec(kind, frame)
        return Topic(spec.task, spec.round, spec.digest())
    return Topic(read_ask(kind, frame)[0])


def sign_request(node: Signer, recipient: str, frame: bytes, topic: Topic | None = None) -> bytes:
    """Return the node's signature on this request for `recipient`; `topic` is the frame's own by default."""
    about = _about(recipient, frame)
    return node.write(_KIND, topic or topic_of(frame), about=about).signed.to_bytes()


def task_of(seal: bytes) -> str:
    """Return the task that a signature names, not verified yet. Raises `PeerFault` UNSIGNED_REQUEST."""
    return _read(seal).head.task


def verify_request(request: SignedRequest, recipient: str, node: VerifyKey) -> None:
    """Return if the owner of `node` signed this request for `recipient`; nothing of the frame is read before.

    Raises `PeerFault`: UNSIGNED_REQUEST without a signature or for another request or recipient, BAD_SIGNATURE, and
    what `topic_of` raises.
    """
    signed = _read(request.seal)
    signed.verified_by(node)
    if (signed.head.kind, signed.head.about) != (_KIND, _about(recipient, request.frame)):
        raise PeerFault(Reason.UNSIGNED_REQUEST, "the node signed another request, or one for another member")
    if signed.head.topic != topic_of(request.frame):
        raise PeerFault(Reason.UNSIGNED_REQUEST, "the node signed another task, round or spec than it sent")


def _read(seal: bytes) -> Signed:
    if not seal:
        raise PeerFault(Reason.UNSIGNED_REQUEST, "there is no signature of the node beside the request")
    return Signed.from_bytes(seal, _MAX_SEAL)


def _about(recipient: str, frame: bytes) -> dict[str, object]:
    return {"to": recipient, "asks": frame_kind(frame), "frame": frame[-_DIGEST_SIZE:].hex()}
