"""Narrow seeds: masks and noise from a generator that can be in too few states.

Attacker: anyone who sees one payload and can try every seed. Success: fewer than 128 bits decide what a client draws.
It fails: each generator of a real run is keyed by 32 bytes of the operating system, all of whose bits vary and reach
AES-256; it takes no seed. Control: Flower's `pseudo_rand_gen`, as installed, folds a 256-bit secret to 32 bits, of
which at most 28 vary; two secrets with the same fold give the same mask.
"""

import base64
import inspect
import os
from types import SimpleNamespace

import numpy as np
import pytest
from kit.crypto.insecure import InsecureRng
from numpy.typing import NDArray

from fednode_clients.membership import MemberParts
from fednode_crypto import Demand, SystemRng, plan, scheme, system_rng
from fednode_crypto.identity import BoxKey, SigningKey

INSTANCES = 200


@pytest.fixture
def spy(monkeypatch):
    """`given` by the operating system, and the `keys` and nonces of the cipher."""
    noted, urandom, aes_ctr = SimpleNamespace(given=[], keys=[]), os.urandom, system_rng.aes_ctr

    def given(count: int) -> bytes:
        noted.given.append(urandom(count))
        return noted.given[-1]

    def keyed(key: bytes, nonce: bytes):
        noted.keys.append((key, nonce))
        return aes_ctr(key, nonce)

    monkeypatch.setattr("fednode_crypto.system_rng.os.urandom", given)
    monkeypatch.setattr("fednode_crypto.system_rng.aes_ctr", keyed)
    return noted


def bits_of(values: list[bytes]) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(b"".join(values), dtype=np.uint8).reshape(len(values), -1), axis=1)


def varying_bits(values: list[bytes]) -> int:
    """How many bits take both values."""
    bits = bits_of(values)
    return int((bits.any(axis=0) & ~bits.all(axis=0)).sum())


def test_every_generator_is_keyed_by_256_fresh_bits(spy):
    first = [SystemRng().bytes(16) for _ in range(INSTANCES)]
    keys = [key for key, _ in spy.keys]
    assert len(set(keys)) == len(set(first)) == INSTANCES
    assert {len(key) for key in keys} == {32} and {len(nonce) for _, nonce in spy.keys} == {16}
    assert varying_bits(keys) == 256 and varying_bits([nonce for _, nonce in spy.keys]) == 128
    assert np.abs(bits_of(keys).mean(axis=0) - 0.5).max() < 6 * 0.5 / np.sqrt(INSTANCES)


def test_nothing_narrows_the_bits_on_their_way_to_the_cipher(spy):
    for _ in range(5):
        SystemRng().words(3)
    assert spy.given == [part for pair in spy.keys for part in pair]


def test_a_seal_draws_from_the_key_and_from_nothing_else(spy):
    params = plan("ring", Demand(dimension=30, summands=4, value_bound=900, holders=3, threshold=2))
    sealer, values = scheme("ring").sealer(params), np.zeros(30, dtype=np.int64)
    payloads = [sealer.seal(values, SystemRng(), b"round 1").payload for _ in range(4)]
    assert len(set(payloads)) == 4 and len(spy.keys) == 4
    assert {len(key) for key, _ in spy.keys} == {32}
    again = [sealer.seal(values, InsecureRng(1), b"round 1").payload for _ in range(2)]
    assert again[0] == again[1] and len(spy.keys) == 4


def test_members_of_a_real_run_use_it_and_nobody_can_seed_it():
    assert MemberParts().rng is SystemRng
    assert list(inspect.signature(SystemRng).parameters) == []
    with pytest.raises(TypeError):
        SystemRng(7)
    rng = SystemRng()
    with pytest.raises(AttributeError):
        rng.seed = 7


def test_keys_of_boxes_and_signatures_vary_in_every_bit():
    for made in (BoxKey, SigningKey):
        raw = [made.generate().private_bytes() for _ in range(INSTANCES)]
        # X25519 fixes five bits of a key when it uses it, and may do so when it makes it
        assert len(set(raw)) == INSTANCES and varying_bits(raw) >= 251


# --- control: Flower's generator, as installed


@pytest.fixture
def flower():
    return pytest.importorskip("flwr.common.secure_aggregation.secaggplus_utils")


def fold(seed: bytes) -> int:
    folded = 0
    for at in range(0, len(seed), 4):
        folded ^= int.from_bytes(seed[at : at + 4], "little")
    return folded


def test_control_of_256_bits_28_reach_flowers_generator(flower, monkeypatch):
    used: list[int] = []
    state = np.random.RandomState
    monkeypatch.setattr(np.random, "RandomState", lambda seed: used.append(seed) or state(seed))
    for _ in range(INSTANCES):
        secret = base64.urlsafe_b64encode(os.urandom(32))
        flower.pseudo_rand_gen(secret, 1 << 24, [(1,)])
        assert used[-1] == fold(secret)
    assert varying_bits([seed.to_bytes(4, "little") for seed in used]) == 28


def test_control_two_secrets_with_one_fold_give_one_mask(flower):
    secret = bytes(range(32))
    other = secret[4:8] + secret[:4] + secret[8:]
    masks = [flower.pseudo_rand_gen(seed, 1 << 24, [(50,)])[0] for seed in (secret, other, b"\1" + bytes(31))]
    assert secret != other and np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], masks[2])
