"""Signatures (Ed25519), and boxes that only one key can open (X25519). Thin types over `cryptography`.

Secret keys are drawn with `os.urandom`, not by the library's own generator: that one detects a fork by the process id
alone, so a child in a new pid namespace with its parent's id would draw its parent's keys.
"""

import os
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self, final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fednode_crypto.errors import BadSignature, Tampered
from fednode_crypto.hazmat import boxes
from fednode_crypto.secret import Secret

_SECRET_SIZE: Final = 32
_PREFIX: Final = b"fednode/v1/"
_PRIME: Final = 2**255 - 19
_REMEMBERED: Final = 4096
"""The longest message whose signature is remembered, once it was found right; no wrong one ever is."""
_LOW_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_LOW_ORDER: Final = frozenset({0, 1, _PRIME - 1, _LOW_ORDER_8, _PRIME - _LOW_ORDER_8})
"""The y coordinates of the eight points of Ed25519 whose order divides 8."""


@final
@dataclass(frozen=True, slots=True)
class VerifyKey:
    """A public Ed25519 key (RFC 8032). Raises Tampered unless `raw` is the one encoding of a usable point."""

    raw: bytes

    def __post_init__(self) -> None:
        y = int.from_bytes(self.raw, "little") & (2**255 - 1)
        if len(self.raw) != 32 or y >= _PRIME or y in _LOW_ORDER:
            raise Tampered("these bytes are not an Ed25519 public key: ask its owner for the right one")

    def verify(self, signature: bytes, domain: bytes, message: bytes) -> None:
        """Return if the owner of this key signed `message` in `domain`, else raise BadSignature.

        ValueError for a domain that is empty or holds a NUL: that is a programming error.
        """
        signed = _in_domain(domain, message)
        try:
            (_verify if len(signed) <= _REMEMBERED else _verify.__wrapped__)(self.raw, signature, signed)
        except (InvalidSignature, ValueError):
            raise BadSignature("the signature does not belong to this key, domain and message: reject it") from None

    def __repr__(self) -> str:
        return f"VerifyKey({self.raw[:4].hex()}...)"


class _SecretKey(Secret):
    """What both kinds of secret key share. A key is equal to itself alone."""

    __slots__ = ()
    _key: Ed25519PrivateKey | X25519PrivateKey

    @classmethod
    def generate(cls) -> Self:
        """Return a new key from the operating system's randomness."""
        return cls.from_private_bytes(os.urandom(_SECRET_SIZE))

    @classmethod
    @abstractmethod
    def from_private_bytes(cls, raw: bytes) -> Self:
        """Return the key that `private_bytes` gave. ValueError unless `raw` is 32 bytes."""

    def private_bytes(self) -> bytes:
        """Return the 32 secret bytes: for the key folder only, never for a message or a log."""
        return self._key.private_bytes_raw()


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SigningKey(_SecretKey):
    """A secret Ed25519 key (RFC 8032). Signatures are deterministic and bound to a domain.

    The signed bytes are "fednode/v1/", the domain, a NUL, the message: a signature is valid in its own domain only.
    """

    _key: Ed25519PrivateKey

    @classmethod
    def from_private_bytes(cls, raw: bytes) -> Self:
        """Return the key that `private_bytes` gave. ValueError unless `raw` is 32 bytes."""
        return cls(Ed25519PrivateKey.from_private_bytes(_checked_secret(raw)))

    @property
    def public(self) -> VerifyKey:
        """The public half."""
        return VerifyKey(self._key.public_key().public_bytes_raw())

    def sign(self, domain: bytes, message: bytes) -> bytes:
        """Return 64 bytes that `public.verify` accepts. ValueError for a domain that is empty or holds a NUL."""
        return self._key.sign(_in_domain(domain, message))


@final
@dataclass(frozen=True, slots=True)
class BoxPublicKey:
    """A public X25519 key (RFC 7748). Raises Tampered unless `raw` is 32 bytes and not a low-order point."""

    raw: bytes

    def __post_init__(self) -> None:
        boxes.check_point(self.raw)

    def __repr__(self) -> str:
        return f"BoxPublicKey({self.raw[:4].hex()}...)"


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BoxKey(_SecretKey):
    """A secret X25519 key (RFC 7748). It opens boxes and has no other use."""

    _key: X25519PrivateKey

    @classmethod
    def from_private_bytes(cls, raw: bytes) -> Self:
        """Return the key that `private_bytes` gave. ValueError unless `raw` is 32 bytes."""
        return cls(X25519PrivateKey.from_private_bytes(_checked_secret(raw)))

    @property
    def public(self) -> BoxPublicKey:
        """The public half."""
        return BoxPublicKey(self._key.public_key().public_bytes_raw())


def seal_box(recipient: BoxPublicKey, plaintext: bytes, associated: bytes) -> bytes:
    """Return a box that only `recipient` can open, and only with the same `associated` bytes (not in the box).

    Guarantees: confidentiality and integrity while the recipient's key is secret (X25519, HKDF-SHA256 over both public
    keys and `associated`, AES-256-GCM); a fresh key for each box, so equal plaintexts give unrelated boxes.
    Not guaranteed: who sealed it (sign it), and secrecy of old boxes after the recipient's key has leaked.
    A box is 49 bytes longer than its plaintext, which may be empty.
    """
    return boxes.seal(
        X25519PrivateKey.from_private_bytes(os.urandom(_SECRET_SIZE)), recipient.raw, plaintext, associated
    )


def open_box(key: BoxKey, box: bytes, associated: bytes) -> bytes:
    """Return the plaintext that was sealed for this key with these `associated` bytes.

    Raises Tampered, without saying why, for another key or context, a flipped bit, a wrong size or version, and a
    low-order point.
    """
    return boxes.unseal(key._key, box, associated)


@lru_cache(maxsize=1 << 14)
def _verify(raw: bytes, signature: bytes, signed: bytes) -> None:
    """One process meets the same signature many times: a holder thrice a round, a simulation once for each member."""
    Ed25519PublicKey.from_public_bytes(raw).verify(signature, signed)


def _in_domain(domain: bytes, message: bytes) -> bytes:
    if not domain or b"\x00" in domain:
        raise ValueError("a signing domain must have at least one byte and no NUL")
    return _PREFIX + domain + b"\x00" + message


def _checked_secret(raw: bytes) -> bytes:
    if len(raw) != _SECRET_SIZE:
        raise ValueError("a secret key is 32 bytes: the file in the key folder is damaged or of another kind")
    return raw
