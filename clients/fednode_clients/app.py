"""A whole ClientApp for members: clients train, holders open, both answer queries."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fednode.errors import ConfigError
from fednode.records import arrays_of, to_content
from fednode_clients.client.privatise import ClippedSum
from fednode_clients.membership import MemberParts, Members, NodeContext
from fednode_clients.mods import clip_of, gradient_sum, limits_mod, moved_mod, node_context, query_of, sealing_mod

Train = Callable[[NodeContext, Mapping[str, NDArray[np.generic]], float], ClippedSum]
"""A training function: this member, the trained arrays, the clip; returns the sum of clipped gradients there."""


class PrivateApp(ClientApp):
    """A ClientApp whose training functions get the privacy mods, and that answers a member's queries.

    A training function may return what `gradient_sum` gives, or an ordinary reply of FedAvg, the trained arrays: then
    how far they moved from those that came is clipped. `configured` gives the run config that the members of
    a simulation need, of node config and run config.
    """

    def __init__(
        self,
        parts: MemberParts,
        configured: Callable[[Mapping[str, object], Mapping[str, object]], Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self._members, self._configured = Members(parts), configured

        @self.query()
        def answer_query(message: Message, context: Context) -> Message:
            answer = self._members.query(node_context(context), query_of(message))
            return Message(to_content(answer), reply_to=message)

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message, with the run config that the member needs."""
        if self._configured is not None:
            context = replace(context, run_config=dict(self._configured(context.node_config, context.run_config)))
        return super().__call__(message, context)

    def train(self, action: str = "default", *, mods: list[Any] | None = None) -> Any:
        """Flower's decorator, with the privacy mods before any others."""
        private = [limits_mod(self._members), sealing_mod(self._members), moved_mod]
        return super().train(action, mods=[*private, *(mods or [])])

    def evaluate(self, action: str = "default", *, mods: list[Any] | None = None) -> NoReturn:
        """Raise `ConfigError`: what a client measures would leave without noise."""
        del action, mods
        raise ConfigError(
            "clients do not evaluate: what they measure would leave without noise. Evaluate at the node, by an "
            "evaluate_fn or a test set"
        )

    def trains(self, train: Train) -> None:
        """Train by this function, of the member's configuration, the arrays and the clip."""

        @self.train()  # type: ignore[untyped-decorator]  # Flower's
        def answer_round(message: Message, context: Context) -> Message:
            arrays = arrays_of(message.content)
            total = train(node_context(context), arrays, clip_of(message))
            return Message(gradient_sum(total, arrays), reply_to=message)


def build_app(parts: MemberParts, train: Train) -> ClientApp:
    """A ClientApp whose members are made of `parts`, and whose clients compute with `train`.

    What `train` returns never leaves as it is: it is noised and sealed first.
    """
    app = PrivateApp(parts)
    app.trains(train)
    return app
