"""Two Flower mods for anyone's ClientApp: `consent` refuses rounds, `sealing` lets nothing out that is not sealed.

    app = ClientApp()

    @app.train(mods=privacy_mods())
    def train(message, context):
        total = clipped_gradient_sum(model, x, y, clip_of(message))
        return Message(gradient_sum(total, arrays_of(message.content)), reply_to=message)

    @app.query()
    def query(message, context):
        frame = frame_of(message.content)
        answer = Members(Parts()).query(place_of(context), frame, frame_kind(frame))
        return Message(to_content(answer), reply_to=message)

In queries a member says who it is and takes the task; a key holder does all its work there. The wrapped function sees
the trained arrays under "arrays", those that are not trained under "frozen", and the clip of the round; what it returns
never leaves as it is. Attach the mods to `train` alone: Flower runs the mods of a whole app for its queries too.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fednode.errors import PeerFault
from fednode.protocol.model import Layout
from fednode.protocol.requests import read_spec
from fednode.records import ARRAYS, CHUNKS, FROZEN, arrays_of, frame_of, to_arrays, to_content
from fednode_clients.client import refusal
from fednode_clients.copies import Copy
from fednode_clients.membership import Members, Parts, Place, topic_of
from fednode_clients.private import ClippedSum
from fednode_crypto import CryptoError

log = logging.getLogger("fednode.clients")

Call = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Call], Message]
_SUM, _TERMS = "gradient-sum", "terms"


@dataclass(frozen=True, slots=True)
class _Reported:
    """What the wrapped function returned, read back."""

    vector: NDArray[np.float64] = field(repr=False)
    records: int
    clip: float


def privacy_mods(parts: Parts | None = None) -> list[Mod]:
    """Consent first, sealing next to the training function; both speak for the same member."""
    members = Members(parts or Parts())
    return [consent(members), sealing(members)]


def consent(members: Members) -> Mod:
    """A mod that answers a round this member does not join with a signed refusal, and a repeated one with the same
    bytes."""

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        client = members.client(place_of(context))
        frame = frame_of(message.content)
        try:
            spec, parts = read_spec("round", frame)
            chunks = arrays_of(message.content, CHUNKS) if CHUNKS in message.content else {}
            joined = client.join(spec, parts, chunks)
        except PeerFault as fault:
            return Message(to_content(refusal(client.folder, topic_of(frame), fault)), reply_to=message)
        if isinstance(joined, bytes):
            return Message(to_content(joined), reply_to=message)
        _show(message, joined)
        message.content[_TERMS] = ConfigRecord({"clip": spec.terms.clip})
        return call_next(message, context)

    return mod


def _show(message: Message, copy: Copy) -> None:
    """Put the whole model where the wrapped function looks for it, in place of what travelled."""
    message.content.pop(CHUNKS, None)
    message.content[ARRAYS] = to_arrays(copy.trained)
    if copy.frozen:
        message.content[FROZEN] = to_arrays(copy.frozen)


def sealing(members: Members) -> Mod:
    """A mod that turns a clipped sum into a sealed update; anything else becomes a refusal, and never travels."""

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        client = members.client(place_of(context))
        spec, _ = read_spec("round", frame_of(message.content))
        try:
            layout = Layout.of(arrays_of(message.content))
            reply = call_next(message, context)
        except PeerFault as fault:
            return Message(to_content(client.refuse(spec, fault)), reply_to=message)
        except Exception as error:
            # the words of an error in training may hold what is being trained on: they stay here
            log.exception("training failed")
            failure = PeerFault("training-failed", type(error).__name__)
            return Message(to_content(client.refuse(spec, failure)), reply_to=message)
        try:
            frame = client.answer(spec, read_sum(reply, layout))
        except (PeerFault, ValueError, CryptoError) as error:
            refused = error if isinstance(error, PeerFault) else PeerFault("bad-update", str(error))
            frame = client.refuse(spec, refused)
        return Message(to_content(frame), reply_to=message)

    return mod


def clip_of(message: Message) -> float:
    """The L2 bound that each record of this round is clipped to. Raises `PeerFault` where `consent` did not run."""
    terms = message.content.get(_TERMS)
    if not isinstance(terms, ConfigRecord):
        raise PeerFault("malformed", "no terms in this message; put privacy_mods() on the train function")
    return float(str(terms["clip"]))


def gradient_sum(total: ClippedSum, arrays: Mapping[str, NDArray[np.generic]]) -> RecordDict:
    """What a training function returns: the clipped sum in the shapes of `arrays`, the model it was given."""
    layout = Layout.of(arrays)
    ends = np.cumsum([int(np.prod(shape, dtype=np.int64)) for shape in layout.shapes])[:-1]
    pieces = {
        name: piece.reshape(shape)
        for name, shape, piece in zip(layout.names, layout.shapes, np.split(total.vector, ends), strict=True)
    }
    return RecordDict({_SUM: to_arrays(pieces), "count": MetricRecord({"records": total.records, "clip": total.clip})})


def read_sum(reply: Message, layout: Layout) -> ClippedSum:
    """The clipped sum in a training function's reply.

    Raises `PeerFault`: "bad-update", "malformed" or "wrong-shape"; `ValueError` for an array that is not of floats.
    """
    if not reply.has_content():
        raise PeerFault("bad-update", "the training function ended with an error")
    count = reply.content.get("count")
    if not isinstance(count, MetricRecord) or not {"records", "clip"} <= set(count):
        raise PeerFault("malformed", "the training function returned no count of records and no clip")
    arrays = arrays_of(reply.content, _SUM)
    if Layout.of(arrays) != layout:
        raise PeerFault("wrong-shape", "the training function returned other arrays than the model's")
    vector = layout.flatten(arrays)
    return _Reported(vector, int(str(count["records"])), float(str(count["clip"])))


def place_of(context: Context) -> Place:
    """Flower's context as the member's configuration."""
    return Place(context.run_id, dict(context.node_config), dict(context.run_config))
