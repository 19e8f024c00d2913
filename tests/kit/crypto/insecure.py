"""Randomness that a test can repeat. Never outside tests."""

import builtins
import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray


class InsecureRng:
    """An `Rng` with a seed: AES-256-CTR under SHA-256("insecure" | seed), nonce 0, read in order.

    `bytes` and `words` take from one stream (a word is 8 bytes, little-endian): how a draw is cut up does not matter.
    """

    def __init__(self, seed: int) -> None:
        key = hashlib.sha256(b"insecure" + seed.to_bytes(16, "big", signed=True)).digest()
        self._stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def bytes(self, count: int) -> builtins.bytes:
        return self._stream.update(builtins.bytes(count))

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(bytearray(self.bytes(8 * count)), dtype="<u8").astype(np.uint64, copy=False)


class FakeWords:
    """An `Rng` that answers with the words it was given, in order, and then with 2^63; `taken` counts them."""

    def __init__(self, words: list[int]) -> None:
        self._words = words
        self.taken = 0

    def bytes(self, count: int) -> builtins.bytes:
        return self.words(-(-count // 8)).tobytes()[:count]

    def words(self, count: int) -> NDArray[np.uint64]:
        out = np.full(count, 1 << 63, dtype=np.uint64)
        given = self._words[self.taken : self.taken + count]
        out[: len(given)] = np.array(given, dtype=np.uint64)
        self.taken += count
        return out
