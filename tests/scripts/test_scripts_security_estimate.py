"""The estimator against figures that others published."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode_crypto.hazmat.gaussian import convolution_error
from scripts import security_estimate as estimate
from scripts.security_estimate import Lwe, cheapest, dual, primal, ring_lwe

KYBER = math.log2(3329)
NEWHOPE = math.log2(12289)


@pytest.mark.parametrize(
    ("lwe", "block_size", "bits"),
    [
        # lattice-estimator, README and "Estimating the difficulty of breaking lattice-based cryptography" (Albrecht)
        (Lwe(512, KYBER, math.sqrt(1.5), math.sqrt(1.5), 512), 406, 118.6),
        (Lwe(768, KYBER, 1, 1, 768), 624, 182.2),
    ],
)
def test_kyber_as_the_lattice_estimator_has_it(lwe, block_size, bits):
    attack = primal(lwe)
    assert attack.block_size == block_size
    assert attack.core_svp == pytest.approx(bits, abs=0.05)


@pytest.mark.parametrize(
    ("lwe", "block_size", "bits"),
    [
        # table 1 of "Post-quantum key exchange - a new hope" (2016): NewHope, BCNS
        (Lwe(1024, NEWHOPE, math.sqrt(8), math.sqrt(8), 2048), 967, 282),
        (Lwe(1024, 32, 3.192, 3.192, 2048), 296, 86),
    ],
)
def test_newhope_and_bcns_as_their_paper_has_them(lwe, block_size, bits):
    assert primal(lwe).block_size == pytest.approx(block_size, abs=1)
    assert primal(lwe).core_svp == pytest.approx(bits, abs=1)
    assert 0 <= primal(lwe).core_svp - dual(lwe).core_svp < 3


@pytest.mark.parametrize(("degree", "bits"), [(4096, 109), (8192, 218)])
def test_the_rows_of_the_standard_have_128_bits_in_its_model_and_fewer_in_core_svp(degree, bits):
    ternary = ring_lwe(degree, bits, estimate.TERNARY, 3.2)
    assert round(primal(ternary).standard) == 128
    assert 94 < cheapest(ternary).core_svp < 96
    assert primal(ring_lwe(degree, bits + 4, estimate.TERNARY, 3.2)).standard < 127


@pytest.mark.parametrize(("degree", "bits"), estimate.RINGS)
def test_the_samples_at_hand_do_not_bind(degree, bits):
    lwe = ring_lwe(degree, bits, 3.2, 3.2)
    more = Lwe(lwe.dimension, lwe.modulus_bits, lwe.secret, lwe.error, 50 * degree)
    assert primal(more) == primal(lwe) and dual(more) == dual(lwe)


def test_fewer_samples_than_are_best_do_not_make_it_easier():
    lwe = ring_lwe(4096, 109, 3.2, 3.2)
    few = Lwe(lwe.dimension, lwe.modulus_bits, lwe.secret, lwe.error, 1000)
    assert primal(few).samples == 1000
    assert primal(few).block_size > primal(lwe).block_size
    assert dual(few).core_svp > dual(lwe).core_svp


@settings(max_examples=15, deadline=None)
@given(
    degree=st.sampled_from([1024, 2048, 4096]),
    bits=st.integers(27, 60),
    error=st.floats(2, 10),
    wider=st.floats(1.5, 4),
)
def test_a_larger_modulus_is_easier_and_a_wider_error_is_harder(degree, bits, error, wider):
    lwe = ring_lwe(degree, bits, error, error)
    assert primal(ring_lwe(degree, bits + 4, error, error)).block_size < primal(lwe).block_size
    assert primal(ring_lwe(degree, bits, error, error * wider)).block_size >= primal(lwe).block_size
    assert cheapest(lwe).core_svp <= primal(lwe).core_svp < primal(lwe).one_sieve < primal(lwe).standard


def test_the_largest_modulus_for_so_many_bits_is_the_largest():
    found = estimate.largest_modulus(4096, 3.2, 128)
    assert cheapest(ring_lwe(4096, found, 3.2, 3.2)).core_svp >= 128
    assert cheapest(ring_lwe(4096, found + 1, 3.2, 3.2)).core_svp < 128


def test_what_cannot_be_priced_is_refused():
    with pytest.raises(ValueError, match="no block size"):
        primal(Lwe(100_000, 3, 1.0, 1.0, 100_000))


def test_the_dual_attack_pays_for_vectors_that_one_sieve_does_not_give():
    attack = dual(ring_lwe(4096, 109, 3.2, 3.2))
    assert attack.core_svp == estimate.SIEVE * attack.block_size + attack.repeats
    assert attack.repeats >= 0


def test_widths_under_the_hint():
    assert estimate.proven_width(2) == pytest.approx(3.2)
    assert [round(estimate.proven_width(h), 3) for h in (3, 10)] == [3.695, 4.293]
    assert [round(estimate.conditional_width(h), 3) for h in (2, 3, 10)] == [4.525, 5.226, 6.072]
    assert all(estimate.proven_width(h) < estimate.conditional_width(h) < estimate.WIDTH for h in range(2, 50))
    assert estimate.proven_width(2, 12.8) == pytest.approx(6.4)


def test_the_conditional_width_is_that_of_the_discrete_gaussian():
    # two draws of width 1.5 that add up to 2, weighed one by one
    weights = {s: math.exp(-(s**2 + (2 - s) ** 2) / (2 * 1.5**2)) for s in range(-40, 41)}
    total = sum(weights.values())
    mean = sum(s * w for s, w in weights.items()) / total
    variance = sum((s - mean) ** 2 * w for s, w in weights.items()) / total
    assert mean == pytest.approx(1)
    assert math.sqrt(variance) == pytest.approx(estimate.conditional_width(2, 1.5), rel=1e-4)


def test_a_conditional_draw_splits_into_a_plain_one_and_one_around_the_centre():
    # the step of the proof, at a width where the loss shows: N(0, r) + N(c, r) against N(c, 2 r), r = 0.8^2
    width, centre = 0.8, 0.37
    span = range(-30, 31)

    def normalised(weights):
        total = sum(weights.values())
        return {x: w / total for x, w in weights.items()}

    plain = normalised({x: math.exp(-(x**2) / (2 * width**2)) for x in span})
    rest = normalised({x: math.exp(-((x - centre) ** 2) / (2 * width**2)) for x in span})
    whole = normalised({x: math.exp(-((x - centre) ** 2) / (4 * width**2)) for x in span})
    added = {x: sum(plain[y] * rest.get(x - y, 0.0) for y in span) for x in span}
    distance = sum(abs(added[x] - whole[x]) for x in span) / 2
    assert 0 < distance < 2 ** estimate.split_loss(width)


def test_the_loss_is_the_convolution_error_of_the_sampler():
    width = estimate.proven_width(2)
    assert 2 ** estimate.split_loss(width) == pytest.approx(convolution_error(width**2, 0, width**2), rel=1e-3)


def test_it_prints_a_markdown_table(capsys):
    estimate.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 16
    assert {line.count("|") for line in lines} == {11}
