"""The known vector: anyone computes the same one, it fits the sum, and another task has another."""

from dataclasses import replace

import numpy as np
import pytest
from kit.members import small_sum

from fednode.protocol.key_check import known_vector

SMALL = small_sum()


def test_the_vector_is_the_one_written_down():
    vector = known_vector(SMALL, b"context")
    assert vector.dtype == np.int64
    assert vector.tolist() == [21, -78, 62, 97, 22, 72, 44, -53, 64, -82]


def test_another_context_gives_another_vector():
    assert len({known_vector(SMALL, bytes([number])).tobytes() for number in range(20)}) == 20


@pytest.mark.parametrize("bound", [1_000, 40, 4, 3, 1])
@pytest.mark.parametrize("dimension", [1, 10, 5_000])
def test_as_many_copies_as_fit_the_sum_stay_within_its_bound(bound, dimension):
    params = replace(SMALL, value_bound=bound, dimension=dimension)
    vector = known_vector(params, b"context")
    assert vector.shape == (dimension,)
    assert np.abs(vector).max() * params.summands <= bound
    if dimension == 5_000:
        largest = min(100, bound // params.summands)
        assert set(np.unique(vector)) == set(range(-largest, largest + 1))
