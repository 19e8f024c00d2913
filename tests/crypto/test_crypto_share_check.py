"""The check of shares beyond the contract: the formula, its chance of error, and everything crooked that is refused."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crypto.committee import CHALLENGE, CONTEXT
from kit.crypto.insecure import InsecureRng
from numpy.typing import NDArray

from fednode_crypto import Demand, Sealing, Tampered, plan, scheme
from fednode_crypto.encoding import from_bytes, to_bytes
from fednode_crypto.hazmat.ring import mask_block
from fednode_crypto.hazmat.shamir import value_at
from fednode_crypto.ring import share_check
from fednode_crypto.ring.context import ring_context
from fednode_crypto.ring.params import RingParams

RING = scheme("ring")
PARAMS = RingParams.of(plan("ring", Demand(dimension=8, summands=100, value_bound=9_000, holders=5, threshold=4)))
Shares = dict[int, bytes]


def sealed(params: RingParams, seed: int = 1) -> Sealing:
    return RING.sealer(params).seal(np.zeros(params.dimension, dtype=np.int64), InsecureRng(seed), CONTEXT)


def keeper_of(sealing: Sealing) -> share_check.SharedPolynomial:
    return sealing.check.__self__  # type: ignore[attr-defined]


def missed(params: RingParams, shares: Shares, check: bytes, challenge: bytes = CHALLENGE) -> list[int]:
    """The points whose share is refused."""
    found = []
    for point, share in shares.items():
        try:
            RING.check_share(params, share, point, challenge, check)
        except Tampered:
            found.append(point)
    return found


def changed(share: bytes, change: Callable[[NDArray[np.uint64]], object], params: RingParams = PARAMS) -> bytes:
    field = ring_context(params).masked
    words = from_bytes(share, field)
    change(words[0])
    words %= np.uint64(params.share_prime)
    return to_bytes(words, field)


def adding(by: int, at: int) -> Callable[[NDArray[np.uint64]], None]:
    def change(words: NDArray[np.uint64]) -> None:
        words[at] += np.uint64(by)

    return change


def drawn_params(data: st.DataObject) -> RingParams:
    holders, threshold = data.draw(st.sampled_from([(1, 1), (2, 2), (3, 2), (5, 4), (10, 7), (10, 10)]))
    summands = data.draw(st.sampled_from([1, 2, 7, 100, 1_000, 2**20]))
    planned = RingParams.of(plan("ring", Demand(4, summands, 3, holders, threshold)))
    return replace(planned, ring_degree=data.draw(st.sampled_from([4096, 8192])), lanes=1)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_honest_shares_always_pass(data: st.DataObject) -> None:
    params = drawn_params(data)
    sealing, challenge = (
        sealed(params, data.draw(st.integers(0, 2**32))),
        data.draw(st.binary(min_size=32, max_size=32)),
    )
    assert missed(params, sealing.shares, sealing.check(challenge), challenge) == []


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_number_changed_in_one_share_is_found_by_its_holder_alone(data: st.DataObject) -> None:
    params = drawn_params(data)
    sealing, at = sealed(params), data.draw(st.integers(0, params.ring_degree + params.check_rows - 1))
    point, by = data.draw(st.integers(1, params.holders)), data.draw(st.integers(1, params.share_prime - 1))
    shares = {**sealing.shares, point: changed(sealing.shares[point], adding(by, at), params)}
    assert missed(params, shares, sealing.check(CHALLENGE)) == [point]


def test_shares_of_another_secret_are_found_by_those_who_have_them() -> None:
    mine, other = sealed(PARAMS), sealed(PARAMS, seed=2)
    shares = {**mine.shares, 3: other.shares[3], 4: other.shares[4]}
    assert missed(PARAMS, shares, mine.check(CHALLENGE)) == [3, 4]
    assert missed(PARAMS, shares, other.check(CHALLENGE)) == [1, 2, 5]


def test_a_polynomial_of_degree_t_has_no_check_that_all_holders_pass() -> None:
    """Control: the same term, of degree t - 1, and the check of the polynomial with it."""
    sealing, at = sealed(PARAMS), 7
    raised = {j: changed(s, adding(pow(j, 4, PARAMS.share_prime), at)) for j, s in sealing.shares.items()}
    assert missed(PARAMS, raised, sealing.check(CHALLENGE)) == [1, 2, 3, 4, 5]
    # the check through four of the shares, which a client can always compute, is not one for the fifth
    assert missed(PARAMS, raised, through(raised, (1, 2, 3, 4))) == [5]
    lower = {j: changed(s, adding(pow(j, 3, PARAMS.share_prime), at)) for j, s in sealing.shares.items()}
    assert missed(PARAMS, lower, through(lower, (1, 2, 3, 4))) == []


def through(shares: Shares, points: tuple[int, ...]) -> bytes:
    """The check that these t holders accept, whatever their shares are."""
    known, p = ring_context(PARAMS), PARAMS.share_prime
    values = [share_check._combined(PARAMS, CHALLENGE, from_bytes(shares[j], known.masked))[0] for j in points]
    # Gauss over F_p: Vandermonde matrix times coefficients gives the values
    rows = [[pow(j, e, p) for e in range(4)] + [int(v) for v in value] for j, value in zip(points, values, strict=True)]
    for i in range(4):
        inverse = pow(rows[i][i], -1, p)
        rows[i] = [x * inverse % p for x in rows[i]]
        for k in set(range(4)) - {i}:
            rows[k] = [(x - rows[k][i] * y) % p for x, y in zip(rows[k], rows[i], strict=True)]
    numbers = np.array([row[4:] for row in rows], dtype=np.uint64).reshape(1, -1)
    return to_bytes(numbers, known.coefficients)[: PARAMS.check_bytes]


def test_fewer_shares_than_t_and_a_check_fit_every_secret() -> None:
    """Holders 1 to 3 know the check: for another secret there are masks with which all they see is the same."""
    sealing, known, p = sealed(PARAMS), ring_context(PARAMS), PARAMS.share_prime
    check, seen = sealing.check(CHALLENGE), {j: sealing.shares[j] for j in (1, 2, 3)}
    # a polynomial of degree 3 that is 0 at 1, 2, 3 and 1 at 0, times a change of the secret and of the masks
    change = np.arange(1, known.masked.degree + 1, dtype=np.uint64) % np.uint64(p)
    combined = share_check._combined(PARAMS, CHALLENGE, np.r_[change[:4096], np.zeros(12, np.uint64)][None])
    change[4096:] = (p - combined[0]) % p
    assert not share_check._combined(PARAMS, CHALLENGE, change[None]).any()
    bump = {j: (1 - j) * (2 - j) * (3 - j) * pow(6, -1, p) % p for j in range(1, 6)}
    others = {
        j: changed(s, lambda w, j=j: np.add(w, change * np.uint64(bump[j]), out=w)) for j, s in sealing.shares.items()
    }
    assert {j: others[j] for j in seen} == seen and all(others[j] != sealing.shares[j] for j in (4, 5))
    assert missed(PARAMS, others, check) == []


def test_control_two_checks_of_one_sealing_would_give_the_secret_away() -> None:
    """R f + g and R' f + g differ by (R - R') f: what a sealing refuses to say."""
    values = np.arange(PARAMS.ring_degree + 12, dtype=np.uint64)[None] % np.uint64(PARAMS.share_prime)
    again = values.copy()
    again[0, 4096:] += np.uint64(1)
    of_one = [share_check._combined(PARAMS, c, values).astype(np.int64) for c in (CHALLENGE, CHALLENGE[::-1])]
    of_other = [share_check._combined(PARAMS, c, again).astype(np.int64) for c in (CHALLENGE, CHALLENGE[::-1])]
    p = PARAMS.share_prime
    assert np.array_equal((of_one[0] - of_one[1]) % p, (of_other[0] - of_other[1]) % p)
    assert not np.array_equal(of_one[0], of_other[0])


@pytest.mark.parametrize("summands", [1, 100, 1_000, 2**20])
def test_combination_is_the_formula_term_by_term_also_with_the_largest_numbers(summands: int) -> None:
    params = replace(RingParams.of(plan("ring", Demand(4, summands, 3, 3, 2))), ring_degree=8192, lanes=1)
    p, n, rows = params.share_prime, 8192, params.check_rows
    values = np.full((1, n + rows), p - 1, dtype=np.uint64)
    matrix = [mask_block((CHALLENGE,), row, ring_context(params).shares)[0].tolist() for row in range(rows)]
    expected = [(sum(x * (p - 1) for x in row) + p - 1) % p for row in matrix]
    assert share_check._combined(params, CHALLENGE, values)[0].tolist() == expected
    assert (p - 1) ** 2 * n + p < 2**50


def test_junk_truncated_and_unused_bits_are_refused() -> None:
    sealing = sealed(PARAMS)
    share, check = sealing.shares[2], sealing.check(CHALLENGE)
    bits = PARAMS.share_prime.bit_length()
    spare_share = 8 * PARAMS.share_bytes - (4096 + PARAMS.check_rows) * bits
    assert spare_share > 0
    for bad in (InsecureRng(3).bytes(len(share)), share[:-1] + bytes([share[-1] | 128]), share[:-8], b"", "text", None):
        assert missed(PARAMS, {2: bad}, check) == [2]
    for bad in (
        InsecureRng(3).bytes(len(check)),
        check[:-1],
        check + b"\0",
        bytes(len(check)),
        b"\xff" * len(check),
        None,
    ):
        assert missed(PARAMS, {2: share}, bad) == [2]
    assert missed(PARAMS, {2: share}, check) == []
    with pytest.raises(ValueError):
        RING.check_share(PARAMS, share, 2, CHALLENGE[:31], check)


def test_unused_bits_of_a_check_are_refused() -> None:
    params = next(
        p
        for t in range(1, 6)
        for p in [RingParams.of(plan("ring", Demand(4, 1_000, 3, 5, t)))]
        if p.threshold * p.check_rows * p.share_prime.bit_length() % 8
    )
    sealing = sealed(params)
    check = sealing.check(CHALLENGE)
    assert missed(params, sealing.shares, check) == []
    assert missed(params, sealing.shares, check[:-1] + bytes([check[-1] | 128])) == list(sealing.shares)


def test_chance_to_pass_is_one_in_p_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positive control of the count: with one row, one challenge in about p lets a crooked share pass."""
    params = RingParams.of(plan("ring", Demand(4, 1, 3, 3, 2)))
    p = params.share_prime
    assert p == 251
    monkeypatch.setattr(RingParams, "check_rows", property(lambda _: 1))
    ring_context.cache_clear()
    try:
        sealing = sealed(params)
        polynomial, rng = keeper_of(sealing)._polynomial, InsecureRng(8)
        crooked, passed = changed(sealing.shares[1], adding(1, 5), params), 0
        for challenge in (rng.bytes(32) for _ in range(4_000)):
            check = share_check.SharedPolynomial(params, polynomial).check(challenge)
            passed += missed(params, {1: crooked}, check, challenge) == []
    finally:
        ring_context.cache_clear()
    # 16 expected: the chance of fewer than 4 or more than 40 is below 10^-4
    assert 4 <= passed <= 40


@pytest.mark.parametrize(
    ("summands", "prime", "rows", "share", "check"),
    [
        (10, 1021, 13, 5_144, 65),
        (100, 2039, 12, 5_656, 66),
        (1_000, 8191, 10, 6_680, 65),
        (2**20, 262_139, 8, 9_240, 72),
    ],
)
def test_sizes(summands: int, prime: int, rows: int, share: int, check: int) -> None:
    params = replace(RingParams.of(plan("ring", Demand(4, summands, 3, 5, 4))), ring_degree=4096, lanes=1)
    assert (params.share_prime, params.check_rows) == (prime, rows)
    assert prime**rows >= 2**128 > prime ** (rows - 1)
    assert (params.share_bytes, params.check_bytes) == (share, check)


def test_polynomial_of_a_sealing_is_what_its_shares_lie_on_and_forgotten_with_the_check() -> None:
    sealing, field = sealed(PARAMS), ring_context(PARAMS).masked
    keeper = keeper_of(sealing)
    for point, share in sealing.shares.items():
        assert to_bytes(value_at(keeper._polynomial, field, point), field) == share
    sealing.check(CHALLENGE)
    assert keeper._polynomial.size == 0
