"""Hybrid encryption to one X25519 key: an ephemeral key, HKDF-SHA256, AES-256-GCM.

The shape of ECIES (Shoup, "A proposal for an ISO standard for public key encryption", 2001) and of RFC 9180.
"""

import hashlib
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fednode_crypto.errors import Tampered

VERSION: Final = b"\x01"
OVERHEAD: Final = 1 + 32 + 16
"""How many bytes a box is longer than its plaintext: version, ephemeral public key, tag."""

_LABEL: Final = b"fednode/v1/box\x00"
_WILL_NOT_OPEN: Final = "the box does not open with this key and context: discard it and name its sender"


def seal(ephemeral: X25519PrivateKey, recipient: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Return version | ephemeral public key (32) | ciphertext | tag (16).

    `ephemeral` must be fresh for every box: key and nonce come from it, the recipient and `associated` alone.
    Raises Tampered if `recipient` is not 32 bytes or is a low-order point.
    """
    public = ephemeral.public_key().public_bytes_raw()
    key, nonce = _derive(_agree(ephemeral, recipient), public, recipient, associated)
    return VERSION + public + AESGCM(key).encrypt(nonce, plaintext, VERSION + associated)


def unseal(private: X25519PrivateKey, box: bytes, associated: bytes) -> bytes:
    """Return the plaintext of a box that `seal` made for this key and these associated bytes; else raise Tampered."""
    if len(box) < OVERHEAD or box[:1] != VERSION:
        raise Tampered(_WILL_NOT_OPEN)
    public, sealed = box[1:33], box[33:]
    recipient = private.public_key().public_bytes_raw()
    key, nonce = _derive(_agree(private, public), public, recipient, associated)
    try:
        return AESGCM(key).decrypt(nonce, sealed, VERSION + associated)
    except InvalidTag:
        raise Tampered(_WILL_NOT_OPEN) from None


def check_point(public: bytes) -> None:
    """Raise Tampered unless `public` is 32 bytes and not a low-order point (RFC 7748, section 6.1)."""
    _agree(X25519PrivateKey.from_private_bytes(bytes(32)), public)


def _agree(private: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Tampered(
            "an X25519 key must be 32 bytes and not a low-order point: discard the message that contains it"
        ) from None


def _derive(shared: bytes, ephemeral: bytes, recipient: bytes, associated: bytes) -> tuple[bytes, bytes]:
    info = _LABEL + ephemeral + recipient + hashlib.sha256(associated).digest()
    out = HKDF(algorithm=SHA256(), length=44, salt=None, info=info).derive(shared)
    return out[:32], out[32:]
