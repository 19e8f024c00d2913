"""Limits that change while a file or a server is used; memory's are in test_cache_memory.py."""

import math
from weakref import WeakKeyDictionary

import pytest
from kit.clocks import FakeClock

from fednode.cache import MISSING, FileBackend, Limits, MemoryBackend, StoreFull, TooLarge, WhenFull
from fednode.cache.redis.index import Book, Noted
from fednode.errors import StoreError
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


def test_a_tuning_that_the_disk_refuses_changes_no_limits(tmp_path):
    folder = tmp_path / "cache"
    with FileBackend(folder, FakeClock(), Limits(9, 90, 10), WhenFull.EVICT) as cache:
        cache.set("a", b"0", None)
        cache.set("b", b"0", None)
        folder.rename(tmp_path / "away")
        folder.mkdir()
        with pytest.raises(StoreError, match="moved or replaced"):
            cache.tune(Limits(1, 90, 10))
        assert cache.limits == Limits(9, 90, 10)


class TunedMeanwhile(FakeClock):
    """Somebody else tunes while a call looks at the clock."""

    def __init__(self):
        super().__init__()
        self.meanwhile = None

    def now(self):
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()
        return super().now()


@pytest.mark.parametrize("verb", ["set", "pin", "set_many"])
def test_a_value_that_was_counted_under_the_old_limits_is_held_to_the_new_ones(verb):
    clock = TunedMeanwhile()
    cache = MemoryBackend(clock, Limits(9, 9_000, 1_000), shards=1)
    cache.set("key", b"old", None)
    clock.meanwhile = lambda: cache.tune(Limits(9, 9_000, 10))
    with pytest.raises(TooLarge, match="the limit of 10 bytes"):
        {
            "set": lambda: cache.set("key", bytes(1_000), None),
            "pin": lambda: cache.pin("key", bytes(1_000)),
            "set_many": lambda: cache.set_many({"key": bytes(1_000)}, None),
        }[verb]()
    assert (cache.get("key"), cache.usage().bytes, cache.usage().refusals) == (b"old", 3, 1)
    cache.set("key", b"new", None)
    assert cache.get("key") == b"new"


class Unwalked(WeakKeyDictionary):
    def items(self):
        pytest.fail("each write on its way was looked at")


def test_writes_on_their_way_are_looked_at_only_where_room_is_short():
    book = Book(Limits(10, 100, 100))
    coming = [Noted(10, math.inf, b"", 0, False) for _ in range(9)]
    book._coming = Unwalked()
    for number, noted in enumerate(coming):
        book.admit(str(number), noted, 0.0)
    book._coming = WeakKeyDictionary(dict.fromkeys(coming, "key"))
    with pytest.raises(StoreFull):
        book.admit("over", Noted(11, math.inf, b"", 0, False), 0.0)
    for noted in coming:
        book.release(noted)
    # a large one that came before costs nothing once all that was on its way has ended
    book._coming = Unwalked()
    for number, noted in enumerate(coming):
        book.admit(str(number), noted, 0.0)
