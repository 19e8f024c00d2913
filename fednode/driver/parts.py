"""What the driver works with, and what it says when a round is over."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fednode.cache import ParameterStore, UpdateStore
from fednode.clock import Clock
from fednode.driver.channel import Channel
from fednode.optimiser import ServerOptimiser
from fednode.privacy import DiscreteGaussianSum, Ledger, Receipt
from fednode.protocol.cohort import Cohort
from fednode.protocol.model import Layout
from fednode.protocol.requests import TaskCard
from fednode.protocol.spec import Terms
from fednode_crypto import SumParams, SumScheme


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained, by whom, under which terms. `failure` is the delta of one release that is no noise: sampler and
    overflow."""

    name: str
    cohort: Cohort
    terms: Terms
    sum_params: SumParams
    layout: Layout
    optimiser: ServerOptimiser
    failure: float

    def key_context(self) -> bytes:
        """What the joint key is bound to, as `TaskCard.key_context` says it."""
        return TaskCard(self.name, self.cohort, self.sum_params).key_context()

    def event(self, survivors: int) -> DiscreteGaussianSum:
        """What opening a sum of `survivors` updates releases: only honest survivors' noise counts."""
        return DiscreteGaussianSum(
            clip=self.terms.clip,
            grid_bits=self.terms.grid_bits,
            dimension=self.layout.dimension,
            local_variance=self.terms.local_variance,
            contributors=survivors - self.terms.assumed_colluders,
            failure=self.failure,
        )


@dataclass(frozen=True, slots=True)
class Node:
    """The parts that have effects. `stop` says whether the operator asked to end."""

    channel: Channel
    scheme: SumScheme
    ledger: Ledger
    updates: UpdateStore
    parameters: ParameterStore
    clock: Clock
    stop: Callable[[], bool] = lambda: False
    poll: float = 0.5


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
    reason). Bytes are means over the clients that were asked (down) and that answered (up).
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
    bytes_up: float
    bytes_down: float
    seconds: float
    release: Release | None = None
