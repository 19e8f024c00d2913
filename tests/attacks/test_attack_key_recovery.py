"""Key recovery from released aggregates (Li, Micciancio, "On the security of homomorphic encryption on approximate
numbers", 2021).

Attacker: an honest but curious node with ciphertexts, public parameters, the released sum (under `ring` also the sum of
the secrets). Success: a secret key, or one client's update. It works where the release reveals the error, since
c0 + c1 s = message + error is then linear in s. It fails for `bfv` and `ring`, whose sums are exact integers. Control:
TenSEAL CKKS as commonly configured (8192, [60, 40, 40], 2^40, float64 output) loses its key to one pair of chunks; and
the same algebra gives the secrets of `bfv` and `ring` when it is given the errors.
"""

from math import prod

import numpy as np
import pytest
from kit.crypto.algebra import centred, interpolated, unmasked
from kit.crypto.bfv_payload import slot_places
from kit.crypto.committee import CONTEXT, BoxedCommittee, keyed, updates_for
from kit.crypto.insecure import InsecureRng
from numpy.typing import NDArray

from fednode_crypto import Demand, Tampered, plan, scheme
from fednode_crypto.bfv.context import bfv_context
from fednode_crypto.bfv.slots import from_slots, to_slots
from fednode_crypto.encoding import from_bytes
from fednode_crypto.hazmat.ntt import Ring
from fednode_crypto.hazmat.ring import mask_block
from fednode_crypto.hazmat.tenseal_bfv import toolbox
from fednode_crypto.noise import discrete_gaussian
from fednode_crypto.ring.context import public_keys, ring_context
from fednode_crypto.ring.params import MASK_VARIANCE

Words = NDArray[np.uint64]
CLIENTS = 4


def solved(ring: Ring, known: Words, factor: Words) -> Words:
    """x with factor x = known, all in NTT form: (r, n), place by place."""
    out = np.zeros_like(known)
    for row, p in enumerate(ring.primes):
        pairs = zip(known[row].tolist(), factor[row].tolist(), strict=True)
        out[row] = np.array([k * pow(f, -1, p) % p if f else 0 for k, f in pairs], dtype=np.uint64)
    return out


def small(ring: Ring, words: Words) -> NDArray[np.int64]:
    """The first row, in coefficients, centred."""
    copy = words.copy()
    ring.inverse(copy)
    return centred(copy[0], ring.primes[0])


# --- control: CKKS


def residues_of(polynomial, size: int, rows: int, at: int = 0) -> list[list[int]]:
    return [[polynomial[(at + j) * size + i] for i in range(size)] for j in range(rows)]


def ckks_secret(modulus: tuple[int, ...], pair, messages) -> list[list[int]]:
    """The key from two ciphertexts of reals, whose plaintexts are twice their real parts: two equations a pair."""
    rows = []
    for j, q in enumerate(modulus):
        (a0, a1), (b0, b1) = ((c[0][j], c[1][j]) for c in pair)
        size, found = len(a0), [0] * len(a0)
        for i in range(size // 2):
            k = size - 1 - i
            ra, rb = messages[0][j][i] - a0[i] - a0[k], messages[1][j][i] - b0[i] - b0[k]
            inverse = pow(a1[i] * b1[k] - a1[k] * b1[i], -1, q)
            found[i] = (ra * b1[k] - a1[k] * rb) * inverse % q
            found[k] = (a1[i] * rb - ra * b1[i]) * inverse % q
        rows.append(found)
    return rows


def test_control_ckks_as_commonly_configured_loses_its_key():
    tenseal = pytest.importorskip("tenseal")
    from tenseal import sealapi

    size, scale = 8192, 2.0**40
    secret = tenseal.context(tenseal.SCHEME_TYPE.CKKS, size, coeff_mod_bit_sizes=[60, 40, 40])
    secret.global_scale = scale
    updates = np.random.default_rng(1).normal(0, 0.01, (3, size))
    sealed = [tenseal.ckks_vector(secret, update.tolist()) for update in updates]
    released = np.array((sealed[0] + sealed[1] + sealed[2]).decrypt())
    # from here on the attacker: a public context, the summed ciphertexts, what was released
    public = tenseal.context_from(secret.serialize())
    assert not public.has_secret_key()
    tools = public.seal_context().data
    modulus = tuple(m.value() for m in tools.first_context_data().parms().coeff_modulus())
    encoder, messages = sealapi.CKKSEncoder(tools), []
    for half in (released[: size // 2], released[size // 2 :]):
        plain = sealapi.Plaintext()
        encoder.encode((2 * half).tolist(), scale, plain)
        messages.append(residues_of(plain, size, len(modulus)))
    total = tenseal.ckks_vector_from(public, (sealed[0] + sealed[1] + sealed[2]).serialize()).ciphertext()
    pair = [[residues_of(c, size, len(modulus), at=part * len(modulus)) for part in (0, 1)] for c in total]
    found = ckks_secret(modulus, pair, messages)
    assert found == residues_of(secret.secret_key().data.data(), size, len(modulus))


# --- bfv


@pytest.fixture(scope="module")
def bfv():
    params = plan("bfv", Demand(dimension=200, summands=CLIENTS, value_bound=2_000, holders=3, threshold=2))
    everyone = keyed(scheme("bfv"), params, seed=3)
    updates = updates_for(params, CLIENTS, seed=2)
    return everyone, updates, everyone.sealed(updates)


def joint_secret(everyone) -> Words:
    """What nobody has: the sum of all s_j, in NTT form, from two holders' shares."""
    known = bfv_context(everyone.params).data
    return interpolated({point: everyone.shares[point].words(everyone.params) for point in (1, 2)}, known)


def in_ntt(known: Ring, words: Words) -> Words:
    copy = np.ascontiguousarray(words).copy()
    known.forward(copy)
    return copy


def scaled_message(params, values: NDArray[np.int64]) -> Words:
    """round(q m / t), in NTT form: what an error-free ciphertext would hold."""
    known = bfv_context(params)
    q, t = prod(known.data.primes), params.plain_modulus
    message = np.zeros((1, params.ring_degree), dtype=np.uint64)
    message[0, slot_places(params.ring_degree)] = np.mod(to_slots(values, params)[0], t).astype(np.uint64)
    known.slots.inverse(message)
    scaled = [(2 * q * int(m) + t) // (2 * t) for m in message[0]]
    return in_ntt(known.data, np.stack([np.array([m % p for m in scaled], dtype=np.uint64) for p in known.data.primes]))


def bfv_opens(params, payload: bytes, secret: Words, values: NDArray[np.int64]) -> bool:
    known = bfv_context(params)
    c0, c1 = (in_ntt(known.data, half) for half in from_bytes(payload, known.data, (params.blocks, 2))[0])
    known.data.multiply(c1, secret)
    known.data.add(c0, c1)
    known.data.inverse(c0)
    try:
        return bool(np.array_equal(from_slots(toolbox(known.shape).decode(c0)[None], params), values))
    except Tampered:
        return False


def test_bfv_the_same_algebra_gives_no_secret_and_no_update(bfv):
    everyone, updates, sealings = bfv
    params, total = everyone.params, everyone.summed(sealings)
    known, truth = bfv_context(params).data, joint_secret(everyone)
    released = everyone.opened(sealings)
    assert np.array_equal(released, sum(updates))
    c0, c1 = (in_ntt(known, half) for half in total.words[0])
    target = scaled_message(params, released)
    known.subtract(target, c0)
    guess = solved(known, target, c1)
    assert np.count_nonzero(guess == truth) <= 2
    assert np.abs(small(known, truth)).max() <= 3 < np.median(np.abs(small(known, guess))) / 2**30
    rounded = in_ntt(known, known.residues(np.sign(small(known, guess))))
    for secret in (guess, rounded):
        assert not any(bfv_opens(params, s.payload, secret, u) for s, u in zip(sealings, updates, strict=True))


def test_control_bfv_with_the_error_shown_the_same_algebra_has_the_key(bfv):
    everyone, updates, sealings = bfv
    params, total = everyone.params, everyone.summed(sealings)
    known, truth = bfv_context(params).data, joint_secret(everyone)
    c0, c1 = (in_ntt(known, half) for half in total.words[0])
    leaked = c1.copy()
    known.multiply(leaked, truth)
    known.add(leaked, c0)
    # the attacker sees message + error, as CKKS shows it, and takes c0 away
    known.subtract(leaked, c0)
    assert np.array_equal(solved(known, leaked, c1)[c1 != 0], truth[c1 != 0])
    assert all(bfv_opens(params, s.payload, truth, u) for s, u in zip(sealings, updates, strict=True))


# --- ring


@pytest.fixture(scope="module")
def ring():
    params = plan("ring", Demand(dimension=200, summands=CLIENTS, value_bound=9_000, holders=3, threshold=2))
    assert params.lanes == 1
    everyone = BoxedCommittee(scheme("ring"), params)
    updates = updates_for(params, CLIENTS, seed=2)
    return everyone, updates, everyone.sealed(updates)


def drawn(params, client: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The secret and the error of a client, as `Committee.sealed` draws them."""
    rng, n = InsecureRng(client), params.ring_degree
    return discrete_gaussian(MASK_VARIANCE, n, rng), discrete_gaussian(MASK_VARIANCE, n, rng)


def divided(params, payload: bytes, rest: NDArray[np.int64]) -> Words:
    """(c - rest) / a, in NTT form: the secret, if `rest` is the error and the message."""
    known = ring_context(params).data
    c, taken = from_bytes(payload, known, (params.blocks,))[0], known.residues(rest)
    known.subtract(c, taken)
    known.forward(c)
    return solved(known, c, mask_block(public_keys(params, CONTEXT), 0, known))


def ring_opens(params, payload: bytes, secret: NDArray[np.int64], values: NDArray[np.int64]) -> bool:
    found = unmasked(scheme("ring").zero(params).add(payload), CONTEXT, secret)
    return found is not None and np.array_equal(found, values)


def placed(params, values: NDArray[np.int64]) -> NDArray[np.int64]:
    out = np.zeros(params.ring_degree, dtype=np.int64)
    out[: params.dimension] = values << params.shift
    return out


def test_ring_the_same_algebra_gives_no_secret_and_no_update(ring):
    everyone, updates, sealings = ring
    params, released = everyone.params, everyone.opened(sealings)
    known = ring_context(params).data
    opened = sum(drawn(params, client)[0] for client in range(CLIENTS))
    # the best single values that follow from what is opened: nothing, a client's part of the sum, everything
    means = [np.zeros_like(released), released // CLIENTS, released]
    for client, (sealing, update) in enumerate(zip(sealings, updates, strict=True)):
        truth, _ = drawn(params, client)
        for mean in means:
            guess = divided(params, sealing.payload, placed(params, mean))
            coefficients = small(known, guess)
            assert np.mean(coefficients == truth) < 0.01 and np.median(np.abs(coefficients)) > 2**40
        for secret in (opened, np.rint(opened / CLIENTS).astype(np.int64), np.zeros_like(opened)):
            assert not ring_opens(params, sealing.payload, secret, update)


def test_ring_what_rounding_the_hint_gives_is_as_far_off_as_the_theory_says(ring):
    """Given S, one secret is left with standard deviation 6.4 sqrt((h - 1) / h): the guess S / h is no better."""
    params = ring[0].params
    secrets = [drawn(params, client)[0] for client in range(CLIENTS)]
    off = np.concatenate([s - sum(secrets) / CLIENTS for s in secrets])
    assert 0.95 < off.std() / (6.4 * np.sqrt((CLIENTS - 1) / CLIENTS)) < 1.05
    assert np.mean(np.rint(off) == 0) < 0.12


def test_control_ring_with_error_and_message_shown_the_same_algebra_has_the_secret(ring):
    everyone, updates, sealings = ring
    params = everyone.params
    for client in range(CLIENTS):
        secret, error = drawn(params, client)
        found = divided(params, sealings[client].payload, error + placed(params, updates[client]))
        assert np.array_equal(small(ring_context(params).data, found), secret)
        assert ring_opens(params, sealings[client].payload, secret, updates[client])


def test_control_ring_alone_in_its_sum_a_client_has_no_secret_left(ring):
    everyone, updates, sealings = ring
    opened = everyone.opened(sealings[:1])
    assert np.array_equal(opened, updates[0])
    assert ring_opens(everyone.params, sealings[0].payload, drawn(everyone.params, 0)[0], opened)
