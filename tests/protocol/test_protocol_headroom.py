"""The length of an opened sum: honest sums are within the bound, however the records point."""

from dataclasses import replace

import numpy as np
import pytest
from kit.crypto.insecure import InsecureRng
from kit.members import TERMS

from fednode.protocol.headroom import norm_headroom
from fednode_clients.client.privatise import add_noise, bound


class Sum:
    def __init__(self, vector, clip):
        self.vector, self.clip, self.unit = vector, clip, "record"


@pytest.mark.parametrize(("grid_bits", "variance"), [(0, 1), (4, 9), (16, 1 << 30)])
@pytest.mark.parametrize("dimension", [1, 7, 2_000])
def test_a_sum_of_honest_updates_in_one_direction_is_within_the_bound_and_near_it(grid_bits, variance, dimension):
    terms = replace(TERMS, grid_bits=grid_bits, local_variance=variance)
    rng = InsecureRng(dimension)
    vector = np.full(dimension, 10.0 * terms.max_records)
    updates = [add_noise(bound(Sum(vector, terms.clip), terms), terms, rng).values for _ in range(5)]
    length, most = float(np.linalg.norm(np.sum(updates, axis=0))), norm_headroom(terms, dimension, 5)
    assert most / 8 < length <= most


def test_the_bound_is_what_its_docstring_says():
    terms = replace(TERMS, max_records=400, clip=1.0, grid_bits=0, local_variance=4)
    assert norm_headroom(terms, 100, 9) == 9 * (400 + 10) + 6 * (10 + 14)
