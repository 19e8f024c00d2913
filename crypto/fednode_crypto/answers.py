"""The checks that both schemes make before they open a sum: the sum, the number of answers, and each answer's bytes."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.encoding import from_bytes
from fednode_crypto.errors import NotEnoughShares, Tampered, WrongAnswer
from fednode_crypto.hazmat.moduli import Moduli
from fednode_crypto.params import SumParams
from fednode_crypto.residue_sum import ResidueSum

Words = NDArray[np.uint64]


def check_openable(params: SumParams, total: ResidueSum, answers: Mapping[int, bytes]) -> None:
    """Raise ValueError for an empty sum or one of other parameters, NotEnoughShares for fewer than t answers."""
    if total.params != params or total.count == 0:
        raise ValueError("there is nothing to open under these parameters: add updates first")
    if len(answers) < params.threshold:
        raise NotEnoughShares(f"{params.threshold} answers open a sum: {len(answers)} came")


def read_answers(
    params: SumParams, answers: Mapping[int, bytes], moduli: Moduli, lead: tuple[int, ...] = ()
) -> dict[int, Words]:
    """Return the polynomials in each answer, (*lead, r, degree), by ascending point.

    Raises Tampered for a point that no holder has, WrongAnswer, naming the holder, for wrong size or range.
    """
    found = {}
    for point, data in sorted(answers.items()):
        if type(point) is not int or not 1 <= point <= params.holders:
            raise Tampered(f"holder points are 1 to {params.holders}: an answer has another one")
        try:
            found[point] = from_bytes(data, moduli, lead, f"answer of holder {point}")
        except Tampered as error:
            raise WrongAnswer(str(error), [point]) from None
    return found


def contradicted(points: list[int]) -> WrongAnswer:
    """Return the error that names `points` as holders whose answers contradict all others."""
    return WrongAnswer(f"the answers of holders {points} contradict the others: leave them out", points)
