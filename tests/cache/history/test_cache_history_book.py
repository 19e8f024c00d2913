"""What a write on its way holds of the room, whatever becomes of it."""

import math

import pytest

from fednode.cache import Limits, StoreFull
from fednode.cache.redis.index import Book, Noted


def noted(size: int, generation: bytes) -> Noted:
    return Noted(size, math.inf, generation, 1, pinned=False)


def test_a_write_that_shrinks_lends_its_room_to_nobody() -> None:
    book = Book(Limits(10, 1_000, 1_000))
    book.note("key", noted(900, b"old"))
    shrunk = noted(1, b"new")
    book.admit("key", shrunk, 0.0)
    with pytest.raises(StoreFull):
        book.admit("other", noted(900, b"other"), 0.0)
    book.note("key", shrunk)
    book.admit("other", noted(900, b"other"), 0.0)
    book.release(noted(900, b"other"))
    book.admit("third", noted(999, b"third"), 0.0)


def test_a_write_keeps_its_entry_where_the_old_value_goes_meanwhile() -> None:
    book = Book(Limits(2, 1_000, 1_000))
    for key in ("key", "other"):
        book.note(key, noted(1, key.encode()))
    coming = noted(2, b"new")
    book.admit("key", coming, 0.0)
    book.evicted("key")
    with pytest.raises(StoreFull):
        book.admit("third", noted(1, b"third"), 0.0)
    book.note("key", coming)
    assert (book.usage().entries, book.usage().bytes, book.usage().refusals) == (2, 3, 1)
