"""From what a task demands to the cheapest parameters that serve it."""

from fednode_crypto.errors import WrongParameters
from fednode_crypto.params import Demand, SumParams
from fednode_crypto.registry import entry


def plan(scheme: str, demand: Demand) -> SumParams:
    """Return the parameters that serve `demand` with the smallest update, boxes included.

    Raises WrongParameters, with the numbers, if there are none.
    """
    found = min(entry(scheme).candidates(demand), key=lambda p: (p.upload_bytes, p.lanes), default=None)
    if found is None:
        raise WrongParameters(
            f"no parameters of scheme '{scheme}' hold sums up to {demand.value_bound} "
            f"(2^{demand.value_bound.bit_length()}) of {demand.summands} updates with {demand.threshold} of "
            f"{demand.holders} holders: take a coarser grid, fewer clients or fewer holders"
        )
    return found
