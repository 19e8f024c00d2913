"""A whole ClientApp for members: clients train, holders open, both answer queries."""

from collections.abc import Callable, Mapping

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fednode.records import arrays_of, to_content
from fednode_clients.client.privatise import ClippedSum
from fednode_clients.membership import MemberParts, Members, NodeContext
from fednode_clients.mods import clip_of, gradient_sum, limits_mod, node_context, query_of, sealing_mod

Train = Callable[[NodeContext, Mapping[str, NDArray[np.generic]], float], ClippedSum]
"""A training function: this member, the trained arrays, the clip; returns the sum of clipped gradients there."""


def build_app(parts: MemberParts, train: Train) -> ClientApp:
    """A ClientApp whose members are made of `parts`, and whose clients compute with `train`.

    What `train` returns never leaves as it is: it is noised and sealed first.
    """
    members = Members(parts)
    app = ClientApp()

    @app.train(mods=[limits_mod(members), sealing_mod(members)])
    def answer_round(message: Message, context: Context) -> Message:
        arrays = arrays_of(message.content)
        total = train(node_context(context), arrays, clip_of(message))
        return Message(gradient_sum(total, arrays), reply_to=message)

    @app.query()
    def answer_query(message: Message, context: Context) -> Message:
        answer = members.query(node_context(context), query_of(message))
        return Message(to_content(answer), reply_to=message)

    return app
