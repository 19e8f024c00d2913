"""Sharing and putting together: exact over every set of holders, useless below the threshold."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crypto.insecure import InsecureRng

from fednode_crypto.hazmat.lagrange import amplification, cleared, dependency, lagrange, lift, opening_growth
from fednode_crypto.hazmat.modular import seal_primes
from fednode_crypto.hazmat.ntt import ring
from fednode_crypto.hazmat.shamir import share
from fednode_crypto.hazmat.uniform import uniform_rows

RING = ring(16, seal_primes(16, (60, 33)))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 7), st.data())
def test_any_threshold_of_shares_gives_the_secret(holders: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, holders))
    chosen = tuple(data.draw(st.permutations(range(1, holders + 1)))[:threshold])
    secret = uniform_rows(RING.primes, (16,), InsecureRng(1))
    shares = share(secret, RING, threshold, range(1, holders + 1), InsecureRng(data.draw(st.integers(0, 2**32))))
    least, weights = cleared(lagrange(chosen))
    opened, expected = np.zeros_like(secret), np.zeros_like(secret)
    for point, weight in zip(chosen, weights, strict=True):
        RING.add_scaled(opened, shares[point], weight)
    RING.add_scaled(expected, secret, least)
    assert np.array_equal(opened, expected)


def test_shares_below_the_threshold_fit_every_secret() -> None:
    # same three shares, another secret: the fourth point makes up for it
    secret = uniform_rows(RING.primes, (16,), InsecureRng(1))
    shares = share(secret, RING, 4, range(1, 6), InsecureRng(2))
    other = uniform_rows(RING.primes, (16,), InsecureRng(3))
    weights = lagrange((1, 2, 3, 4))
    for row, p in enumerate(RING.primes):
        known = [int(shares[j][row, 0]) for j in (1, 2, 3)]
        partial = sum(int(w.numerator) * pow(w.denominator, -1, p) * v for w, v in zip(weights, known, strict=False))
        last = (int(other[row, 0]) - partial) * pow(int(weights[3]), -1, p) % p
        assert (partial + int(weights[3]) * last) % p == int(other[row, 0])


def test_more_points_than_the_degree_needs_depend_on_each_other() -> None:
    shares = share(uniform_rows(RING.primes, (16,), InsecureRng(1)), RING, 3, range(1, 6), InsecureRng(2))
    for points in combinations(range(1, 6), 4):
        rest = np.zeros_like(shares[1])
        for point, weight in zip(points, dependency(points), strict=True):
            RING.add_scaled(rest, shares[point], weight)
        assert not rest.any()


@pytest.mark.parametrize(("holders", "threshold"), [(1, 1), (3, 2), (5, 3), (5, 4), (7, 5), (10, 6)])
def test_lift_makes_every_inverse_weight_whole(holders: int, threshold: int) -> None:
    factor, worst = lift(holders, threshold), amplification(holders, threshold)
    for chosen in combinations(range(1, holders + 1), threshold):
        weights = lagrange(chosen)
        assert sum(weights) == 1
        assert all((Fraction(factor) / w).denominator == 1 and abs(factor / w) <= worst for w in weights)
        least, whole = cleared(weights)
        assert least * factor <= opening_growth(holders, threshold)[0]
        assert sum(w * w for w in whole) <= opening_growth(holders, threshold)[1]
