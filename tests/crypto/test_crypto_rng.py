import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crypto.insecure import InsecureRng

from fednode_crypto.hazmat.stream import aes_ctr
from fednode_crypto.rng import Rng
from fednode_crypto.system_rng import SystemRng


@pytest.mark.parametrize("rng", [SystemRng(), InsecureRng(1)], ids=["system", "insecure"])
def test_words_are_fresh_writable_and_of_the_asked_size(rng: Rng) -> None:
    assert isinstance(rng, Rng)
    for count in (0, 1, 7, 100_000):
        words = rng.words(count)
        assert words.shape == (count,)
        assert words.dtype == np.uint64
        assert words.flags.writeable
        assert words.flags.c_contiguous
        assert len(rng.bytes(count)) == count


def test_two_generators_and_two_calls_share_nothing() -> None:
    first, second = SystemRng(), SystemRng()
    words = np.concatenate([first.words(50_000), second.words(50_000), first.words(50_000)])
    assert len(np.unique(words)) == len(words)


def test_every_bit_is_fair_and_neighbours_are_uncorrelated() -> None:
    words = SystemRng().words(1 << 17)
    bits = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    limit = 7 * 0.5 / np.sqrt(len(words))  # seven sigma over 64 bits: once in 10^9 runs
    assert np.all(np.abs(bits.mean(axis=0) - 0.5) < limit)
    assert np.all(np.abs((bits[1:] ^ bits[:-1]).mean(axis=0) - 0.5) < limit)


def test_a_new_key_is_taken_before_the_old_one_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []

    def noted(key: bytes, nonce: bytes) -> object:
        keys.append(key)
        return aes_ctr(key, nonce)

    monkeypatch.setattr("fednode_crypto.system_rng._BYTES_A_KEY", 1 << 16)
    monkeypatch.setattr("fednode_crypto.system_rng.aes_ctr", noted)
    words = SystemRng().words(1 << 16)
    assert len(keys) == len(set(keys)) == 8
    assert len(np.unique(words)) == len(words)


def in_child(draw) -> bytes:
    """What `draw` gives in a process that was really forked from this one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, draw())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        drawn = pipe.read()
    os.waitpid(child, 0)
    return drawn


def pieces(data: bytes) -> list[bytes]:
    return [data[at : at + 32] for at in range(0, len(data), 32)]


def test_a_child_with_its_parents_process_number_does_not_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # a process that is number 1 of a pid namespace, and forks into a new one, has a child with number 1
    monkeypatch.setattr("os.getpid", lambda: 1)
    used, fresh, words = SystemRng(), SystemRng(), SystemRng()
    used.bytes(32)
    words.words(1)

    def draw() -> bytes:
        return used.bytes(32) + fresh.bytes(32) + words.words(4).tobytes()

    def grandchild() -> bytes:
        return draw() + in_child(draw)

    first, second, third = (pieces(in_child(it)) for it in (draw, draw, grandchild))
    drawn = [*first, *second, *third, *pieces(draw()), *pieces(draw())]
    assert {len(one) for one in drawn} == {32} and len(drawn) == 3 + 3 + 6 + 6
    assert len(set(drawn)) == len(drawn)


def test_a_fork_that_python_does_not_see_is_told_by_the_process_number(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = SystemRng()
    before = rng._stream
    monkeypatch.setattr("os.getpid", lambda: -1)
    rng.bytes(1)
    assert rng._stream is not before


def test_threads_share_one_generator_without_sharing_words() -> None:
    rng = SystemRng()
    with ThreadPoolExecutor(8) as pool:
        words = np.concatenate(list(pool.map(rng.words, [5_000] * 32)))
    assert len(np.unique(words)) == len(words)


@pytest.mark.parametrize("escape", [pickle.dumps, copy.copy, copy.deepcopy])
def test_state_cannot_be_taken_out(escape: object) -> None:
    rng = SystemRng()
    rng.words(1)
    with pytest.raises(TypeError):
        escape(rng)  # type: ignore[operator]
    assert repr(rng) == "SystemRng(<secret>)"


def test_a_negative_count_is_refused() -> None:
    for draw in (SystemRng().words, SystemRng().bytes):
        with pytest.raises(ValueError):
            draw(-1)


@settings(max_examples=30, deadline=None)
@given(st.integers(-5, 2**100), st.lists(st.integers(0, 40), max_size=6))
def test_the_fake_is_one_stream_however_it_is_cut(seed: int, cuts: list[int]) -> None:
    pieces, whole = InsecureRng(seed), InsecureRng(seed)
    taken = b"".join(pieces.words(cut).tobytes() for cut in cuts)
    assert taken == whole.bytes(8 * sum(cuts))


def test_the_fake_gives_what_it_always_gave() -> None:
    assert InsecureRng(0).words(2).tolist() == [15097993098438356227, 858297542907371590]
