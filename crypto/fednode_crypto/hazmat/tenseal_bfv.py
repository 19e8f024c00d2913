"""BFV by TenSEAL (Microsoft SEAL): encryption under a public key that nobody generated alone, and decoding.

The only file that imports tenseal. TenSEAL accepts nearly any bytes silently, so it never gets a peer's bytes: it loads
residues that the caller has checked, behind metadata that it wrote itself here.
Source of the scheme: Fan, Vercauteren, "Somewhat practical fully homomorphic encryption" (2012).
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.hazmat.seal_bytes import bytes_field, close_seal, only, open_seal, read_fields, write_fields

Words = NDArray[np.uint64]

_METADATA: Final = 97
"""Parameter id, form, sizes and inner header in front of the residues of a ciphertext or public key."""

_PARAMETERS, _PUBLIC = 1, 2
_PUBLIC_KEY: Final = 1
_SIZES, _CIPHERTEXTS = 1, 2


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of SEAL: degree, sizes of the primes (the last prime carries no data), plaintext modulus."""

    degree: int
    prime_bits: tuple[int, ...]
    plain_modulus: int

    @property
    def ciphertext(self) -> tuple[int, int, int]:
        """Shape of a ciphertext's residues: two polynomials, the data primes, the degree."""
        return 2, len(self.prime_bits) - 1, self.degree

    @property
    def key(self) -> tuple[int, int, int]:
        """Shape of a public key's residues: two polynomials, all primes, the degree."""
        return 2, len(self.prime_bits), self.degree


@dataclass(frozen=True, slots=True)
class Toolbox:
    """A TenSEAL context with a key that protects nothing, and the metadata of the objects it wrote.

    It decodes, and it supplies the metadata of public contexts.
    """

    shape: Shape
    context: Any = field(repr=False)
    vector_fields: bytes = field(repr=False)
    header: bytes = field(repr=False)
    metadata: bytes = field(repr=False)

    def vector(self, residues: Words) -> Any:
        """Return a TenSEAL vector with these residues, (2, r, degree), each below its prime."""
        import tenseal

        stored = close_seal(self.header, self.metadata + _written(residues))
        message = [bytes_field(_SIZES, self.vector_fields), bytes_field(_CIPHERTEXTS, stored)]
        return tenseal.bfv_vector_from(self.context, write_fields(message))

    def residues(self, vector: Any) -> Words:
        """Return the residues, (2, r, degree), of a vector that TenSEAL made."""
        stored = only(read_fields(vector.serialize()), _CIPHERTEXTS)
        return _read(stored, self.shape.ciphertext)[2]

    def decode(self, phase: Words) -> NDArray[np.int64]:
        """Return the slots, (degree,), nearest to `phase` (r, degree): a ciphertext without its secret part.

        A ciphertext whose second polynomial is 0 decrypts to the same values under every key.
        """
        return np.array(self.vector(np.stack([phase, np.zeros_like(phase)])).decrypt(), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PublicContext:
    """A TenSEAL context with a public key and no secret key: it can only encrypt."""

    tools: Toolbox
    context: Any = field(repr=False)

    def encrypt(self, slots: NDArray[np.int64]) -> Words:
        """Return the residues, (2, r, degree), of a fresh encryption of `slots`, (degree,), each below t / 2.

        Randomness is SEAL's own (BLAKE2 seeded by the operating system).
        """
        import tenseal

        return self.tools.residues(tenseal.bfv_vector(self.context, slots.tolist()))


@lru_cache(maxsize=8)
def toolbox(shape: Shape) -> Toolbox:
    """Return the toolbox for this shape; RuntimeError if TenSEAL writes another form than expected."""
    import tenseal

    context = tenseal.context(
        tenseal.SCHEME_TYPE.BFV, shape.degree, shape.plain_modulus, list(shape.prime_bits), n_threads=1
    )
    message = read_fields(tenseal.bfv_vector(context, [0] * shape.degree).serialize())
    header, metadata, _ = _read(only(message, _CIPHERTEXTS), shape.ciphertext)
    return Toolbox(shape, context, only(message, _SIZES), header, metadata)


def public_context(shape: Shape, key: Words) -> PublicContext:
    """Return a context that encrypts under `key`: residues (2, R, degree) in NTT form, over all primes."""
    import tenseal

    tools = toolbox(shape)
    message = read_fields(
        tools.context.serialize(
            save_public_key=True, save_secret_key=False, save_galois_keys=False, save_relin_keys=False
        )
    )
    public = read_fields(only(message, _PUBLIC))
    header, metadata, _ = _read(only(public, _PUBLIC_KEY), shape.key)
    stored = close_seal(header, metadata + _written(key))
    kept = [f for f in public if f.number != _PUBLIC_KEY]
    rebuilt = [
        bytes_field(_PARAMETERS, only(message, _PARAMETERS)),
        bytes_field(_PUBLIC, write_fields([bytes_field(_PUBLIC_KEY, stored), *kept])),
    ]
    context = tenseal.context_from(write_fields(rebuilt), n_threads=1)
    if context.has_secret_key() or not context.has_public_key():
        raise RuntimeError("TenSEAL did not build a public context: install a tenseal that FedNode was tested with")
    return PublicContext(tools, context)


def _written(residues: Words) -> bytes:
    return residues.astype("<u8").tobytes()


def _read(stored: bytes, shape: tuple[int, int, int]) -> tuple[bytes, bytes, Words]:
    header, body = open_seal(stored, _METADATA + 8 * int(np.prod(shape)))
    words = np.frombuffer(body, dtype="<u8", offset=_METADATA).astype(np.uint64)
    return header, body[:_METADATA], words.reshape(shape)
