"""How the driver talks to members: requests out, replies in, nothing said about who carries them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Call = Literal["query", "train"]


@dataclass(frozen=True, slots=True)
class Request:
    """A frame for one member; a train call brings chunks of the model with it. `tag` comes back with the reply."""

    call: Call
    tag: str
    frame: bytes = field(repr=False)
    chunks: Mapping[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Bytes that go down, without the carrier's own."""
        return len(self.frame) + sum(chunk.nbytes for chunk in self.chunks.values())


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: a frame, or the carrier's word that there is none."""

    sender: str
    tag: str
    frame: bytes | None = field(repr=False)
    error: str = ""


class Channel(Protocol):
    """The members of one cohort, by name."""

    def send(self, requests: Mapping[str, Request]) -> None:
        """Hand over one request a member. A member that nobody can reach simply does not answer."""
        ...

    def receive(self) -> Sequence[Reply]:
        """Whatever has come since the last call, oldest first; at once, and maybe nothing."""
        ...
