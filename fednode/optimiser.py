"""The server's optimiser: gradient descent with steps that shrink to zero and add up to a set path.

Step t of T (t = 0 .. T - 1) moves the parameters by

    rate_t = path * 2 (T - t) / (T (T + 1))          v_{t+1} = momentum * v_t + (1 - momentum) * g_t
    w_{t+1} = w_t - rate_t * v_{t+1}                 sum of rate_t over t = path

A `constant` rate is path / T in each step. g is the mean gradient or, for the client unit, the mean of how far clients
moved: then this is FedAvg, and FedAvgM with momentum. With `adam`, v_{t+1} is divided by sqrt(s_{t+1}) + 1e-3, where
s_{t+1} = 0.99 s_t + 0.01 g_t^2: FedAdam (Reddi et al. 2021, arXiv:2003.00295, Algorithm 2).

Why a path and not a rate: under a fixed privacy budget the noise of one round grows with the square root of the rounds,
so the noise in the final parameters grows with the path, not with the number of rounds. The path decides how far the
model learns and how much noise it keeps; the number of rounds decides how smoothly. One default serves 20 to 40 rounds.
Momentum, averaged iterates and Adam filter noise that the shrinking steps already filter; none of them helped when
measured for version 0.1, so the default momentum is 0.

Everything is elementwise float64 in one fixed order: the same inputs give the same bits on any IEEE machine.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError

DEFAULT_PATH = 2000.0

_SQUARES_KEPT, _FLOOR = 0.99, 1e-3

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class OptimiserState:
    """Steps taken so far, the velocity and, for Adam, the mean of squares: float64 (d,), read-only."""

    step: int
    velocity: Vector = field(repr=False)
    squares: Vector | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ServerOptimiser:
    """Settings of the rule above; `path` is in parameters per mean gradient, independent of d and of the clients."""

    rounds: int
    path: float = DEFAULT_PATH
    momentum: float = 0.0
    adam: bool = False
    constant: bool = False

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"{self.rounds} rounds train nothing; give 1 or more")
        if not (math.isfinite(self.path) and self.path > 0):
            raise ConfigError(f"the optimiser's path is {self.path}; give a positive number such as {DEFAULT_PATH:g}")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum is {self.momentum}; give a number from 0 to below 1")

    def init(self, d: int) -> OptimiserState:
        """The state before the first step, for d parameters."""
        return OptimiserState(0, _frozen(np.zeros(d)), _frozen(np.zeros(d)) if self.adam else None)

    def rate(self, step: int) -> float:
        """The rate of step 0 .. rounds - 1; 0 for any later step."""
        if self.constant:
            return self.path / self.rounds if step < self.rounds else 0.0
        left = max(0, self.rounds - step)
        return self.path * 2.0 * left / (self.rounds * (self.rounds + 1))

    def weights(self) -> tuple[float, ...]:
        """How much of the mean gradient of each step enters the last parameters, momentum included."""
        found, carried = [], 0.0
        for step in reversed(range(self.rounds)):
            carried = self.rate(step) + self.momentum * carried
            found.append((1.0 - self.momentum) * carried)
        return tuple(reversed(found))

    def apply(self, state: OptimiserState, parameters: Vector, mean_gradient: Vector) -> tuple[OptimiserState, Vector]:
        """Return the next state and the new parameters, float64 (d,); the arguments do not change.

        Raises `ValueError` if the shapes differ or the new parameters are not finite: nothing was changed then.
        """
        if not parameters.shape == mean_gradient.shape == state.velocity.shape:
            raise ValueError(
                f"parameters {parameters.shape}, gradient {mean_gradient.shape} and state {state.velocity.shape} differ"
            )
        gradient = mean_gradient.astype(np.float64)
        velocity = state.velocity * self.momentum + gradient * (1.0 - self.momentum)
        step, squares = velocity * self.rate(state.step), state.squares
        if squares is not None:
            squares = _frozen(squares * _SQUARES_KEPT + gradient * gradient * (1.0 - _SQUARES_KEPT))
            step = step / (np.sqrt(squares) + _FLOOR)
        moved = parameters.astype(np.float64) - step
        if not np.isfinite(moved).all():
            raise ValueError("the optimiser's step is not finite; the gradient must be")
        return OptimiserState(state.step + 1, _frozen(velocity), squares), moved


def _frozen(vector: Vector) -> Vector:
    vector.flags.writeable = False
    return vector
