"""AES-256-CTR as a stream of bits, from `cryptography`."""

from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

ZEROS: Final = memoryview(bytes(1 << 18))
"""The plaintext to encrypt when reading the stream; small enough to stay in the processor's cache."""


def aes_ctr(key: bytes, nonce: bytes) -> CipherContext:
    """Return the key stream of AES-256-CTR (NIST SP 800-38A): encrypt zeros to read it.

    Guarantees: pseudo-random as long as AES-256 is a pseudo-random permutation; 2^k blocks under one key differ from
    uniform ones by at most 2^(2k - 129) besides. A key and nonce must never be used for two streams.
    ValueError unless the key has 32 bytes and the nonce 16.
    """
    return Cipher(algorithms.AES256(key), modes.CTR(nonce)).encryptor()
