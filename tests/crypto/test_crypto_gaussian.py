import json
import math
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crypto.cks import exact_gaussian
from kit.crypto.insecure import FakeWords, InsecureRng
from numpy.typing import NDArray

from fednode_crypto.hazmat import gaussian
from fednode_crypto.noise import discrete_gaussian, sampler_error

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "gaussian.json").read_text())
SMALL = Fraction(16, 5) ** 2  # 3.2 squared
WIDE = 45_000**2
UNIT = 1 << 192
VARIANCES = st.one_of(
    st.fractions(gaussian.SMALLEST_VARIANCE, 10, max_denominator=10**6),
    st.fractions(1, gaussian.LARGEST_VARIANCE, max_denominator=10**30),
    st.integers(0, 112).map(lambda bits: Fraction(2**bits)),
)


def thresholds(table: gaussian.Table) -> list[int]:
    return [(int(head) << 128) | rest for head, rest in zip(table.heads, table.rests, strict=True)]


def chances(table: gaussian.Table) -> list[int]:
    """The chance of -B, ..., B in units of 2^-192, as the sampler draws them."""
    cuts = [0, *thresholds(table), UNIT]
    return [after - before for before, after in pairwise(cuts)]


def ideal(variance: Fraction | int, bound: int) -> NDArray[np.float64]:
    x = np.arange(-bound, bound + 1, dtype=np.float64)
    weights = np.exp(-(x**2) / (2 * float(variance)))
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def p_value(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """Pearson's test after neighbouring cells are joined until each expects at least 10."""
    from scipy.stats import chi2

    cells, seen, want = [], 0.0, 0.0
    for count, share in zip(counts.tolist(), expected.tolist(), strict=True):
        seen, want = seen + count, want + share
        if want >= 10:
            cells.append((seen, want))
            seen = want = 0.0
    cells[-1] = (cells[-1][0] + seen, cells[-1][1] + want)
    return float(chi2.sf(sum((have - due) ** 2 / due for have, due in cells), len(cells) - 1))


# The tables, against the mathematics


@pytest.mark.parametrize("variance", [Fraction(1, 16), Fraction(9, 100), SMALL, Fraction(91, 2) ** 2])
def test_thresholds_are_the_rounded_cumulative_chances(variance: Fraction) -> None:
    table = gaussian.table(variance)
    with mpmath.workprec(500):
        weights = [mpmath.exp(-mpmath.mpf(x * x) / (2 * mpmath.mpf(variance.numerator) / variance.denominator))
                   for x in range(-table.bound, table.bound + 1)]  # fmt: skip
        total = mpmath.fsum(weights)
        for cut, exact in zip(thresholds(table), accumulate(weights), strict=False):
            assert abs(cut - exact / total * UNIT) <= mpmath.mpf(1) / 2 + mpmath.mpf(2) ** -40


@pytest.mark.parametrize("variance", [Fraction(1, 16), Fraction(9, 100), SMALL, Fraction(201, 2) ** 2])
def test_a_table_is_as_near_to_the_ideal_as_stated(variance: Fraction) -> None:
    table = gaussian.table(variance)
    with mpmath.workprec(400):
        twice = 2 * mpmath.mpf(variance.numerator) / variance.denominator
        reach = 2 * table.bound + 10
        weights = {x: mpmath.exp(-mpmath.mpf(x * x) / twice) for x in range(-reach, reach + 1)}
        total = mpmath.fsum(weights.values())
        drawn = dict(zip(range(-table.bound, table.bound + 1), chances(table), strict=True))
        distance = mpmath.fsum(abs(weights[x] / total - mpmath.mpf(drawn.get(x, 0)) / UNIT) for x in weights) / 2
        assert 0 < distance <= gaussian.table_error()


@pytest.mark.parametrize("variance", [Fraction(1, 16), SMALL, Fraction(4**9)])
def test_a_table_is_sorted_symmetric_and_fits_its_words(variance: Fraction) -> None:
    table, cuts = gaussian.table(variance), thresholds(gaussian.table(variance))
    assert cuts == sorted(set(cuts))
    assert cuts[0] > 0
    assert cuts[-1] < UNIT
    assert all(abs(low + high - UNIT) <= 1 for low, high in zip(cuts, reversed(cuts), strict=True))
    assert len(cuts) < 2**14
    assert gaussian.table(variance) is table


def test_a_wide_draw_is_as_near_to_the_ideal_as_stated() -> None:
    variance = Fraction(4**9 + 1)
    fine, coarse = gaussian.parts(variance)
    assert (fine.shift, coarse.shift) == (0, 1)
    small, large = gaussian.table(fine.variance), gaussian.table(coarse.variance)
    bound = small.bound + 2 * large.bound
    drawn = np.zeros(2 * bound + 1, dtype=object)
    wide = np.array(chances(large), dtype=object)
    for i, chance in enumerate(chances(small)):
        drawn[i : i + 2 * len(wide) : 2][: len(wide)] += chance * wide
    half = list(gaussian._weights(variance))
    weights = [*([0] * (bound + 1 - len(half))), *half[:0:-1], *half, *([0] * (bound + 1 - len(half)))]
    total = sum(weights)
    distance = sum(abs(have * total - due * UNIT**2) for have, due in zip(drawn, weights, strict=True))
    # what these weights leave out beyond 2^-140 is again at most one table's error
    assert Fraction(distance, 2 * total * UNIT**2) <= Fraction(sampler_error(variance)) + Fraction(
        gaussian.table_error()
    )


@pytest.mark.parametrize(("fine", "k", "coarse"), [(4, 1, 20), (16, 2, 9), (6, 1, 5)])
def test_the_convolution_bound_holds_and_is_not_idle(fine: int, k: int, coarse: int) -> None:
    first, second = ideal(fine, 60), np.zeros(2 * 60 * 2**k + 1)
    second[:: 2**k] = ideal(coarse, 60)
    drawn = np.convolve(first, second)
    distance = np.abs(drawn - ideal(fine + 4**k * coarse, len(drawn) // 2)).sum() / 2
    bound = gaussian.convolution_error(Fraction(fine), k, Fraction(coarse))
    assert bound / 10 < distance <= bound


@settings(max_examples=200, deadline=None)
@given(VARIANCES)
def test_parts_add_up_exactly_and_the_error_is_below_2_to_the_minus_130(variance: Fraction) -> None:
    plan = gaussian.parts(variance)
    assert sum(part.variance * 4**part.shift for part in plan) == variance
    assert all(Fraction(1, 16) <= part.variance <= 4**9 for part in plan)
    assert 0 < sampler_error(variance) < 2.0**-130
    largest = sum(math.ceil(14 * math.sqrt(part.variance) + 1) << part.shift for part in plan)
    assert largest < 2**60


# The draw: words in, integers out


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([Fraction(1, 16), SMALL, Fraction(4**9)]), st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_a_draw_counts_the_thresholds_below_the_word(variance: Fraction, words: list[int]) -> None:
    table = gaussian.table(variance)
    cuts = thresholds(table)
    after = (1 << 63 << 64) | (1 << 63)  # what FakeWords adds to a word that ties
    want = [bisect_right(cuts, (word << 128) | after) - table.bound for word in words]
    assert discrete_gaussian(variance, len(words), FakeWords(words)).tolist() == want


@pytest.mark.parametrize("at", [0, 3, 43, 44, 80, 87])
def test_a_tie_is_settled_by_two_more_words(at: int) -> None:
    table = gaussian.table(SMALL)
    assert len(table.heads) == 88
    head, rest = int(table.heads[at]), table.rests[at]
    for fresh, passed in [(rest, 1), (rest - 1, 0), (rest + 1, 1)]:
        rng = FakeWords([5 << 60, head, 1 << 63, fresh >> 64, fresh & (2**64 - 1)])
        draws = discrete_gaussian(SMALL, 3, rng)
        same = [i for i in range(88) if int(table.heads[i]) == head and i != at]
        below = sum((i < at) if i in same else int(table.heads[i]) < head for i in range(88))
        assert draws[1] == below + passed - table.bound
        assert draws[0] == bisect_right(thresholds(table), 5 << 188) - table.bound
        assert rng.taken == 5


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_the_outermost_words_reach_the_outermost_values(word: int) -> None:
    table = gaussian.table(Fraction(4**9))
    assert int(table.heads[-1]) == 2**64 - 1
    outermost = discrete_gaussian(4**9, 1, FakeWords([word, word, word]))
    assert outermost.tolist() == [table.bound if word else -table.bound]


def test_a_tie_in_the_coarse_part_moves_by_its_step() -> None:
    fine, coarse = gaussian.parts(Fraction(WIDE))
    table = gaussian.table(coarse.variance)
    at = table.bound + 10
    draws = [
        int(discrete_gaussian(WIDE, 1, FakeWords([1 << 63, int(table.heads[at]), fresh >> 64, fresh % 2**64]))[0])
        for fresh in (table.rests[at] - 1, table.rests[at])
    ]
    assert draws[1] - draws[0] == 1 << coarse.shift == 128
    assert fine.shift == 0


def test_sizes_around_a_chunk_take_one_word_a_part() -> None:
    for size in (0, 1, 65_535, 65_536, 65_537, 150_000):
        rng = FakeWords([])
        draws = discrete_gaussian(WIDE, size, rng)
        assert draws.shape == (size,)
        assert draws.dtype == np.int64
        assert rng.taken == 2 * size
    last = discrete_gaussian(WIDE, 150_000, InsecureRng(3))[-(150_000 % 65_536) :]
    assert abs(last.std() / 45_000 - 1) < 5 / math.sqrt(2 * len(last))


@pytest.mark.parametrize("case", VECTORS["draws"], ids=lambda case: case["variance"])
def test_known_answers(case: dict[str, object]) -> None:
    variance = Fraction(str(case["variance"]))
    assert discrete_gaussian(variance, 16, InsecureRng(int(str(case["seed"])))).tolist() == case["draws"]


def test_variances_that_are_out_of_range_or_not_exact_and_negative_sizes_are_refused() -> None:
    for variance in (0, -1, Fraction(1, 17), 4**56 + 1, Fraction(-1, 2), 10**400):
        for call in (lambda v=variance: discrete_gaussian(v, 1, InsecureRng(0)), lambda v=variance: sampler_error(v)):
            with pytest.raises(ValueError, match="2\\^112"):
                call()
    for inexact in (math.nan, math.inf, 2.0, True, None, "4", np.float64(4)):
        with pytest.raises(ValueError, match="Fraction"):
            discrete_gaussian(inexact, 1, InsecureRng(0))  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        discrete_gaussian(1, -1, InsecureRng(0))


# The statistics, with fixed seeds


@pytest.mark.parametrize("stddev", [Fraction(3, 10), Fraction(1, 2), Fraction(16, 5), Fraction(201, 2)])
def test_draws_follow_the_exact_chances(stddev: Fraction) -> None:
    size, bound = 400_000, math.ceil(12 * stddev)
    draws = discrete_gaussian(stddev**2, size, InsecureRng(11))
    counts = np.bincount(draws + bound, minlength=2 * bound + 1)
    assert p_value(counts, size * ideal(stddev**2, bound)) > 1e-4


@pytest.mark.parametrize("stddev", [513, 45_000])
def test_wide_draws_follow_the_exact_chances_in_bins(stddev: int) -> None:
    size, bound, width = 1_000_000, 8 * stddev, max(1, stddev // 100)
    draws = discrete_gaussian(stddev**2, size, InsecureRng(12))
    starts = np.arange(0, 2 * bound + 1, width)
    expected = size * np.add.reduceat(ideal(stddev**2, bound), starts)
    counts = np.add.reduceat(np.bincount(draws + bound, minlength=2 * bound + 1), starts)
    assert p_value(counts, expected) > 1e-4


@pytest.mark.parametrize("stddev", [45_000, 2**33 + 1, 2**54])
def test_wide_draws_have_the_normal_shape_and_even_low_bits(stddev: int) -> None:
    from scipy.stats import kstest

    size = 200_000
    draws = discrete_gaussian(stddev**2, size, InsecureRng(13))
    assert kstest(draws / stddev, "norm").pvalue > 1e-4
    for modulus in (2, 128, 1024):
        counts = np.bincount(draws % modulus, minlength=modulus)
        assert p_value(counts, np.full(modulus, size / modulus)) > 1e-4


def test_neighbours_are_uncorrelated() -> None:
    draws = discrete_gaussian(WIDE, 1_000_000, InsecureRng(15)) / 45_000
    for lag in (1, 2, 65_536):
        assert abs((draws[lag:] * draws[:-lag]).mean()) < 5 / math.sqrt(len(draws) - lag)


@pytest.mark.parametrize("stddev", [Fraction(1, 2), Fraction(16, 5), Fraction(201, 2), Fraction(45_000)])
def test_the_slow_exact_sampler_agrees(stddev: Fraction) -> None:
    from scipy.stats import ks_2samp

    slow = exact_gaussian(stddev**2, 3_000, InsecureRng(16))
    fast = discrete_gaussian(stddev**2, 100_000, InsecureRng(17))
    assert ks_2samp(slow, fast).pvalue > 1e-4


def test_the_tests_notice_a_wrong_variance() -> None:
    size, bound = 400_000, 40
    draws = discrete_gaussian(SMALL, size, InsecureRng(18))
    counts = np.bincount(draws + bound, minlength=2 * bound + 1)
    assert p_value(counts, size * ideal(SMALL * Fraction(103, 100), bound)) < 1e-6
