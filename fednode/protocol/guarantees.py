"""The stages of an update as types: each carries the guarantee of the step that made it.

    GradientSum -> Bounded -> Noised -> Sealed

`seal` accepts only `Noised`, so code that skips the clip or the noise does not type-check.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fednode_crypto import Sealing


@dataclass(frozen=True, slots=True)
class Bounded:
    """A sum over units, each of L2 norm at most `clip`: float64 [d], finite, norm <= clip * max_records.

    Replacing one unit's contribution by zero moves `vector` by at most `clip` in L2 norm.
    """

    vector: NDArray[np.float64] = field(repr=False)
    clip: float
    max_records: int


@dataclass(frozen=True, slots=True)
class Noised:
    """Integers in steps of 2^-grid_bits with one client's share of the noise in every coordinate: int64 [d].

    Replacing one unit's contribution by zero moves the values before the noise by at most `rounded_norm` of the clip
    in L2 norm (`fednode.protocol.spec`).
    """

    values: NDArray[np.int64] = field(repr=False)
    clip: float
    grid_bits: int
    variance: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """A payload that no single party can read, with its secret shares, for the round whose spec has `spec_digest`."""

    sealing: Sealing
    spec_digest: bytes
