"""Limits that change while a file or a server is used; memory's are in test_cache_memory.py."""

import pytest
from kit.clocks import FakeClock

from fednode.cache import MISSING, FileBackend, Limits, StoreFull, TooLarge, WhenFull
from fednode.cache.redis_book import Book, Noted
from fednode.live import limit_knobs


@pytest.fixture(params=list(WhenFull))
def files(request, tmp_path):
    with FileBackend(tmp_path, FakeClock(), Limits(4, 40, 10), request.param) as cache:
        cache.pin("pinned", b"0123456789")
        cache.set("a", b"0123456789", None)
        cache.set("b", b"0123456789", None)
        yield cache, request.param


def test_lower_limits_evict_at_once_what_may_go_and_never_a_pin(files):
    cache, when_full = files
    cache.tune(Limits(4, 10, 10))
    gone = when_full is WhenFull.EVICT
    assert cache.limits.total_bytes == 10 and cache.usage().entries == (1 if gone else 3)
    assert cache.get("pinned") == b"0123456789" and (cache.get("a") is MISSING) is gone
    with pytest.raises(StoreFull):
        cache.set("c", b"0", None)
    cache.tune(Limits(4, 50, 20))
    cache.set("c", b"0" * 20, None)
    with pytest.raises(TooLarge):
        cache.set("c", b"0" * 21, None)


def test_the_knobs_of_a_file_cache_turn_its_limits(files):
    cache, _ = files
    knobs = {knob.name: knob for knob in limit_knobs(cache, cache.limits)}
    assert knobs["entries"].turn(9) == (4, 9) and cache.limits == Limits(9, 40, 10)


def test_a_book_holds_what_is_new_to_other_limits():
    book, noted = Book(Limits(4, 40, 10)), Noted(10, float("inf"), b"g", 1, pinned=False)
    book.admit("a", noted, 0.0)
    book.note("a", noted)
    book.tune(Limits(1, 10, 10))
    with pytest.raises(StoreFull):
        book.admit("b", Noted(1, float("inf"), b"h", 1, pinned=False), 0.0)
    assert book.limits.entries == 1 and book.usage().entries == 1
