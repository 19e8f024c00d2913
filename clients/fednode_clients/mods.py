"""Two Flower mods for any ClientApp: `limits_mod` refuses rounds, `sealing_mod` seals what leaves the member.

    app = ClientApp()

    @app.train(mods=privacy_mods())
    def train(message, context):
        total = clipped_gradient_sum(model, x, y, clip_of(message))
        return Message(gradient_sum(total, arrays_of(message.content)), reply_to=message)

    @app.query()
    def query(message, context):
        answer = Members(MemberParts()).query(node_context(context), query_of(message))
        return Message(to_content(answer), reply_to=message)

Queries carry a member's hello and its task, and all the work of a key holder. The training function gets the trained
arrays under "arrays", the others under "frozen", and the clip of the round; its result leaves only noised and sealed.
Attach the mods to `train` alone: Flower runs the mods of a whole app for its queries too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fednode.errors import PeerFault, StoreError
from fednode.protocol.model import Layout
from fednode.protocol.requests import read_spec
from fednode.protocol.signed_requests import SignedRequest
from fednode.reasons import Reason
from fednode.records import ARRAYS, CHUNKS, FROZEN, SEAL, arrays_of, frame_of, seal_of, to_arrays, to_content
from fednode_clients.client.client import refusal
from fednode_clients.client.model_copy import ModelCopy
from fednode_clients.client.privatise import ClippedSum
from fednode_clients.keyfolder.authentic import require_authentic
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.membership import MemberParts, Members, NodeContext, fault_of, subject_of

Call = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Call], Message]
_SUM, _TERMS = "gradient-sum", "terms"


@dataclass(frozen=True, slots=True)
class _Reported:
    """The training function's result."""

    vector: NDArray[np.float64] = field(repr=False)
    clip: float


def privacy_mods(parts: MemberParts | None = None) -> list[Mod]:
    """Both mods for the same member: limits first, sealing next to the training function."""
    members = Members(parts or MemberParts())
    return [limits_mod(members), sealing_mod(members)]


def limits_mod(members: Members) -> Mod:
    """A mod that refuses rounds outside the member's limits, signed, and resends an update sealed before.

    Faults of the member's disk or memory are refusals too: MEMBER_STORAGE, MEMBER_MEMORY. Whatever is answered to a
    round that was joined leaves at a time that `Client.pad` chooses; a refusal before depends on no data.
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        client, frame, came = members.client(node_context(context)), b"", members.clock.now()
        try:
            frame = _frame(message)
            require_authentic(client.folder, SignedRequest(frame, seal_of(message.content)))
            spec, parts = read_spec("round", frame)
            chunks = arrays_of(message.content, CHUNKS) if CHUNKS in message.content else {}
            joined = client.join(spec, parts, chunks)
        except (PeerFault, StoreError, MemoryError) as error:
            return _refused(message, client.folder, frame, fault_of(error))
        if isinstance(joined, bytes):
            reply = Message(to_content(joined), reply_to=message)
        else:
            _put_model(message, joined)
            message.content[_TERMS] = ConfigRecord({"clip": spec.terms.clip})
            reply = call_next(message, context)
        members.clock.sleep(client.pad(members.clock.now() - came))
        return reply

    return mod


def query_of(message: Message) -> SignedRequest:
    """The request in a query; an empty one without, which `Members.query` refuses."""
    try:
        return SignedRequest(_frame(message), seal_of(message.content))
    except PeerFault:
        return SignedRequest(b"")


def _frame(message: Message) -> bytes:
    """The frame in a message. Raises `PeerFault` MALFORMED, also for an error message of the transport."""
    if not message.has_content():
        raise PeerFault(Reason.MALFORMED, "the message has no content")
    return frame_of(message.content)


def _refused(message: Message, folder: KeyFolder, frame: bytes, fault: PeerFault) -> Message:
    """A signed refusal of this frame."""
    return Message(to_content(refusal(folder, subject_of(frame), fault)), reply_to=message)


def _put_model(message: Message, copy: ModelCopy) -> None:
    """Replace the chunks in the message by the whole model."""
    for name in (CHUNKS, SEAL):
        message.content.pop(name, None)
    message.content[ARRAYS] = to_arrays(copy.trained)
    if copy.frozen:
        message.content[FROZEN] = to_arrays(copy.frozen)


def sealing_mod(members: Members) -> Mod:
    """A mod that seals the clipped sum that training returns; zeros, if it returns anything else or raises."""

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        client, frame = members.client(node_context(context)), b""
        try:
            frame = _frame(message)
            spec, _ = read_spec("round", frame)
            model = arrays_of(message.content)
            update = client.answer(spec, lambda: read_sum(call_next(message, context), Layout.of(model)))
        except (PeerFault, StoreError, MemoryError) as error:
            return _refused(message, client.folder, frame, fault_of(error))
        return Message(to_content(update), reply_to=message)

    return mod


def clip_of(message: Message) -> float:
    """The L2 bound of each record in this round. Raises `PeerFault` if `limits_mod` did not run."""
    terms = message.content.get(_TERMS)
    if not isinstance(terms, ConfigRecord):
        raise PeerFault(Reason.MALFORMED, "no terms in this message; put privacy_mods() on the train function")
    return float(str(terms["clip"]))


def gradient_sum(total: ClippedSum, arrays: Mapping[str, NDArray[np.generic]]) -> RecordDict:
    """The reply of a training function: the clipped sum in the shapes of the model's `arrays`."""
    layout = Layout.of(arrays)
    ends = np.cumsum([int(np.prod(shape, dtype=np.int64)) for shape in layout.shapes])[:-1]
    pieces = {
        name: piece.reshape(shape)
        for name, shape, piece in zip(layout.names, layout.shapes, np.split(total.vector, ends), strict=True)
    }
    return RecordDict({_SUM: to_arrays(pieces), "count": MetricRecord({"clip": total.clip})})


def read_sum(reply: Message, layout: Layout) -> ClippedSum:
    """The clipped sum in a training function's reply.

    Raises `ValueError` or `PeerFault` for anything else. The number of records is not read.
    """
    if not isinstance(reply, Message) or not reply.has_content():
        raise ValueError("the training function returned no message, or an error")
    count = reply.content.get("count")
    if not isinstance(count, MetricRecord) or "clip" not in count:
        raise ValueError("the training function returned no clip")
    clip = count["clip"]
    if not isinstance(clip, float | int):
        raise ValueError("the clip is not a number")
    arrays = arrays_of(reply.content, _SUM)
    if Layout.of(arrays) != layout:
        raise ValueError("the training function returned other arrays than the model's")
    vector = layout.flatten(arrays)
    return _Reported(vector, float(clip))


def node_context(context: Context) -> NodeContext:
    """Flower's context as the member's configuration."""
    return NodeContext(context.run_id, dict(context.node_config), dict(context.run_config))
