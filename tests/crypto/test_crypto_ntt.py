"""Residue arithmetic against plain Python integers, and packing of bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crypto.insecure import FakeWords, InsecureRng

from fednode_crypto.hazmat import bits
from fednode_crypto.hazmat.modular import is_prime, largest_primes, seal_primes
from fednode_crypto.hazmat.moduli import moduli
from fednode_crypto.hazmat.ntt import Ring, ring
from fednode_crypto.hazmat.uniform import public_polynomial, ternary, uniform_rows
from fednode_crypto.ring.params import PRIME_BITS


def small_ring(degree: int, bits: tuple[int, ...]) -> Ring:
    return ring(degree, seal_primes(degree, bits))


def schoolbook(a: list[int], b: list[int], prime: int) -> list[int]:
    n = len(a)
    out = [0] * n
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            sign = 1 if i + j < n else -1
            out[(i + j) % n] = (out[(i + j) % n] + sign * x * y) % prime
    return out


@pytest.mark.parametrize("bits", [(60, 60), (30, 45, 60), (20,)])
@pytest.mark.parametrize("degree", [2, 8, 64])
def test_product_is_the_schoolbook_one(degree: int, bits: tuple[int, ...]) -> None:
    r = small_ring(degree, bits)
    a, b = (uniform_rows(r.primes, (degree,), InsecureRng(i)) for i in (1, 2))
    expected = [schoolbook(x.tolist(), y.tolist(), p) for x, y, p in zip(a, b, r.primes, strict=True)]
    r.forward(a)
    r.forward(b)
    r.multiply(a, b)
    r.inverse(a)
    assert a.tolist() == expected


def test_extreme_residues_survive() -> None:
    r = small_ring(8192, (60, 60, 45))
    a = np.broadcast_to(r.q[:, None] - np.uint64(1), (3, 8192)).copy()
    b = a.copy()
    r.forward(b)
    assert (b < r.q[:, None]).all()
    r.inverse(b)
    assert np.array_equal(a, b)
    r.multiply(b, a)
    assert (b == 1).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(-(2**70), 2**70))
def test_sums_and_multiples_are_exact(seed: int, weight: int) -> None:
    r = small_ring(16, (60, 33))
    a, b = (uniform_rows(r.primes, (2, 16), InsecureRng(seed + i)) for i in (0, 1))
    total, difference = a.copy(), a.copy()
    r.add_scaled(total, b, weight)
    r.subtract(difference, b)
    for p, x, y, s, d in zip(r.primes, *(v.swapaxes(0, 1) for v in (a, b, total, difference)), strict=True):
        pairs = list(zip(x.ravel().tolist(), y.ravel().tolist(), strict=True))
        assert s.ravel().tolist() == [(u + weight * v) % p for u, v in pairs]
        assert d.ravel().tolist() == [(u - v) % p for u, v in pairs]
    r.add(difference, b)
    assert np.array_equal(difference, a)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-(2**99), 2**99), min_size=8, max_size=8), st.integers(1, 2**40))
def test_turns_are_the_fraction_of_the_modulus(integers: list[int], factor: int) -> None:
    r = small_ring(8, (50, 50))
    q = r.primes[0] * r.primes[1]
    a = np.array([[[v % p for v in integers] for p in r.primes]], dtype=np.uint64)
    for found, v in zip(r.turns(a, factor)[0].tolist(), integers, strict=True):
        low = ((factor * v % q) * 2**64 // q - found) % 2**64
        assert low <= 2 * len(r.primes)


def test_rows_must_match_the_ring() -> None:
    r = small_ring(16, (60, 33))
    for bad in (np.zeros((3, 16), dtype=np.uint64), np.zeros((2, 32), dtype=np.uint64)[:, ::2]):
        with pytest.raises(ValueError):
            r.forward(bad)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 63), min_size=1, max_size=3), st.integers(1, 300), st.integers(0, 2**32))
def test_bits_pack_end_to_end(sizes: list[int], count: int, seed: int) -> None:
    r, of = 2 * len(sizes), np.array(sizes, dtype=np.int64)
    rows = (
        InsecureRng(seed).words(r * count).reshape(r, count)
        >> np.uint64(64) - np.resize(of, r).astype(np.uint64)[:, None]
    )
    packed = bits.pack(rows, of)
    numbers = [
        sum(int(w) << (size * i) for i, w in enumerate(row))
        for size, row in zip(np.resize(of, r).tolist(), rows, strict=True)
    ]
    expected = [
        n.to_bytes(8 * -(-size * count // 64), "little")
        for size, n in zip(np.resize(of, r).tolist(), numbers, strict=True)
    ]
    assert packed.astype("<u8").tobytes() == b"".join(expected)
    found = np.zeros_like(rows)
    bits.unpack(packed, of, found)
    assert np.array_equal(found, rows)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 61), min_size=1, max_size=3), st.integers(1, 200), st.integers(0, 2**32))
def test_folding_is_unpacking_and_adding(sizes: list[int], count: int, seed: int) -> None:
    primes = tuple(largest_primes(1, size, 1)[0] for size in sizes)
    m = moduli(count, primes)
    total, a = (uniform_rows(primes, (2, count), InsecureRng(seed + i)) for i in (0, 1))
    expected, packed = total.copy(), bits.pack(m.rows(a), m.bits)
    m.add(expected, a)
    assert bits.in_range(packed, m.bits, m.q, count)
    bits.fold(m.rows(total), packed, m.bits, m.q)
    assert np.array_equal(total, expected)
    for row, size, p in zip(m.rows(a), 2 * sizes, 2 * primes, strict=True):
        kept, row[seed % count] = row[seed % count], p
        assert not bits.in_range(bits.pack(m.rows(a), m.bits), m.bits, m.q, count) or p >> size
        row[seed % count] = kept


def test_primes_are_prime_and_in_seals_order() -> None:
    sieve = [n for n in range(2, 2000) if all(n % d for d in range(2, int(n**0.5) + 1))]
    assert [n for n in range(2000) if is_prime(n)] == sieve
    assert not is_prime(3215031751)  # a strong pseudoprime to bases 2, 3, 5, 7
    # what CoeffModulus::Create(8192, {60, 60, 60, 38}) gives in the SEAL of TenSEAL 0.3.18
    assert seal_primes(8192, (60, 60, 60, 38)) == (
        1152921504606683137,
        1152921504606748673,
        1152921504606830593,
        274877562881,
    )
    with pytest.raises(ValueError, match="5 primes"):
        largest_primes(8192, 15, 5)


def test_draws_are_in_range_and_even() -> None:
    rows = uniform_rows((97, 12289), (3, 5_000), InsecureRng(1))
    assert rows.shape == (3, 2, 5_000)
    assert rows[:, 0].max() == 96
    assert abs(rows[:, 1].astype(float).mean() - 6144) < 120
    counts = np.bincount(ternary(30_000, InsecureRng(2)) + 1)
    assert counts.size == 3
    assert np.abs(counts - 10_000).max() < 400
    assert ternary(2, FakeWords([2**64 - 1, 0, 1])).tolist() == [-1, 0]


def test_public_polynomial_is_a_function_of_its_label() -> None:
    primes = seal_primes(64, (60, 33))
    a = public_polynomial(primes, 64, b"task")
    assert np.array_equal(a, public_polynomial(primes, 64, b"task"))
    assert (a < np.array(primes, dtype=np.uint64)[:, None]).all()
    assert not (a == public_polynomial(primes, 64, b"tasl")).any(axis=1).all()
    assert a[0].tolist() != a[1].tolist()


@pytest.mark.parametrize("degree", [4096, 8192])
def test_transform_is_seals_for_the_primes_of_scheme_ring(degree: int) -> None:
    from tenseal import sealapi

    sizes = list(PRIME_BITS[degree])
    known = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.BFV)
    known.set_poly_modulus_degree(degree)
    known.set_coeff_modulus(sealapi.CoeffModulus.Create(degree, sizes))
    known.set_plain_modulus(sealapi.PlainModulus.Batching(degree, 20))
    context = sealapi.SEALContext(known, True, sealapi.SEC_LEVEL_TYPE.TC128)
    theirs = sealapi.Plaintext("7FFx^5 + 3x^2 + 12")
    sealapi.Evaluator(context).transform_to_ntt_inplace(theirs, context.key_parms_id())
    r = ring(degree, seal_primes(degree, tuple(sizes)))
    ours = np.zeros((len(sizes), degree), dtype=np.uint64)
    ours[:, [5, 2, 0]] = (0x7FF, 3, 0x12)
    r.forward(ours)
    assert [theirs.data(i) for i in range(theirs.coeff_count())] == ours.reshape(-1).tolist()
