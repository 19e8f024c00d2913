"""Who someone is (Ed25519), and boxes that only they can open (X25519). Thin types over `cryptography`.

Secret keys print nothing, do not pickle or copy, and are equal to themselves alone.
"""

import os
from dataclasses import dataclass
from typing import Final, NoReturn, Self, final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fednode_crypto.errors import BadSignature, Tampered
from fednode_crypto.hazmat import boxes

_PREFIX: Final = b"fednode/v1/"
_PRIME: Final = 2**255 - 19
_LOW_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_LOW_ORDER: Final = frozenset({0, 1, _PRIME - 1, _LOW_ORDER_8, _PRIME - _LOW_ORDER_8})
"""The y coordinates of the eight points of Ed25519 whose order divides 8."""


@final
@dataclass(frozen=True, slots=True)
class VerifyKey:
    """A public Ed25519 key (RFC 8032), in its one encoding and not a low-order point: else it raises Tampered."""

    raw: bytes

    def __post_init__(self) -> None:
        y = int.from_bytes(self.raw, "little") & (2**255 - 1)
        if len(self.raw) != 32 or y >= _PRIME or y in _LOW_ORDER:
            raise Tampered("these bytes are not an Ed25519 public key: ask its owner for the right one")

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Return the key in 32 bytes. Tampered for another size, an encoding out of range or a low-order point."""
        return cls(bytes(raw))

    def verify(self, signature: bytes, domain: bytes, message: bytes) -> None:
        """Return only if the owner of this key signed `message` in `domain`; raise BadSignature in every other case.

        ValueError for a domain that is empty or holds a NUL: that is our own mistake.
        """
        signed = _in_domain(domain, message)
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, signed)
        except (InvalidSignature, ValueError):
            raise BadSignature("the signature does not belong to this key, domain and message: reject it") from None

    def __repr__(self) -> str:
        return f"VerifyKey({self.raw[:4].hex()}...)"


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SigningKey:
    """A secret Ed25519 key (RFC 8032). Signatures are deterministic and bound to a domain.

    What is signed is "fednode/v1/", the domain, a NUL, the message: a signature in one domain is none in any other.
    """

    _key: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> Self:
        """Return a new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.from_private_bytes(_fresh()))

    @classmethod
    def from_private_bytes(cls, raw: bytes) -> Self:
        """Return the key that `private_bytes` gave. ValueError unless `raw` is 32 bytes."""
        return cls(Ed25519PrivateKey.from_private_bytes(_secret(raw)))

    def private_bytes(self) -> bytes:
        """Return the 32 secret bytes: for the key folder only, never for a message or a log."""
        return self._key.private_bytes_raw()

    @property
    def public(self) -> VerifyKey:
        """The public half."""
        return VerifyKey(self._key.public_key().public_bytes_raw())

    def sign(self, domain: bytes, message: bytes) -> bytes:
        """Return 64 bytes that `public.verify` accepts. ValueError for a domain that is empty or holds a NUL."""
        return self._key.sign(_in_domain(domain, message))

    def __repr__(self) -> str:
        return "SigningKey(secret)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SigningKey cannot be pickled or copied: use private_bytes, for the key folder only")


@final
@dataclass(frozen=True, slots=True)
class BoxPublicKey:
    """A public X25519 key (RFC 7748) that is not a low-order point: else it raises Tampered."""

    raw: bytes

    def __post_init__(self) -> None:
        boxes.check_point(self.raw)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Return the key in 32 bytes. Tampered for another size or a low-order point."""
        return cls(bytes(raw))

    def __repr__(self) -> str:
        return f"BoxPublicKey({self.raw[:4].hex()}...)"


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BoxKey:
    """A secret X25519 key (RFC 7748): it opens boxes, nothing else."""

    _key: X25519PrivateKey

    @classmethod
    def generate(cls) -> Self:
        """Return a new key from the operating system's randomness."""
        return cls(X25519PrivateKey.from_private_bytes(_fresh()))

    @classmethod
    def from_private_bytes(cls, raw: bytes) -> Self:
        """Return the key that `private_bytes` gave. ValueError unless `raw` is 32 bytes."""
        return cls(X25519PrivateKey.from_private_bytes(_secret(raw)))

    def private_bytes(self) -> bytes:
        """Return the 32 secret bytes: for the key folder only, never for a message or a log."""
        return self._key.private_bytes_raw()

    @property
    def public(self) -> BoxPublicKey:
        """The public half."""
        return BoxPublicKey(self._key.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return "BoxKey(secret)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a BoxKey cannot be pickled or copied: use private_bytes, for the key folder only")


def seal_box(recipient: BoxPublicKey, plaintext: bytes, associated: bytes) -> bytes:
    """Return a box that only `recipient` opens, and only together with the same `associated` bytes (not in the box).

    Guarantees: confidential and unaltered as long as the recipient's key is secret (X25519, HKDF-SHA256 over both
    public keys and `associated`, AES-256-GCM); a fresh key a box, so equal plaintexts give unrelated boxes.
    Not guaranteed: who sealed it (sign it), and secrecy of old boxes once the recipient's key is out.
    A box is 49 bytes longer than its plaintext, which may be empty.
    """
    return boxes.seal(X25519PrivateKey.from_private_bytes(_fresh()), recipient.raw, plaintext, associated)


def open_box(key: BoxKey, box: bytes, associated: bytes) -> bytes:
    """Return the plaintext, exactly as it was sealed for this key with these `associated` bytes.

    Tampered for everything else (another key or context, a flipped bit, a wrong size or version, a low-order point):
    the cause is not told apart.
    """
    return boxes.unseal(key._key, box, associated)


def _in_domain(domain: bytes, message: bytes) -> bytes:
    if not domain or b"\x00" in domain:
        raise ValueError("a signing domain must be at least one byte and hold no NUL: choose a plain word")
    return _PREFIX + domain + b"\x00" + message


def _fresh() -> bytes:
    # not the library's `generate`: its generator knows a fork by the process number alone, and a child in a new pid
    # namespace that has its parent's number draws its parent's keys
    return os.urandom(32)


def _secret(raw: bytes) -> bytes:
    if len(raw) != 32:
        raise ValueError("a secret key is 32 bytes: the file in the key folder is damaged or of another kind")
    return raw
