"""What the driver works with: the task to run, and the parts of the node that have effects."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fednode.allocation import Allocation, block_of
from fednode.clock import Clock
from fednode.driver.channel import Channel
from fednode.errors import BudgetExhausted
from fednode.observer import Progress
from fednode.optimiser import ServerOptimiser
from fednode.privacy import AdaptiveClip, DiscreteGaussianSum, Ledger, NoiseRequest, local_variance
from fednode.protocol.chunks import Outline
from fednode.protocol.cohort import Cohort
from fednode.protocol.headroom import sum_headroom
from fednode.protocol.model import Layout
from fednode.protocol.requests import TaskCard
from fednode.protocol.spec import Terms
from fednode.stores import ParameterStore, UpdateStore
from fednode_crypto import SumParams, SumScheme


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """What is trained, by whom, under which terms.

    `terms` are those of the first round. With `noise`, what is left of its budget decides the noise of each later one.
    `failure` is the part of one release's delta that comes from sampler and overflow, not from noise. `frozen` are
    float32 arrays of the model that are never trained; a client gets them once, and the model's digest covers them.
    `allocation` says who takes part in which round, everybody in all without one.
    `clipping` moves the clip of the terms from round to round, which then have an `adaptive_clip`.
    Raises `ValueError` for a frozen array of another type, or with the name of a trained one.
    """

    name: str
    cohort: Cohort
    terms: Terms
    sum_params: SumParams
    layout: Layout
    optimiser: ServerOptimiser
    failure: float
    frozen: Mapping[str, NDArray[np.float32]] = field(default_factory=dict, repr=False, compare=False)
    noise: NoiseRequest | None = None
    allocation: Allocation = field(default=(), repr=False)
    clipping: AdaptiveClip | None = None

    def __post_init__(self) -> None:
        for name, array in self.frozen.items():
            if array.dtype != np.float32:
                raise ValueError(f"{name} is {array.dtype}; frozen arrays are float32, as they travel: convert it")
        object.__setattr__(self, "frozen", {name: _fixed(array) for name, array in self.frozen.items()})
        # raises if two arrays have one name
        _ = self.outline

    @property
    def outline(self) -> Outline:
        """Names and shapes of all arrays, trained and frozen."""
        return Outline(self.layout, Layout(tuple(self.frozen), tuple(array.shape for array in self.frozen.values())))

    def invited(self, number: int) -> frozenset[str]:
        """The clients that take part in this round; all without an allocation."""
        if self.allocation:
            return self.allocation[number - 1]
        return frozenset(client.name for client in self.cohort.clients)

    def model(self, vector: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
        """All arrays of the model, float32 as they travel, at these trained parameters (float64 [d])."""
        return {**self.layout.unflatten(vector), **self.frozen}

    def key_context(self) -> bytes:
        """The bytes that the joint key is bound to (`TaskCard.key_context`)."""
        return TaskCard(self.name, self.cohort, self.sum_params).key_context()

    def round_terms(self, number: int, step: int, charged: Sequence[DiscreteGaussianSum]) -> Terms:
        """The terms of round `number`, after `step` releases and these charges.

        Rounds that failed before they were charged leave their part to the rounds to come. Raises `BudgetExhausted` if
        nothing is left, or so little that the secure sum, planned for a whole budget, has no room for the noise.
        """
        if self.noise is None:
            return self.terms
        left: int | None = max(1, len(self.noise.weights) - number + 1)
        if self.allocation:
            # the weights are those of blocks, and each of these clients has one round in each block that is left
            step, left = block_of(number, len(self.allocation), len(self.noise.weights)), None
        terms = replace(self.terms, local_variance=local_variance(self.noise, charged, step=step, left=left))
        if sum_headroom(terms, self.sum_params.dimension, len(self.cohort.clients)) > self.sum_params.value_bound:
            raise BudgetExhausted(
                "the budget left needs more noise than the sum has room for; plan the rest as a new run"
            )
        return terms

    def event(self, terms: Terms, survivors: int) -> DiscreteGaussianSum:
        """The privacy event of opening a sum of `survivors` updates; the colluders' noise does not count."""
        return DiscreteGaussianSum(
            clip=terms.clip,
            grid_bits=terms.grid_bits,
            dimension=self.sum_params.dimension,
            local_variance=terms.local_variance,
            contributors=survivors - terms.assumed_colluders,
            failure=self.failure,
        )


def _fixed(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """A read-only copy."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


@dataclass(frozen=True, slots=True)
class Node:
    """The parts of the node that have effects.

    `stop` returns True once the operator asked to stop. `poll` is in seconds. `staleness`, if given, returns how many
    versions old the model of an update may be in the next round; the task's terms are the upper limit. `invalidated`
    gets the number of chunks at clients that a new version made stale, `progress` how far each step is.
    """

    channel: Channel
    scheme: SumScheme
    ledger: Ledger
    updates: UpdateStore
    parameters: ParameterStore
    clock: Clock
    stop: Callable[[], bool] = lambda: False
    poll: float = 0.5
    staleness: Callable[[], int] | None = None
    invalidated: Callable[[int], None] = lambda _: None
    progress: Progress = lambda *_: None
