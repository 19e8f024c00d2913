"""A forked child never waits for a thread that it does not have, and finds caches whose counts agree."""

import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from kit.cache.backend import ROOMY
from kit.cache.interrupts import locks_of
from kit.cache.redis_server import RedisServer
from kit.children import another_thread, held_elsewhere, in_a_child
from kit.clocks import FakeClock

import fednode.cache
from fednode.cache import MISSING, Closed, FileBackend, Limits, MemoryBackend, WhenFull
from fednode.cache.fork_safety import mend_after_fork
from fednode.cache.memory.policies import Lru
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.records import Lasting, RedisOptions
from fednode.cache.redis.tracking import Changes
from fednode.cache.wrappers.chunked import Chunked
from fednode.cache.wrappers.counted import Counted
from fednode.cache.wrappers.counter import Tally
from fednode.cache.wrappers.loading import Guarded, GuardSettings
from fednode.cache.wrappers.single_flight import Flight, Flights, Writing
from fednode.cache.wrappers.tiered import Tiered, TierOptions
from fednode.errors import StoreError

pytestmark = pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    folder = Path(tempfile.mkdtemp(prefix="fn-"))
    try:
        with RedisServer(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder)


class Remote(MemoryBackend):
    """What `Tiered` needs, in memory; its feed says nothing but that it was probed."""

    clock = FakeClock()

    def get_lasting(self, key: str) -> object:
        found = self.get(key)
        return found if found is MISSING else Lasting(found, 100.0)

    def get_many_lasting(self, keys: Iterable[str]) -> dict[str, Lasting]:
        return {key: Lasting(value, 100.0) for key, value in self.get_many(keys).items()}

    def follow(self) -> "Feed":
        return Feed()


class Feed:
    def __init__(self) -> None:
        self._probed = False
        self._closed = threading.Event()

    def probe(self) -> None:
        self._probed = True

    def wait(self, seconds: float) -> Changes | None:
        if self._probed:
            self._probed = False
            return Changes(probed=True)
        if self._closed.wait(seconds):
            raise StoreError("closed")
        return None

    def close(self) -> None:
        self._closed.set()


def memory() -> MemoryBackend:
    return MemoryBackend(FakeClock(), ROOMY, shards=4)


def stack() -> Counted:
    whole = Chunked(MemoryBackend(FakeClock(), ROOMY, shards=1), piece_bytes=64, value_bytes=4_096)
    return Counted(Guarded(whole, FakeClock(), lambda: 0.5, GuardSettings(jitter=0.0)))


def exercised(cache: object) -> list[object]:
    """What every verb says, one after the other."""
    cache.set("new", b"n" * 300, None)  # type: ignore[attr-defined]
    cache.pin("kept", b"k")  # type: ignore[attr-defined]
    cache.set_many({"a": b"1", "b": b"2"}, 5.0)  # type: ignore[attr-defined]
    found = [cache.get("old").decode(), cache.get("new").decode(), sorted(cache.get_many(["a", "kept", "b", "c"]))]  # type: ignore[attr-defined]
    found += [cache.delete("a"), cache.sweep(), sorted(cache.keys()), cache.usage().pinned_entries]  # type: ignore[attr-defined]
    cache.clear()  # type: ignore[attr-defined]
    return [*found, cache.usage().entries, cache.get("old") is MISSING]  # type: ignore[attr-defined]


EXPECTED = ["o", "n" * 300, ["a", "b", "kept"], True, 0, ["b", "kept", "new", "old"], 1, 0, True]


@pytest.mark.parametrize("make", [memory, stack])
def test_a_child_of_a_process_whose_threads_hold_every_lock(make: Callable[[], MemoryBackend]) -> None:
    cache = make()
    cache.set("old", b"o", None)
    found = locks_of(cache)
    assert len(found) >= 5
    with held_elsewhere(*found):
        assert in_a_child(lambda: exercised(cache)) == EXPECTED
    assert exercised(cache) == EXPECTED


def test_a_child_over_a_server_whose_parent_s_threads_hold_every_lock(server: RedisServer) -> None:
    with RedisBackend(server.address, RedisOptions("fork"), FakeClock()) as cache:
        cache.set("old", b"o", None)
        with held_elsewhere(*locks_of(cache)):
            assert in_a_child(lambda: exercised(cache)) == EXPECTED
        cache.set("old", b"o", None)
        # the parent's connections are its own still
        assert cache.get("old") == b"o" and exercised(cache) == EXPECTED


def test_a_child_has_no_near_copies_until_it_listens_itself() -> None:
    with Tiered(memory(), Remote(FakeClock(), ROOMY), TierOptions(heartbeat=20.0)) as cache:
        cache.set("old", b"o", None)
        assert cache.get("old") == b"o" and cache.near.followed

        def look() -> list[object]:
            before, copies = cache.near.followed, cache.near.local.entries
            found = exercised(cache)
            return [before, copies, found, cache._thread is not None and cache._thread.is_alive(), cache.close()]

        own = [lock for part in (cache, cache._local) for lock in locks_of(part)]
        with held_elsewhere(*{id(lock): lock for lock in own}.values()):
            assert in_a_child(look) == [False, 0, EXPECTED, True, None]
        assert cache.near.followed and cache.get("old") == b"o"


def test_in_a_child_a_folder_s_cache_is_closed_and_stays_the_parent_s(tmp_path: Path) -> None:
    def look() -> list[str]:
        found = []
        for ask in (lambda: cache.get("old"), lambda: cache.set("old", b"child", None), cache.clear):
            with pytest.raises(Closed, match="open it again"):
                ask()
            found.append("closed")
        with pytest.raises(StoreError, match="in use by another process"):
            FileBackend(tmp_path, FakeClock(), ROOMY, WhenFull.REFUSE)
        cache.close()
        return found

    with FileBackend(tmp_path, FakeClock(), ROOMY, WhenFull.REFUSE) as cache:
        cache.set("old", b"o", None)
        with held_elsewhere(*locks_of(cache)):
            assert in_a_child(look) == ["closed"] * 3
        cache.set("new", b"n", None)
        assert cache.get("old") == b"o"


class Stuck(Lru):
    """Stays in `added` in one thread."""

    thread, there, over = 0, threading.Event(), threading.Event()

    def added(self, key: str, size: int, now: float) -> object:
        if threading.get_ident() == Stuck.thread:
            Stuck.there.set()
            Stuck.over.wait(60.0)
        return super().added(key, size, now)


@pytest.mark.parametrize("fresh", [True, False])
def test_a_shard_that_was_half_changed_is_reckoned_anew(fresh: bool) -> None:
    cache = MemoryBackend(FakeClock(), Limits(4, 100, 60), policy=Stuck, shards=1)
    cache.pin("pinned", b"p" * 10)
    cache.set("mortal", b"m" * 10, 5.0)
    if not fresh:
        cache.set("stuck", b"s" * 20, None)

    def write(there: threading.Event, over: threading.Event) -> None:
        Stuck.thread, Stuck.there, Stuck.over = threading.get_ident(), there, over
        cache.set("stuck", b"s" * 30, None)

    def look() -> list[object]:
        usage = cache.usage()
        first = [usage.entries, usage.bytes, usage.pinned_entries, usage.pinned_bytes]
        for number in range(20):
            cache.set(f"k{number}", b"v" * 20, 1.0)
        usage = cache.usage()
        return [first, cache.get("pinned").decode(), usage.entries, usage.bytes, cache.get("k19").decode()]

    with another_thread(write):
        # the new value is in the index, and not yet with the policy
        assert in_a_child(look) == [[3, 50, 1, 10], "p" * 10, 4, 70, "v" * 20]
    usage = cache.usage()
    assert (usage.entries, usage.bytes, usage.pinned_entries) == (3, 50, 1)


def test_a_tuning_that_was_under_way_is_done_in_the_child() -> None:
    cache = MemoryBackend(FakeClock(), Limits(40, 4_000, 100), shards=2)
    for number in range(30):
        cache.set(f"k{number}", b"v", None)

    def tune(there: threading.Event, over: threading.Event) -> None:
        with cache._tuning:
            cache._limits = Limits(10, 4_000, 100)
            there.set()
            over.wait(60.0)

    with another_thread(tune):
        assert in_a_child(lambda: [cache.usage().entries <= 10, cache.limits.entries, cache.tune(batch=3)]) == [
            True,
            10,
            None,
        ]


def test_loads_and_writes_of_the_parent_s_threads_hold_up_nobody_in_the_child() -> None:
    cache = Guarded(memory(), FakeClock(), lambda: 0.5)

    def load(there: threading.Event, over: threading.Event) -> None:
        def slowly() -> bytes:
            there.set()
            over.wait(60.0)
            return b"parent's"

        cache.get_or_load("key", slowly, None)

    def look() -> list[object]:
        found = cache.get_or_load("key", lambda: b"child's", None)
        cache.set("key", b"written", None)
        cache.clear()
        loaded = cache.get_or_load("key", lambda: b"again", None)
        return [found.decode(), loaded.decode(), cache.get("key").decode()]  # type: ignore[union-attr]

    with another_thread(load):
        writing = Writing()
        cache._flights.begin_write("key", writing)
        cache._flights.begin_clear(writing)
        assert in_a_child(look) == ["child's", "again", "again"]
        writing.over = True
        cache._flights.end_clear()
        cache._flights.end_write("key", writing)
    assert cache.get("key") is MISSING


def test_a_loader_that_forks_ends_in_both_processes() -> None:
    flights = Flights()
    mine = Flight()
    flights.join("key", mine)
    other = Writing()
    flights.begin_write("other", other)

    def ends() -> list[object]:
        stored = flights.may_store(mine)
        mine.landed = other.over = True
        flights.land("key", mine)
        flights.end_write("other", other)
        again = Writing()
        flights.begin_write("key", again)
        again.over = True
        flights.end_write("key", again)
        return [stored, flights.join("key", Flight())[1]]

    assert in_a_child(ends) == [True, True]
    assert ends() == [True, True]


def test_what_is_forgotten_is_not_kept_for_the_sake_of_children() -> None:
    from fednode.cache import fork_safety as forked

    before = len(forked._alive)
    tallies = [Tally() for _ in range(50)]
    assert len(forked._alive) == before + 50
    del tallies
    assert len(forked._alive) == before


def test_every_module_with_a_lock_says_what_a_child_makes_of_it() -> None:
    """A new lock in a cache without `after_fork` is a child that hangs."""
    making = re.compile(r"\b(?:Lock|RLock|Condition|Semaphore|Thread)\(")
    folder = Path(fednode.cache.__file__).parent
    modules = {path.name: path.read_text() for path in folder.glob("*.py")}
    locked = {name for name, text in modules.items() if making.search(text)}
    silent = {name for name in locked if "def after_fork" not in modules[name]}
    assert len(locked) >= 12
    assert silent <= {"redis_lease.py"}


class Unmendable:
    def after_fork(self) -> None:
        raise OSError("nothing works here")


def test_what_cannot_be_mended_keeps_nothing_else_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: told.append(repr(raised.exc_value)))
    first, cache = Unmendable(), MemoryBackend(FakeClock(), ROOMY, shards=1)
    mend_after_fork(first)
    after = MemoryBackend(FakeClock(), ROOMY, shards=1)
    with held_elsewhere(cache._shards[0]._lock, after._shards[0]._lock):
        found = in_a_child(lambda: [told, *(str(one.get("key")) for one in (cache, after))])
    assert isinstance(found, list) and found[1:] == [str(MISSING)] * 2
    assert len(found[0]) == 1 and "nothing works here" in found[0][0]
