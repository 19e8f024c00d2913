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
from flwr.app import ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from fednode.errors import ConfigError, PeerFault, StoreError
from fednode.protocol.envelope import Topic
from fednode.protocol.model import Layout
from fednode.protocol.requests import read_spec
from fednode.protocol.signed_requests import SignedRequest
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.records import ARRAYS, CHUNKS, FRAME, FROZEN, arrays_of, frame_of, seal_of, to_arrays, to_content
from fednode_clients.client.client import refusal
from fednode_clients.client.model_copy import ModelCopy
from fednode_clients.client.privatise import ClippedSum
from fednode_clients.keyfolder.authentic import require_authentic
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.tasks import topic
from fednode_clients.membership import UNREADABLE, MemberParts, Members, NodeContext, claimed, fault_of
from fednode_clients.training.local import LocalUpdate, clipped

Call = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Call], Message]
_SUM, _TERMS = "gradient-sum", "terms"


@dataclass(frozen=True, slots=True)
class _Reported:
    """The training function's result."""

    vector: NDArray[np.float64] = field(repr=False)
    clip: float
    unit: str


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
        client, about, came = members.client(node_context(context)), UNREADABLE, members.clock.now()
        try:
            request = SignedRequest(_frame(message), seal_of(message.content))
            about = claimed(request.seal)
            require_authentic(client.folder, request)
            spec, parts = read_spec("round", request.frame)
            about = topic(spec)
            chunks = arrays_of(message.content, CHUNKS) if CHUNKS in message.content else {}
            joined = client.join(spec, parts, chunks)
        except (PeerFault, StoreError, MemoryError) as error:
            return _refused(message, client.folder, about, fault_of(error))
        if isinstance(joined, bytes):
            reply = Message(to_content(joined), reply_to=message)
        else:
            message.content = _verified_content(message.content, spec, joined)
            reply = call_next(message, context)
        members.clock.sleep(client.pad(members.clock.now() - came))
        # made anew: a message holds the time at which it was made
        return Message(reply.content, reply_to=message) if reply.has_content() else reply

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


def _refused(message: Message, folder: KeyFolder, about: Topic, fault: PeerFault) -> Message:
    """A signed refusal of what was asked."""
    return Message(to_content(refusal(folder, about, fault)), reply_to=message)


def _verified_content(content: RecordDict, spec: RoundSpec, copy: ModelCopy) -> RecordDict:
    """What training gets: the frame, the clip and the whole model. Nothing else that came, since nobody signed it."""
    verified = RecordDict({FRAME: content[FRAME], ARRAYS: to_arrays(copy.trained)})
    verified[_TERMS] = ConfigRecord({"clip": spec.terms.training_clip})
    if copy.frozen:
        verified[FROZEN] = to_arrays(copy.frozen)
    return verified


def sealing_mod(members: Members) -> Mod:
    """A mod that seals the clipped sum that training returns; zeros, if it returns anything else or raises."""

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        client, about = members.client(node_context(context)), UNREADABLE
        try:
            spec, _ = read_spec("round", _frame(message))
            about = topic(spec)
            model = arrays_of(message.content)
            update = client.answer(spec, lambda: read_sum(call_next(message, context), Layout.of(model)))
        except (PeerFault, StoreError, MemoryError) as error:
            return _refused(message, client.folder, about, fault_of(error))
        return Message(to_content(update), reply_to=message)

    return mod


def moved_mod(message: Message, context: Context, call_next: Call) -> Message:
    """A mod for training functions that return an ordinary reply of FedAvg: how far the arrays moved, clipped.

    With another unit than client, and for metrics beside the number of examples, the reply is refused by `ConfigError`:
    then zeros are sent, and the member's log says why.
    """
    before, reply = arrays_of(message.content), call_next(message, context)
    if not reply.has_content():
        return reply
    metrics = {name for record in reply.content.metric_records.values() for name in record} - {"num-examples"}
    if metrics:
        raise ConfigError(f"{', '.join(sorted(metrics))}: metrics would leave without noise; return arrays alone")
    if _SUM in reply.content or ARRAYS not in reply.content:
        return reply
    layout, after = Layout.of(before), arrays_of(reply.content)
    if not before.keys() <= after.keys():
        raise ConfigError(f"the reply lacks {', '.join(sorted(before.keys() - after.keys()))} of the trained arrays")
    moved = layout.flatten(before) - layout.flatten({name: after[name] for name in before})
    clip = clip_of(message)
    return Message(gradient_sum(LocalUpdate(clipped(moved, clip), clip), before), reply_to=message)


def clip_of(message: Message) -> float:
    """The L2 bound of each unit in this round. Raises `PeerFault` if `limits_mod` did not run."""
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
    return RecordDict({_SUM: to_arrays(pieces), "count": ConfigRecord({"clip": total.clip, "unit": total.unit})})


def read_sum(reply: Message, layout: Layout) -> ClippedSum:
    """The clipped sum in a training function's reply.

    Raises `ValueError` or `PeerFault` for anything else. The number of records is not read.
    """
    if not isinstance(reply, Message) or not reply.has_content():
        raise ValueError("the training function returned no message, or an error")
    count = reply.content.get("count")
    if not isinstance(count, ConfigRecord) or not {"clip", "unit"} <= count.keys():
        raise ValueError("the training function returned no clip, or no unit")
    clip, unit = count["clip"], count["unit"]
    if not isinstance(clip, float | int) or not isinstance(unit, str):
        raise ValueError("the clip is not a number, or the unit no text")
    arrays = arrays_of(reply.content, _SUM)
    if Layout.of(arrays) != layout:
        raise ValueError("the training function returned other arrays than the model's")
    vector = layout.flatten(arrays)
    return _Reported(vector, float(clip), unit)


def node_context(context: Context) -> NodeContext:
    """Flower's context as the member's configuration."""
    return NodeContext(context.run_id, dict(context.node_config), dict(context.run_config))
