"""The ClientApp of the customer-service experiment, and of every member: clients train, holders open, both answer
queries."""

import logging

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fednode.protocol.requests import frame_kind
from fednode.records import arrays_of, to_content
from fednode_clients.membership import Members, Parts
from fednode_clients.mods import asked_frame, clip_of, consent, gradient_sum, place_of, sealing
from fednode_study.learning import local_sum

log = logging.getLogger("fednode.clients")


def build_app(parts: Parts) -> ClientApp:
    """A ClientApp whose members are made of `parts`."""
    members = Members(parts)
    built = ClientApp()

    @built.train(mods=[consent(members), sealing(members)])
    def train(message: Message, context: Context) -> Message:
        arrays = arrays_of(message.content)
        total = local_sum(place_of(context), arrays, clip_of(message))
        return Message(gradient_sum(total, arrays), reply_to=message)

    @built.query()
    def query(message: Message, context: Context) -> Message:
        frame = asked_frame(message)
        answer = members.query(place_of(context), frame, frame_kind(frame))
        return Message(to_content(answer), reply_to=message)

    return built


app = build_app(Parts())
