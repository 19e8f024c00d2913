"""How a round ended: the only form in which its result leaves the driver."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fednode.privacy import Receipt


@dataclass(frozen=True, slots=True)
class Release:
    """The mean of an opened sum, float64 [d], with the receipt of its charge: no release exists without one.

    `next_clip` is what an adaptive clip is after it.
    """

    mean: NDArray[np.float64] = field(repr=False)
    receipt: Receipt
    next_clip: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.receipt, Receipt):
            raise TypeError("a release needs the ledger's receipt")


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """How a round ended and who took part.

    `cause` is "" for a release, else the short name of the failure; `reason` explains it. `rejected` and `discarded`
    hold (member, reason), `lost` the invited clients that never answered, `answered` the holders that opened, `silent`
    (holder, reason) of those that did not do their part. `asked_again` counts requests for updates that had found no
    room. `local_variance` is the noise of one client, in grid steps squared, `clip` an adaptive clip.
    `bytes_down` and `bytes_up` are means over
    the clients that were asked and that answered, over all messages of the round. `broken` names the error that ended
    the work on the round early, else "". A `release` stays even if something failed after it: the sum was opened.
    """

    round: int
    cause: str
    reason: str
    invited: int
    survivors: tuple[str, ...]
    opened: bool
    rejected: tuple[tuple[str, str], ...] = ()
    discarded: tuple[tuple[str, str], ...] = ()
    lost: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    silent: tuple[tuple[str, str], ...] = ()
    asked_again: int = 0
    bytes_up: float = 0.0
    bytes_down: float = 0.0
    seconds: float = 0.0
    release: Release | None = None
    broken: str = ""
    local_variance: int = 0
    clip: float | None = None
