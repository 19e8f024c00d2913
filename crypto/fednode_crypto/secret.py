"""Objects that hold secrets: they cannot be printed, pickled or copied by accident."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn


class Secret:
    """Base class whose instances cannot be pickled or copied, and whose repr shows only the type."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is secret and cannot be pickled or copied")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Sealing(Secret):
    """What a client sends for one update: `payload` for the node, `shares` by point, each for that holder's box.

    `check` takes a challenge, 32 bytes that depend on all boxes, and returns the public `check_bytes` that show each
    holder that the shares belong together. It answers one challenge, since two answers reveal the secret: ValueError
    for another. Keyed schemes have no shares and an empty check. The payload with a threshold of shares reveals the
    update: log neither, and to send an update again, store its boxes and not its shares.
    """

    payload: bytes
    shares: Mapping[int, bytes] = field(default_factory=dict)
    check: Callable[[bytes], bytes] = lambda _challenge: b""
