"""Canaries, made-up records of which only the auditor knows who is in, and what their scores say about privacy."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fednode_clients.training.gradients import GradientSum, clipped_gradient_sum
from fednode_crypto import Rng

Floats = NDArray[np.float64]

_LOUD = 10.0 * math.sqrt(2.0)
"""The norm of x in clips, before the clip: a client that does not clip adds a canary of ten clips."""

_GUESSED = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the canaries that are guessed; chosen beforehand, so that the bound pays for looking at all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Canaries:
    """Unit vectors (-x, x) with disjoint supports, so that none hides another; who is in is a coin for each.

    A canary is a record of the client `owners[i]` for a model with two classes at zero, which gives it that gradient.
    """

    unit: str
    dimension: int
    owners: NDArray[np.int64] = field(repr=False)
    inside: NDArray[np.bool_] = field(repr=False)
    places: NDArray[np.int64] = field(repr=False)
    """The coordinates of each x that are not zero, int64 [m, b]."""
    signs: Floats = field(repr=False)

    @staticmethod
    def draw(unit: str, size: tuple[int, int], most: int, rng: Rng) -> "Canaries":
        """At most `most` canaries, one for each pair of coordinates, dealt in turn; `size` is dimension and clients."""
        dimension, clients = size
        count = min(most, dimension // 2)
        shape = (count, dimension // 2 // max(count, 1))
        places = np.argsort(rng.words(dimension // 2))[: math.prod(shape)].reshape(shape)
        signs, coins = (rng.words(math.prod(one)).reshape(one) % np.uint64(2) for one in (shape, shape[:1]))
        return Canaries(
            unit, dimension, np.arange(count) % clients, coins == 1, places, np.where(signs == 1, 1.0, -1.0)
        )

    def sum_of(self, client: int, clip: float) -> GradientSum:
        """What this client computes from its canaries that are in, clipped as all records are."""
        import torch

        mine, total = np.flatnonzero(self.inside & (self.owners == client)), np.zeros(self.dimension)
        if not len(mine):
            return GradientSum(total, 0, clip, 0, 0, self.unit)
        places, each = self.places[mine].ravel(), np.arange(len(mine))
        rows = np.zeros((len(mine), *self.places[mine].shape), dtype=np.float32)
        rows[each, each] = self.signs[mine] * (_LOUD * clip / math.sqrt(self.places.shape[1]))
        # built without storage first: the usual initialiser would draw from torch's global generator
        model = torch.nn.Linear(len(places), 2, bias=False, device="meta").to_empty(device="cpu")
        torch.nn.init.zeros_(model.weight)
        found = clipped_gradient_sum(model, rows.reshape(len(mine), -1), np.zeros_like(each), clip)
        total[np.concatenate([places, places + self.dimension // 2])] = found.vector
        return GradientSum(total, found.records, clip, found.clipped, found.dropped, self.unit)

    def scores(self, opened: Floats) -> Floats:
        """The length of `opened` (float64 [d]) along each canary, float64 [m]."""
        along = opened[self.places + self.dimension // 2] - opened[self.places]
        total: Floats = (along * self.signs).sum(axis=1) / math.sqrt(2 * self.places.shape[1])
        return total


def one_run_bound(scores: Floats, inside: NDArray[np.bool_], delta: float, doubt: float = 0.05) -> float:
    """Return an epsilon, or 0: with confidence 1 - doubt, no smaller one is true at this delta.

    The highest scores are guessed to be in, as many of the lowest to be out. Steinke, Nasr, Jagielski 2023
    (arXiv:2305.08846), Theorem 5.2; the best of several numbers of guesses, each at its part of the doubt.
    """
    order, bounds = inside[np.argsort(scores)], []
    for half in (math.ceil(share * len(scores) / 2) for share in _GUESSED):
        right = int(order[-half:].sum() - order[:half].sum()) + half
        bounds.append(bound_of_guesses((len(scores), 2 * half, right), delta, doubt / len(_GUESSED)))
    return max(bounds)


def bound_of_guesses(guesses: tuple[int, int, int], delta: float, doubt: float) -> float:
    """Return the largest epsilon at which this outcome (canaries, guessed, right) has at most a chance of `doubt`."""
    low, high = 0.0, 64.0
    while high - low > 1e-9:
        middle = (low + high) / 2.0
        low, high = (middle, high) if _chance(guesses, middle, delta) < doubt else (low, middle)
    return low


def _chance(guesses: tuple[int, int, int], epsilon: float, delta: float) -> float:
    """The most chance of so many right guesses, or more, against an (epsilon, delta)-private mechanism."""
    canaries, guessed, right = guesses
    k = np.arange(guessed + 1)
    factorial = np.array([math.lgamma(i + 1) for i in k])
    hit = -math.log1p(math.exp(-epsilon))
    mass = np.exp(factorial[-1] - factorial - factorial[::-1] + k * hit + k[::-1] * (hit - epsilon))
    step = (np.cumsum(mass[:right][::-1]) / np.arange(1, right + 1)).max(initial=0.0)
    return min(1.0, float(mass[right:].sum() + 2 * canaries * delta * step))
