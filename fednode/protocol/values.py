"""An update on its way: each type carries the guarantee that the step before it gave.

    GradientSum -> Bounded -> Noised -> Sealed

`seal` takes `Noised` and nothing else, so a path that skips the clip or the noise does not type-check.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Bounded:
    """A sum over records in which no record weighs more than `clip`: float64 [d], finite, norm <= clip * max_records.

    Adding or removing one record moves `vector` by at most `clip` in L2 norm.
    """

    vector: NDArray[np.float64] = field(repr=False)
    clip: float
    max_records: int


@dataclass(frozen=True, slots=True)
class Noised:
    """Integers in steps of 2^-grid_bits with one client's share of the noise in every coordinate: int64 [d].

    Adding or removing one record moves what the noise was added to by at most clip * 2^grid_bits + sqrt(d) steps in L2
    norm.
    """

    values: NDArray[np.int64] = field(repr=False)
    clip: float
    grid_bits: int
    variance: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """A payload that nobody can read alone, bound to the round whose spec has `spec_digest`.

    `shares` are secret, one for each holder by point, where the scheme has boxes: they leave in boxes or not at all.
    """

    payload: bytes = field(repr=False)
    spec_digest: bytes
    shares: Mapping[int, bytes] = field(default_factory=dict, repr=False)
