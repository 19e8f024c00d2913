"""SEAL's byte form and TenSEAL itself: exact sizes, no secret where none belongs, the same sums."""

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kit.crypto.committee import TASK, keyed

from fednode_crypto import Demand, plan, scheme
from fednode_crypto.bfv.context import bfv_context, common_polynomial
from fednode_crypto.hazmat.seal_bytes import Field, bytes_field, close_seal, only, open_seal, read_fields, write_fields
from fednode_crypto.hazmat.tenseal_bfv import Shape, public_context, toolbox

PARAMS = plan("bfv", Demand(dimension=1_000, summands=6, value_bound=600_000, holders=5, threshold=4))
SHAPE = Shape(PARAMS.ring_degree, PARAMS.prime_bits, PARAMS.plain_modulus)


@given(st.lists(st.builds(bytes_field, st.integers(1, 300), st.binary(max_size=300)), max_size=6))
def test_fields_survive(fields: list[Field]) -> None:
    assert read_fields(write_fields(fields)) == fields


def test_fields_of_other_wire_types_are_kept_as_they_are() -> None:
    message = b"\x08\x96\x01" + b"\x11" + bytes(range(8)) + b"\x1a\x02hi"
    assert write_fields(read_fields(message)) == message
    assert only(read_fields(message), 3) == b"hi"


@pytest.mark.parametrize("message", [b"\x08", b"\x1a\x05hi", b"\x11abc", b"\x0f", b"\xff\xff"])
def test_other_forms_are_not_guessed_at(message: bytes) -> None:
    with pytest.raises(RuntimeError, match="tenseal"):
        read_fields(message)


def test_stored_object_opens_to_its_exact_size_only() -> None:
    header = toolbox(SHAPE).header
    body = b"residues" * 100
    stored = close_seal(header, body)
    assert open_seal(stored, len(body))[1] == body
    for bad, size in ((stored, 799), (stored, 801), (stored[:-1], 800), (b"", 0), (b"xx" + stored[2:], 800)):
        with pytest.raises(RuntimeError):
            open_seal(bad, size)


def test_compressed_bomb_is_not_unpacked() -> None:
    header = toolbox(SHAPE).header
    packed = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    stored = bytearray(close_seal(header, packed))
    stored[5] = 2
    with pytest.raises(RuntimeError):
        open_seal(bytes(stored), 1_000)


def test_our_sum_is_tenseals_own_bit_for_bit() -> None:
    keys = keyed(scheme("bfv"), PARAMS).key
    context = public_context(SHAPE, np.stack([keys.words, common_polynomial(PARAMS, TASK)]))
    rng = np.random.default_rng(1)
    first, second = (context.encrypt(rng.integers(-1000, 1000, PARAMS.ring_degree)) for _ in range(2))
    tools = toolbox(SHAPE)
    theirs = tools.residues(tools.vector(first) + tools.vector(second))
    ours = first.copy()
    bfv_context(PARAMS).data.add(ours, second)
    assert np.array_equal(ours, theirs)
    assert np.array_equal(tools.residues(tools.vector(first)), first)


def test_client_context_holds_no_secret() -> None:
    keys = keyed(scheme("bfv"), PARAMS).key
    context = public_context(SHAPE, np.stack([keys.words, common_polynomial(PARAMS, TASK)])).context
    assert context.has_public_key()
    assert not context.has_secret_key()
    with pytest.raises(ValueError, match="Secret key"):
        context.secret_key()


def test_two_seals_of_the_same_values_differ() -> None:
    sealer = keyed(scheme("bfv"), PARAMS).sealer
    values = np.zeros(PARAMS.dimension, dtype=np.int64)
    first, second = (sealer.seal(values, None) for _ in range(2))  # type: ignore[arg-type]
    assert first.payload != second.payload
