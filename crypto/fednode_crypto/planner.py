"""From what a task needs to the cheapest parameters that give it, or one sentence why none do."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from fednode_crypto.bfv import planner as bfv_planner
from fednode_crypto.bfv.planner import SMUDGING_BITS
from fednode_crypto.demand import Demand
from fednode_crypto.errors import WrongParameters
from fednode_crypto.params import SumParams
from fednode_crypto.ring import planner as ring_planner
from fednode_crypto.tail_bounds import TASK_DRAWS, noise_tail

__all__ = ["SMUDGING_BITS", "TASK_DRAWS", "Demand", "noise_tail", "plan"]

_CANDIDATES: Final[Mapping[str, Callable[[Demand], Iterable[SumParams]]]] = {
    "bfv": bfv_planner.candidates,
    "ring": ring_planner.candidates,
}


def plan(scheme: str, demand: Demand) -> SumParams:
    """Return the parameters that serve `demand` with the fewest bytes of one update, boxes included.

    Raises WrongParameters, with the numbers, when nothing does.
    """
    if scheme not in _CANDIDATES:
        raise WrongParameters(f"there is no secure sum scheme '{scheme}': use {' or '.join(map(repr, _CANDIDATES))}")
    found = min(_CANDIDATES[scheme](demand), key=lambda p: (p.upload_bytes, p.lanes), default=None)
    if found is None:
        raise WrongParameters(
            f"no parameters of scheme '{scheme}' hold sums up to {demand.value_bound} "
            f"(2^{demand.value_bound.bit_length()}) of {demand.summands} updates with {demand.threshold} of "
            f"{demand.holders} holders: take a coarser grid, fewer clients or fewer holders"
        )
    return found
