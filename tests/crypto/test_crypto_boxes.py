import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode_crypto.errors import Tampered
from fednode_crypto.hazmat import boxes
from fednode_crypto.identity import BoxKey, BoxPublicKey, open_box, seal_box

P = 2**255 - 19
_ORDER_8 = 0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0
LOW_ORDER = [y.to_bytes(32, "little") for y in (0, 1, P - 1, P, P + 1, _ORDER_8)]
KEY = BoxKey.from_private_bytes(bytes(range(32)))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=80))
def test_a_box_opens_to_what_was_sealed(plaintext: bytes, associated: bytes) -> None:
    box = seal_box(KEY.public, plaintext, associated)
    assert len(box) == len(plaintext) + boxes.OVERHEAD
    assert open_box(KEY, box, associated) == plaintext


def test_a_flipped_bit_anywhere_keeps_the_box_shut() -> None:
    box = seal_box(KEY.public, b"thirteen byte", b"spec|client|holder|3")
    for at in range(len(box)):
        for bit in range(8):
            wrong = bytearray(box)
            wrong[at] ^= 1 << bit
            with pytest.raises(Tampered):
                open_box(KEY, bytes(wrong), b"spec|client|holder|3")
    assert open_box(KEY, box, b"spec|client|holder|3") == b"thirteen byte"


def test_a_box_belongs_to_one_recipient_and_one_context() -> None:
    box = seal_box(KEY.public, b"share", b"holder 3")
    for key, associated in [(BoxKey.generate(), b"holder 3"), (KEY, b"holder 4"), (KEY, b""), (KEY, b"holder 3\x00")]:
        with pytest.raises(Tampered):
            open_box(key, box, associated)


def test_every_shorter_or_longer_box_is_refused() -> None:
    box = seal_box(KEY.public, b"share", b"")
    for wrong in [*(box[:size] for size in range(len(box))), box + b"\x00", box[1:], b"\x02" + box[1:]]:
        with pytest.raises(Tampered):
            open_box(KEY, wrong, b"")


@pytest.mark.parametrize("point", LOW_ORDER)
def test_low_order_points_are_refused_as_recipient_and_as_sender(point: bytes) -> None:
    with pytest.raises(Tampered, match="X25519"):
        BoxPublicKey(point)
    with pytest.raises(Tampered, match="X25519"):
        boxes.seal(X25519PrivateKey.generate(), point, b"", b"")
    with pytest.raises(Tampered):
        open_box(KEY, b"\x01" + point + bytes(16), b"")


def test_equal_plaintexts_give_unrelated_boxes() -> None:
    first, second = (seal_box(KEY.public, bytes(1000), b"") for _ in range(2))
    assert first[1:33] != second[1:33]
    assert sum(a == b for a, b in zip(first[33:], second[33:], strict=True)) < 40  # 4 expected by chance


def test_a_box_is_made_as_it_always_was() -> None:
    ephemeral = X25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
    box = boxes.seal(ephemeral, KEY.public.raw, b"known answer", b"context")
    assert box.hex() == (
        "017d9c24316539825c1896e57f28197746793ce60cbee3ad47da9d07b85fa55e2a"
        "ba258e3d043d3e6ef5ad16fc0e79feffeab7f57019b2eee87b77c157"
    )
    assert open_box(KEY, box, b"context") == b"known answer"
