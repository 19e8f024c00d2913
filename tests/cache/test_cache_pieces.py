"""Pieces under a manifest: whole or `Damaged`, and no hostile length is believed."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.cache.values.pieces import HEAD_BYTES, MAX_PIECES, Damaged, Manifest, check_piece_bytes, cut, encoded_limit

GENERATION = bytes(range(16))
FIXED = struct.Struct("<8sQIId16s")
LIMIT = 1 << 16


def joined(key: bytes, record: bytes, pieces: list[bytes]) -> bytes:
    manifest = Manifest.read(record, LIMIT)
    return manifest.join(key, pieces) if manifest.count else manifest.inline(record, key)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.integers(1, 70), st.binary(max_size=8), st.none() | st.floats(1, 1e12))
def test_what_was_cut_joins_to_the_same(data: bytes, piece_bytes: int, key: bytes, expires: float | None) -> None:
    ready = cut(key, data, piece_bytes, GENERATION, math.inf if expires is None else expires)
    assert all(0 < len(piece) <= piece_bytes for piece in ready.pieces)
    assert ready.manifest.lengths == tuple(map(len, ready.pieces))
    assert len(ready.record) <= HEAD_BYTES + piece_bytes
    assert joined(key, ready.record, [bytes(piece) for piece in ready.pieces]) == data
    assert Manifest.read(ready.record, LIMIT) == ready.manifest


def damages(content: bytes) -> list[bytes]:
    flips = [content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :] for at in range(len(content))]
    return [*flips, *(content[:at] for at in range(len(content))), content + b"\0"]


@pytest.mark.parametrize("piece_bytes", [10, 100])
def test_every_changed_or_cut_record_is_damaged(piece_bytes: int) -> None:
    ready = cut(b"key", b"sealed update" * 3, piece_bytes, GENERATION, 5.0)
    pieces = [bytes(piece) for piece in ready.pieces]
    spoilt = damages(ready.record)
    # what stands after a manifest with pieces is nobody's: the manifest alone counts
    for record in spoilt[:-1] if pieces else spoilt:
        with pytest.raises(Damaged):
            joined(b"key", record, pieces)


def test_every_changed_missing_or_foreign_piece_is_damaged() -> None:
    data = bytes(range(100))
    ready, other = (cut(b"key", data, 30, bytes([number] * 16)) for number in (1, 2))
    pieces = [bytes(piece) for piece in ready.pieces]
    changed = cut(b"key", data[::-1], 30, bytes([1] * 16))
    wrong = [pieces[:-1], [*pieces, b""], pieces[::-1], [*pieces[:1], *map(bytes, changed.pieces[1:])], []]
    wrong += [[*pieces[:2], spoilt, pieces[3]] for spoilt in damages(pieces[2])]
    for given_pieces in wrong:
        with pytest.raises(Damaged):
            ready.manifest.join(b"key", given_pieces)
    with pytest.raises(Damaged):
        ready.manifest.join(b"another key", pieces)
    assert ready.manifest.join(b"key", pieces) == other.manifest.join(b"key", pieces) == data


@pytest.mark.parametrize(
    ("size", "count", "piece_bytes", "expires"),
    [
        (LIMIT + 1, 2, LIMIT, 0.0),
        (1 << 63, 1 << 31, 1 << 32 - 1, 0.0),
        (LIMIT, LIMIT, 0, 0.0),
        (100, 9, 10, 0.0),
        (100, 11, 10, 0.0),
        (100, 1, 100, 0.0),
        (100, 0, 10, 0.0),
        (100, 10, 10, math.nan),
    ],
)
def test_lengths_that_cannot_be_are_refused_before_anything_is_fetched(
    size: int, count: int, piece_bytes: int, expires: float
) -> None:
    record = FIXED.pack(b"FNpiece1", size, count, piece_bytes & 0xFFFFFFFF, expires, GENERATION) + bytes(32)
    with pytest.raises(Damaged):
        Manifest.read(record, LIMIT)


def test_a_manifest_names_no_more_pieces_than_it_may() -> None:
    size = MAX_PIECES + 1
    record = FIXED.pack(b"FNpiece1", size, size, 1, 0.0, GENERATION) + bytes(32)
    with pytest.raises(Damaged):
        Manifest.read(record, 1 << 30)
    with pytest.raises(ValueError, match="larger pieces"):
        cut(b"", bytes(size), 1, GENERATION)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_damaged_or_a_manifest_within_the_limit(junk: bytes) -> None:
    for record in (junk, b"FNpiece1" + junk):
        try:
            manifest = Manifest.read(record, LIMIT)
        except Damaged:
            continue
        assert manifest.size <= LIMIT and sum(manifest.lengths) in (0, manifest.size)


@pytest.mark.parametrize("piece_bytes", [0, -1, 1])
def test_pieces_too_small_for_the_largest_value_are_refused(piece_bytes: int) -> None:
    with pytest.raises(ValueError, match="too small"):
        check_piece_bytes(piece_bytes, 1 << 20)
    check_piece_bytes(-(-encoded_limit(1 << 20) // MAX_PIECES), 1 << 20)
