"""Signatures that were found right are remembered; no other signature, key or message passes by that."""

import pytest

from fednode_crypto.errors import BadSignature
from fednode_crypto.identity import SigningKey


def test_only_what_was_verified_is_remembered():
    key, other = SigningKey.generate(), SigningKey.generate()
    message = b"the roster of round 1"
    signature = key.sign(b"roster", message)
    for _ in range(3):
        key.public.verify(signature, b"roster", message)
        for public, signed, domain, text in (
            (other.public, signature, b"roster", message),
            (key.public, signature[:-1] + bytes([signature[-1] ^ 1]), b"roster", message),
            (key.public, signature, b"other", message),
            (key.public, signature, b"roster", message + b"."),
        ):
            with pytest.raises(BadSignature):
                public.verify(signed, domain, text)
