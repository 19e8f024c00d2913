"""`Chunked` where its limits are others than before, and where a pinned value is replaced."""

from pathlib import Path

import pytest
from kit.clocks import FakeClock

from fednode.cache import CacheBackend, FileBackend, Limits, MemoryBackend, StoreFull, TooLarge, WhenFull
from fednode.cache.wrappers.chunked import Chunked

LARGE = bytes(1 << 17)


def test_opening_with_a_lower_limit_of_one_value_destroys_nothing(tmp_path: Path) -> None:
    def opened() -> FileBackend:
        return FileBackend(tmp_path, FakeClock(), Limits(100, 1 << 20, 1 << 16), WhenFull.REFUSE)

    with opened() as inner:
        chunked = Chunked(inner, 1 << 14, 1 << 17)
        chunked.pin("pinned", LARGE)
        chunked.set("key", LARGE, None)
        before = inner.usage()
    with opened() as inner:
        chunked = Chunked(inner, 1 << 14, 1 << 14)
        assert inner.usage().bytes == before.bytes
        assert chunked.get("pinned") == chunked.get("key") == LARGE and chunked.usage().damaged == 0
        with pytest.raises(TooLarge):
            chunked.set("key", LARGE, None)
        assert chunked.get("key") == LARGE and chunked.delete("key")
    with opened() as inner:
        assert Chunked(inner, 1 << 14, 1 << 17).get("pinned") == LARGE


@pytest.fixture(params=["memory", "file"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> CacheBackend:
    limits = Limits(9, 40_000, 5_000)
    if request.param == "memory":
        return MemoryBackend(FakeClock(), limits, shards=1)
    return FileBackend(tmp_path, FakeClock(), limits, WhenFull.EVICT)


def test_a_pin_that_is_replaced_counts_once_where_room_is_sought(inner: CacheBackend) -> None:
    chunked = Chunked(inner, 1_000, 30_000)
    chunked.pin("key", b"o" * 3_900)
    # four pieces beside four, and one record in place of the other: just the nine entries that there are
    assert inner.usage().pinned_entries == 5
    chunked.pin("key", b"n" * 3_900)
    assert chunked.get("key") == b"n" * 3_900 and inner.usage().pinned_entries == 5
    with pytest.raises(StoreFull):
        chunked.pin("other", b"n" * 3_900)


def test_room_is_counted_without_what_is_replaced_pinned_or_not(inner: CacheBackend) -> None:
    for number in range(8):
        inner.pin(f"pin {number}", bytes(4_500))
    inner.set("key", bytes(4_000), None)
    assert inner.fits_beside_pins({"key": 4_000}) and not inner.fits_beside_pins({"key": 4_001})
    assert inner.fits_beside_pins({"pin 0": 4_500, "key": 4_000})
    assert not inner.fits_beside_pins({"pin 0": 4_501, "key": 4_000})
    assert not inner.fits_beside_pins({"key": 1, "new": 1})
