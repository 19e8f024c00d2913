"""A whole ClientApp for members: clients train, holders open, both answer queries."""

from collections.abc import Callable, Mapping

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fednode.protocol.requests import frame_kind
from fednode.records import arrays_of, to_content
from fednode_clients.client.privatise import ClippedSum
from fednode_clients.membership import Members, Parts, Place
from fednode_clients.mods import asked_frame, clip_of, consent, gradient_sum, place_of, sealing

Train = Callable[[Place, Mapping[str, NDArray[np.generic]], float], ClippedSum]
"""A training function: this member, the trained arrays, the clip; returns the sum of clipped gradients there."""


def build_app(parts: Parts, train: Train) -> ClientApp:
    """A ClientApp whose members are made of `parts`, and whose clients compute with `train`.

    What `train` returns never leaves as it is: it is noised and sealed first.
    """
    members = Members(parts)
    app = ClientApp()

    @app.train(mods=[consent(members), sealing(members)])
    def answer_round(message: Message, context: Context) -> Message:
        arrays = arrays_of(message.content)
        total = train(place_of(context), arrays, clip_of(message))
        return Message(gradient_sum(total, arrays), reply_to=message)

    @app.query()
    def answer_query(message: Message, context: Context) -> Message:
        frame = asked_frame(message)
        answer = members.query(place_of(context), frame, frame_kind(frame))
        return Message(to_content(answer), reply_to=message)

    return app
