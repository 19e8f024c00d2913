"""How a round ended: the only form in which its result leaves the driver."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fednode.privacy import Receipt


@dataclass(frozen=True, slots=True)
class Release:
    """What left the node: the mean of a sum that the ledger holds a charge for. There is none without a receipt."""

    mean: NDArray[np.float64] = field(repr=False)
    receipt: Receipt

    def __post_init__(self) -> None:
        if not isinstance(self.receipt, Receipt):
            raise TypeError("a release needs the ledger's receipt")


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """How a round ended and who was in it. `cause` is empty for a release, else the short name of what failed.

    `rejected` and `discarded` hold (member, reason); `lost` invited clients that said nothing; `silent` (holder,
    reason). `asked_again` counts how often a client whose update had found no room was asked for it again. Bytes are
    means over the clients that were asked (down) and that answered (up), all messages of the round
    counted. `broken` says what broke the work on the round off, whatever had come of it by then: "" for a round that
    went to its end. The `release` stands also where what follows it failed: the sum is open.
    """

    round: int
    cause: str
    reason: str
    invited: int
    survivors: tuple[str, ...]
    rejected: tuple[tuple[str, str], ...]
    discarded: tuple[tuple[str, str], ...]
    lost: tuple[str, ...]
    answered: tuple[str, ...]
    silent: tuple[tuple[str, str], ...]
    opened: bool
    asked_again: int
    bytes_up: float
    bytes_down: float
    seconds: float
    release: Release | None = None
    broken: str = ""
