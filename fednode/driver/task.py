"""What the driver works with: the task to run, and the parts of the node that have effects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fednode.clock import Clock
from fednode.driver.channel import Channel
from fednode.observer import Progress
from fednode.optimiser import ServerOptimiser
from fednode.privacy import DiscreteGaussianSum, Ledger
from fednode.protocol.chunks import Outline
from fednode.protocol.cohort import Cohort
from fednode.protocol.model import Layout
from fednode.protocol.requests import TaskCard
from fednode.protocol.spec import Terms
from fednode.stores import ParameterStore, UpdateStore
from fednode_crypto import SumParams, SumScheme


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained, by whom, under which terms. `failure` is the delta of one release that is no noise: sampler and
    overflow.

    `frozen` are float32 arrays that belong to the model, and to its digest, and are never trained: a client gets them
    once. Raises `ValueError` for one of another type, or with the name of a trained one.
    """

    name: str
    cohort: Cohort
    terms: Terms
    sum_params: SumParams
    layout: Layout
    optimiser: ServerOptimiser
    failure: float
    frozen: Mapping[str, NDArray[np.float32]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, array in self.frozen.items():
            if array.dtype != np.float32:
                raise ValueError(f"{name} is {array.dtype}; frozen arrays are float32, as they travel: convert it")
        object.__setattr__(self, "frozen", {name: _fixed(array) for name, array in self.frozen.items()})
        # two arrays of one name are found here
        _ = self.outline

    @property
    def outline(self) -> Outline:
        """Names and shapes of the whole model."""
        return Outline(self.layout, Layout(tuple(self.frozen), tuple(array.shape for array in self.frozen.values())))

    def model(self, vector: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
        """The whole model, as it travels, at these trained parameters (float64 [d])."""
        return {**self.layout.unflatten(vector), **self.frozen}

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


def _fixed(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """A copy that nobody can write to: what is frozen stays as it was."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


@dataclass(frozen=True, slots=True)
class Node:
    """The parts that have effects. `stop` says whether the operator asked to end.

    `staleness`, where there is one, is asked before each round how many versions old the model of an update may be: the
    task's own is the most, since that is what members were told. `invalidated` is told, after each new version, of how
    many chunks that clients held it made stale. `progress` hears how far each step is.
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
