"""A rotation spreads a spike, keeps lengths, and is undone exactly but for floats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard as matrix

from fednode.protocol.headroom import block_size, hadamard, rotate, unrotate


@pytest.mark.parametrize("size", [1, 2, 8, 256])
def test_the_transform_is_the_hadamard_matrix_of_each_block(size):
    values = np.random.default_rng(size).normal(size=3 * size)
    found = values.copy()
    hadamard(found, size)
    assert np.allclose(found.reshape(3, size), values.reshape(3, size) @ matrix(size) / size**0.5)


def test_a_spike_becomes_even_over_its_block():
    vector = np.zeros(65_536)
    vector[70] = 1000.0
    turned = rotate(vector, b"round")
    assert np.array_equal(np.abs(turned[:4096]), np.full(4096, 1000.0 / 64)) and not turned[4096:].any()


@pytest.mark.parametrize("dimension", [1, 2, 3, 4095, 4096, 4097, 25_625])
def test_no_coordinate_stays_large_and_the_inverse_gives_all_back(dimension):
    size = block_size(dimension)
    for at in {0, dimension // 2, dimension - 1}:
        spike = np.zeros(dimension)
        spike[at] = 1.0
        turned = rotate(spike, b"seed")
        assert np.abs(turned).max() <= 7.5 / size**0.5
        assert np.allclose(unrotate(turned, b"seed"), spike, atol=1e-13)


def test_each_seed_turns_another_way():
    ones = np.ones(5000)
    assert not np.allclose(rotate(ones, b"seed"), rotate(ones, b"another seed"))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=70), st.binary(max_size=8))
@settings(max_examples=100, deadline=None)
def test_a_rotation_keeps_the_length(values, seed):
    vector = np.array(values)
    norm = np.linalg.norm(vector)
    assert abs(np.linalg.norm(rotate(vector, seed)) - norm) <= norm * 1e-14
