"""Audits that take seconds, repeatable, and the faults that they have to see."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
from kit.crypto.insecure import InsecureRng
from kit.smallrun import messages, small_settings
from numpy.typing import NDArray

from fednode.assemble.session import Environment
from fednode.audit.perform import Audit, AuditResult
from fednode.observer import Observer, StopFlag
from fednode_clients.client import privatise
from fednode_clients.training.gradients import GradientSum, clipped_gradient_sum
from fednode_crypto import Rng

DISCRETE_GAUSSIAN = privatise.discrete_gaussian


def seeded(start: int = 0) -> Callable[[], Rng]:
    """The generators of an audit and its members, each with a seed of its own: seeds 0, 1, 2 ..., auditor first."""
    numbers: Iterator[int] = count(1_000 * start)
    return lambda: InsecureRng(next(numbers))


def small_audit(folder: Path, most: int = 5_000, **changes: object) -> AuditResult:
    """Audit a small run: 1,000 canaries over four clients, 2 rounds, unless `changes` says otherwise."""
    (folder / "many").mkdir()
    data = str(messages(folder / "many", 1_500))
    values: dict[str, object] = {"features": 700, "assumed_colluders": 0, "min_survivors": 4, "data": data}
    settings = small_settings(folder, **(values | changes))
    return Audit(settings, None, most, Environment(rng=seeded())).perform(Observer(), StopFlag())


Sampler = Callable[[int, int, Rng], NDArray[np.int64]]


def halved(variance: int, size: int, rng: Rng) -> NDArray[np.int64]:
    """Noise of half the deviation."""
    return DISCRETE_GAUSSIAN(variance // 4, size, rng)


def forgotten(variance: int, size: int, rng: Rng) -> NDArray[np.int64]:
    """No noise."""
    return np.zeros(size, dtype=np.int64)


def left_out(by: int = 1, of: int = 4) -> Sampler:
    """The sampler of a process in which one share in so many is left out: that of one client."""
    calls = count()

    def sample(variance: int, size: int, rng: Rng) -> NDArray[np.int64]:
        return (forgotten if next(calls) % of == by else DISCRETE_GAUSSIAN)(variance, size, rng)

    return sample


def unclipped(model: object, rows: NDArray[np.float32], labels: NDArray[np.int64], clip: float) -> GradientSum:
    """What a client computes that says that it clips, and does not."""
    found = clipped_gradient_sum(model, rows, labels, 1e6)  # type: ignore[arg-type]
    return GradientSum(found.vector, found.records, clip, 0, 0)
