"""The steps of an update before it leaves: bound, round, noise, seal, in the one order that type-checks.

Rounding: Kairouz, Liu, Steinke 2021 (arXiv 2102.06387), section 4.2, without the redraw: two neighbouring sums rounded
with the same coins differ by at most `rounded_norm` of the clip in L2 norm, and that is what the ledger charges.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fednode.privacy.adaptive import with_bit
from fednode.protocol.guarantees import Bounded, Noised, Sealed
from fednode.protocol.headroom import coordinate_limit, rotate
from fednode.protocol.spec import RoundSpec, Terms
from fednode_crypto import Overflow, Rng
from fednode_crypto.interfaces import Sealer
from fednode_crypto.noise import discrete_gaussian

_ULP_GUARD = 1.0 - 2.0**-40


class ClippedSum(Protocol):
    """The result of training: a float64 sum [d] over units, each clipped to `clip`."""

    @property
    def vector(self) -> NDArray[np.float64]:
        """The sum."""
        ...

    @property
    def clip(self) -> float:
        """The L2 bound of one unit."""
        ...

    @property
    def unit(self) -> str:
        """What was clipped, of `fednode.units`."""
        ...


def bound(total: ClippedSum, terms: Terms) -> Bounded:
    """The sum, projected onto the ball of radius clip * max_records.

    Guarantee: one unit moves the result by at most `clip`, as a projection moves no two points apart, and floats by
    less than max_records * clip * 2^-46 more, which `clipped_gradient_sum` keeps back. More units than `max_records`
    weigh as many. Raises `ValueError` for a sum that is not finite, of another unit or clip.
    """
    if total.unit != terms.unit:
        raise ValueError(f"training bounds each {total.unit}, and the round protects each {terms.unit}")
    if not 0.0 < total.clip <= terms.training_clip:
        raise ValueError(f"{total.unit}s were clipped to {total.clip}, the round's clip is {terms.training_clip}")
    vector = total.vector if terms.adaptive_clip is None else with_bit(total.vector, total.clip, terms)
    with np.errstate(over="ignore"):
        # added in pairs: the error of the norm is below 2^-48 of it
        norm = math.sqrt(float(np.square(vector).sum()))
    # projecting a sum whose norm overflows would give zero, far from its neighbours
    if not math.isfinite(norm):
        raise ValueError("the sum is not finite; count a record that is not finite as zero before adding it")
    radius = terms.clip * terms.max_records * _ULP_GUARD
    return Bounded(vector if norm <= radius else vector * (radius / norm), terms.clip, terms.max_records)


def nothing(terms: Terms, dimension: int) -> Bounded:
    """The sum of a client without records."""
    return Bounded(np.zeros(dimension), terms.clip, terms.max_records)


def flattened(bounded: Bounded, spec: RoundSpec) -> Bounded:
    """The sum as this round sends it: if its terms say so, rotated, and then each coordinate limited to its room.

    Guarantee: a rotation and a limit move no two points apart, and the result is no longer than the sum.
    """
    if not spec.terms.rotated:
        return bounded
    limit = coordinate_limit(spec.terms, len(bounded.vector))
    turned = np.clip(rotate(bounded.vector, spec.digest()) * _ULP_GUARD, -limit, limit)
    return Bounded(turned, bounded.clip, bounded.max_records)


def round_to_grid(vector: NDArray[np.float64], grid_bits: int, rng: Rng) -> NDArray[np.int64]:
    """Each coordinate in steps of 2^-grid_bits, rounded up or down at random: int64 [d].

    Unbiased to 2^-53 of a step. Raises `Overflow` for a coordinate of 2^62 steps or more.
    """
    scaled = vector * 2.0**grid_bits
    if np.abs(scaled).max(initial=0.0) >= 2.0**62:
        raise Overflow("a coordinate does not fit 63 bits on this grid; choose a coarser one")
    floor = np.floor(scaled)
    coins = (rng.words(len(vector)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    rounded: NDArray[np.int64] = floor.astype(np.int64) + (coins < scaled - floor)
    return rounded


def add_noise(bounded: Bounded, terms: Terms, rng: Rng) -> Noised:
    """Integers on the grid plus this client's share of discrete Gaussian noise."""
    values = round_to_grid(bounded.vector, terms.grid_bits, rng)
    noise = discrete_gaussian(terms.local_variance, len(values), rng)
    return Noised(values + noise, bounded.clip, terms.grid_bits, terms.local_variance)


def seal(noised: Noised, spec: RoundSpec, sealer: Sealer, rng: Rng) -> Sealed:
    """The payload for this round. Raises `Overflow` for a value beyond the planned room; values are never clamped."""
    terms = spec.terms
    if (noised.clip, noised.grid_bits, noised.variance) != (terms.clip, terms.grid_bits, terms.local_variance):
        raise ValueError("the update was made under other terms than the round's")
    if noised.values.shape != (spec.sum_params.dimension,):
        raise ValueError(f"{noised.values.shape} values for a sum of {spec.sum_params.dimension}")
    digest = spec.digest()
    return Sealed(sealer.seal(noised.values, rng, digest), digest)
