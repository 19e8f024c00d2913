"""An adaptive clip: in each round the clip of the updates moves towards a quantile of their norms.

Andrew et al. 2021 (arXiv:1905.03871), inside the sum that is charged anyway. In a round with the clip c a client sends

    (sqrt(1 - s^2) C u, +s C or -s C)        u its update over c, of norm 1 at most

where C is the `clip` of the terms, and the sign says whether the update was no longer than c. The norm is at most C,
whatever c is: neither sensitivity nor price depends on c. The last coordinate of the noisy sum gives b, the share of
updates within the clip, and the next clip is c exp(-rate (b - quantile)): it falls while more than the quantile fit.
That reads only what was released, so it costs nothing more.

s = min(10 z / n, 0.14) for noise of z clips in a sum of n: the error of b is 0.05 where that takes little, and the
update never loses more than 1 % to the bit.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fednode.protocol.spec import Terms

# an update that was clipped is this close to its clip, rounding included
_AT_CLIP = 1.0 - 2.0**-30


@dataclass(frozen=True, slots=True)
class AdaptiveClip:
    """The rule of the node, over so many rounds.

    Half of them can move the clip by a factor of 20 towards a median. Where there are more than 60, the rate is the
    0.2 of the paper, and they move it further.
    """

    quantile: float
    rounds: int

    def next_clip(self, clip: float, within: float) -> float:
        """The clip of the next round if the noisy share `within` of the updates was no longer than this one."""
        rate = max(0.2, 12.0 / self.rounds)
        return clip * math.exp(-rate * (min(1.0, max(0.0, within)) - self.quantile))

    def read(self, total: NDArray[np.float64], terms: Terms, survivors: int) -> tuple[NDArray[np.float64], float]:
        """Return the sum of the updates, float64 [d], and the next clip, from a released sum [d + 1] in model units."""
        share, clip = _bit(terms), terms.training_clip
        within = (float(total[-1]) / (share * terms.clip * survivors) + 1.0) / 2.0
        return total[:-1] * (clip / (math.sqrt(1.0 - share * share) * terms.clip)), self.next_clip(clip, within)


def with_bit(vector: NDArray[np.float64], clip: float, terms: Terms) -> NDArray[np.float64]:
    """Return what is sent of an update that was clipped to `clip`, float64 [d + 1]; too long if the update was."""
    share = _bit(terms)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = vector / terms.training_clip
        fits = float(np.linalg.norm(scaled)) < clip / terms.training_clip * _AT_CLIP
        scaled *= math.sqrt(1.0 - share * share) * terms.clip
    return np.append(scaled, share * terms.clip if fits else -share * terms.clip)


def _bit(terms: Terms) -> float:
    """Return s, the part of the clip that the bit has in a round with these terms."""
    return min(10.0 * terms.noise_multiplier() / terms.min_survivors, 0.14)
