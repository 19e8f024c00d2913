import copy
import hashlib
import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode_crypto.errors import BadSignature, CryptoError, Tampered
from fednode_crypto.identity import _LOW_ORDER, BoxKey, BoxPublicKey, SigningKey, VerifyKey, seal_box

P = 2**255 - 19
SECRET = bytes(range(32))
DOMAINS = st.binary(min_size=1, max_size=20).filter(lambda domain: b"\x00" not in domain)


@settings(max_examples=50, deadline=None)
@given(DOMAINS, st.binary(max_size=200))
def test_what_is_signed_verifies_and_is_plain_ed25519_over_the_prefixed_bytes(domain: bytes, message: bytes) -> None:
    key = SigningKey.from_private_bytes(SECRET)
    signature = key.sign(domain, message)
    key.public.verify(signature, domain, message)
    plain = Ed25519PrivateKey.from_private_bytes(SECRET).sign(b"fednode/v1/" + domain + b"\x00" + message)
    assert signature == plain


@settings(max_examples=50, deadline=None)
@given(DOMAINS, DOMAINS, st.binary(max_size=40), st.binary(max_size=40))
def test_a_signature_holds_for_one_domain_and_one_message(
    first: bytes, second: bytes, one: bytes, other: bytes
) -> None:
    key = SigningKey.from_private_bytes(SECRET)
    signature = key.sign(first, one)
    if (first, one) == (second, other):
        assert key.sign(second, other) == signature
        return
    with pytest.raises(BadSignature):
        key.public.verify(signature, second, other)


def test_every_flipped_bit_and_every_other_size_is_a_bad_signature() -> None:
    key = SigningKey.generate()
    signature = key.sign(b"upload", b"message")
    flipped = [
        bytes(b ^ (1 << bit) * (i == at) for i, b in enumerate(signature)) for at in range(64) for bit in range(8)
    ]
    for wrong in [*flipped, b"", signature[:-1], signature + b"\x00", bytes(64)]:
        with pytest.raises(BadSignature):
            key.public.verify(wrong, b"upload", b"message")
    with pytest.raises(BadSignature):
        SigningKey.generate().public.verify(signature, b"upload", b"message")
    assert issubclass(BadSignature, Tampered)
    assert issubclass(Tampered, CryptoError)


def test_every_secret_comes_from_the_kernel_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL's own generator takes a child with its parent's process number (pid namespaces) for the parent."""
    drawn = [hashlib.sha256(bytes([n])).digest() for n in range(3)]
    given = iter(drawn)
    monkeypatch.setattr("os.urandom", lambda count: next(given)[:count])
    assert SigningKey.generate().private_bytes() == drawn[0]
    recipient = BoxKey.generate()
    assert recipient.private_bytes() == drawn[1]
    assert seal_box(recipient.public, b"", b"")[1:33] == BoxKey.from_private_bytes(drawn[2]).public.raw


@pytest.mark.parametrize("domain", [b"", b"a\x00b", b"\x00"])
def test_an_ambiguous_domain_is_refused_on_both_sides(domain: bytes) -> None:
    key = SigningKey.from_private_bytes(SECRET)
    with pytest.raises(ValueError, match="NUL"):
        key.sign(domain, b"")
    with pytest.raises(ValueError, match="NUL"):
        key.public.verify(bytes(64), domain, b"")


def test_the_low_order_points_are_those_of_the_curve() -> None:
    d = -121665 * pow(121666, -1, P) % P
    eighth = [y for y in _LOW_ORDER if (d * y**4 + 2 * y**2 - 1) % P == 0]
    assert len(eighth) == 2
    assert _LOW_ORDER - set(eighth) == {0, 1, P - 1}


@pytest.mark.parametrize("sign_bit", [0, 1])
def test_public_keys_that_no_honest_signer_has_are_refused(sign_bit: int) -> None:
    for y in [*_LOW_ORDER, P, P + 1, 2**255 - 1]:
        with pytest.raises(Tampered, match="Ed25519"):
            VerifyKey((y | sign_bit << 255).to_bytes(32, "little"))


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_keys_of_another_size_are_refused(size: int) -> None:
    for public in (VerifyKey, BoxPublicKey):
        with pytest.raises(Tampered):
            public(b"\x05" * size)
    for secret in (SigningKey, BoxKey):
        with pytest.raises(ValueError, match="32 bytes"):
            secret.from_private_bytes(b"\x05" * size)


@pytest.mark.parametrize("kind", [SigningKey, BoxKey])
def test_a_secret_key_shows_nothing_and_stays_where_it_is(kind: type[SigningKey] | type[BoxKey]) -> None:
    key, twin = kind.from_private_bytes(SECRET), kind.from_private_bytes(SECRET)
    assert key.private_bytes() == SECRET
    assert key.public == twin.public
    assert key != twin
    assert len({key, twin}) == 2
    assert repr(key) == str(key) == f"{kind.__name__}(<secret>)"
    for escape in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            escape(key)
    with pytest.raises(AttributeError):
        key._key = None  # type: ignore[misc,assignment]


def test_public_keys_are_values() -> None:
    signer, box = SigningKey.generate().public, BoxKey.generate().public
    assert VerifyKey(signer.raw) == signer == pickle.loads(pickle.dumps(signer))  # noqa: S301
    assert BoxPublicKey(box.raw) == box
    assert len({signer, VerifyKey(signer.raw)}) == 1
    assert repr(signer) == f"VerifyKey({signer.raw[:4].hex()}...)"
    assert SigningKey.generate().public != signer
