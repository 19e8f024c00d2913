"""What a write on its way holds of the room, whatever becomes of it."""

import pytest

from fednode.cache import Limits, StoreFull
from fednode.cache.redis.index import WriteIndex, WrittenEntry


def written(size: int, generation: bytes) -> WrittenEntry:
    return WrittenEntry(size, generation, 1)


def test_a_write_that_shrinks_lends_its_room_to_nobody() -> None:
    index = WriteIndex(Limits(10, 1_000, 1_000))
    index.note("key", written(900, b"old"))
    shrunk = written(1, b"new")
    index.admit("key", shrunk, 0.0)
    with pytest.raises(StoreFull):
        index.admit("other", written(900, b"other"), 0.0)
    index.note("key", shrunk)
    other = written(900, b"other")
    index.admit("other", other, 0.0)
    index.release(other)
    index.admit("third", written(999, b"third"), 0.0)


def test_a_write_keeps_its_entry_where_the_old_value_goes_meanwhile() -> None:
    index = WriteIndex(Limits(2, 1_000, 1_000))
    for key in ("key", "other"):
        index.note(key, written(1, key.encode()))
    coming = written(2, b"new")
    index.admit("key", coming, 0.0)
    index.evicted("key")
    with pytest.raises(StoreFull):
        index.admit("third", written(1, b"third"), 0.0)
    index.note("key", coming)
    assert (index.usage().entries, index.usage().bytes, index.usage().refusals) == (2, 3, 1)
