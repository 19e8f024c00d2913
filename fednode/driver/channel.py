"""How the driver talks to members: requests out, replies in, over any carrier."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Call = Literal["query", "train"]


@dataclass(frozen=True, slots=True)
class Request:
    """A frame for one member, with chunks of the model in a train call. The reply carries the same `tag`."""

    call: Call
    tag: str
    frame: bytes = field(repr=False)
    chunks: Mapping[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Bytes to send, without the carrier's overhead."""
        return len(self.frame) + sum(chunk.nbytes for chunk in self.chunks.values())


@dataclass(frozen=True, slots=True)
class Reply:
    """A member's answer: a frame, or None and the carrier's error."""

    sender: str
    tag: str
    frame: bytes | None = field(repr=False)
    error: str = ""


class Channel(Protocol):
    """Reaches the members of one cohort by name."""

    def send(self, requests: Mapping[str, Request]) -> None:
        """Send one request to each member. A member that cannot be reached simply does not answer."""
        ...

    def receive(self) -> Sequence[Reply]:
        """The replies since the last call, oldest first. Returns at once, maybe empty."""
        ...
