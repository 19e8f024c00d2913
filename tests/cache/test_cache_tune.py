"""Limits that change while a file or a server is used; memory's are in test_cache_memory.py."""

import pytest
from kit.clocks import FakeClock

from fednode.cache import MISSING, FileBackend, Limits, MemoryBackend, StoreFull, TooLarge, WhenFull
from fednode.cache.redis.index import WriteIndex, WrittenEntry
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


def test_the_index_of_a_server_s_cache_holds_new_values_to_other_limits():
    index, entry = WriteIndex(Limits(4, 40, 10)), WrittenEntry(10, b"g", 1)
    index.admit("a", entry, 0.0)
    index.note("a", entry)
    index.tune(Limits(1, 10, 10))
    with pytest.raises(StoreFull):
        index.admit("b", WrittenEntry(1, b"h", 1), 0.0)
    assert index.limits.entries == 1 and index.usage().entries == 1


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
