"""A call of a cache that is interrupted, or runs out of stack, holds nothing, spoils nothing, and may be made again."""

import threading
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
from kit.cache.interrupts import after_every_depth, after_every_interrupt, interrupted, nothing_held
from kit.clocks import FakeClock

from fednode.cache import MISSING, Limits, MemoryBackend
from fednode.cache.memory.policies import POLICIES
from fednode.cache.wrappers.counted import Counted
from fednode.cache.wrappers.counter import Tally
from fednode.cache.wrappers.loading import Guarded, GuardSettings
from fednode.cache.wrappers.single_flight import Flight, Flights, Writing

SMALL = Limits(entries=12, total_bytes=4_000, value_bytes=400)
HELD = {"old": b"o" * 100, "mortal": b"m" * 100, "also": [1, [2]], "other": b"x"}


def memory(policy: str = "adaptive", shards: int = 3) -> MemoryBackend:
    return MemoryBackend(FakeClock(), SMALL, policy=policy, shards=shards)


def guarded() -> Guarded:
    return Guarded(memory(), FakeClock(), lambda: 0.5, GuardSettings(jitter=0.0))


def counted() -> Counted:
    return Counted(guarded())


def filled(make: Callable[[], MemoryBackend]) -> MemoryBackend:
    cache = make()
    cache.set_many({key: value for key, value in HELD.items() if key != "mortal"}, None)
    cache.set("mortal", HELD["mortal"], 50.0)
    cache.pin("kept", b"k" * 10)
    for number in range(5):
        cache.set(f"fill {number}", bytes(number), None)
    # every policy then has counts to keep
    for key in (*HELD, *HELD):
        cache.get(key)
    return cache


def below(cache: object) -> MemoryBackend:
    while not isinstance(cache, MemoryBackend):
        cache = cache._inner  # type: ignore[attr-defined]
    return cache


def reckoned(memory: MemoryBackend) -> list[int]:
    """What `usage` has to say, from the indexes alone."""
    entries = [entry for shard in memory._shards for entry in shard._entries.values()]
    pinned = [entry for entry in entries if entry.pinned]
    return [len(entries), sum(one.size for one in entries), len(pinned), sum(one.size for one in pinned)]


def check_agrees(cache: MemoryBackend) -> None:
    usage = cache.usage()
    assert [usage.entries, usage.bytes, usage.pinned_entries, usage.pinned_bytes] == reckoned(below(cache))
    assert usage.entries <= SMALL.entries and usage.bytes <= SMALL.total_bytes


def check_whole(cache: MemoryBackend) -> None:
    """Nothing is held, the counts are right, every verb works, and goes on to: limits hold while much is written."""
    nothing_held(cache)
    check_agrees(cache)
    inner = below(cache)
    for key, value in HELD.items():
        assert cache.get(key) in (value, b"new", b"loaded", MISSING)
    for number in range(40):
        cache.set(f"later {number}", bytes(30), 5.0 if number % 2 else None)
        assert cache.get(f"later {number}") == bytes(30)
    check_agrees(cache)
    inner._now.__self__.sleep(100.0)  # type: ignore[attr-defined]
    cache.sweep()
    assert all(shard._mortal == len(shard._expiries) == 0 for shard in inner._shards)
    for key in (*HELD, "kept"):
        cache.set(key, b"again", None)
        assert cache.get_many([key]) == {key: b"again"} and cache.delete(key)
    if isinstance(cache, (Guarded, Counted)):
        check_loads(cache)
    cache.clear()
    assert [getattr(cache.usage(), field.name) for field in fields(cache.usage())][:4] == [0, 0, 0, 0]


def check_loads(cache: Guarded | Counted) -> None:
    """Loads are stored, which they are not while a write of the key, or of all, is believed to be under way."""
    for key in (*HELD, "kept", "new", "fresh", "loaded", "anything"):
        cache.delete(key)
        assert cache.get_or_load(key, lambda: b"loaded", None) == b"loaded"
        assert cache.get(key) == b"loaded"


CALLS: dict[str, Callable[[MemoryBackend], object]] = {
    "get": lambda cache: cache.get("old"),
    "get_many": lambda cache: cache.get_many(["old", "absent", "mortal", "kept", "also"]),
    "set": lambda cache: cache.set("old", b"new", 20.0),
    "set and evict": lambda cache: cache.set("new", b"new" * 130, None),
    "set_many": lambda cache: cache.set_many({"old": b"new", "fresh": b"1", "mortal": b"new"}, 20.0),
    "pin": lambda cache: cache.pin("old", b"new"),
    "delete": lambda cache: cache.delete("mortal"),
    "clear": lambda cache: cache.clear(),
    "keys": lambda cache: list(cache.keys("o")),
    "sweep": lambda cache: (below(cache)._now.__self__.sleep(60.0), cache.sweep()),  # type: ignore[attr-defined]
    "expire": lambda cache: (below(cache)._now.__self__.sleep(60.0), cache.get("mortal")),  # type: ignore[attr-defined]
    "usage": lambda cache: cache.usage(),
    "tune": lambda cache: below(cache).tune(replace(SMALL, value_bytes=99), batch=2),
}
WAYS = {"interrupt": after_every_interrupt, "depth": after_every_depth}
MAKES = {"memory": memory, "guarded": guarded, "counted": counted}


LOADS: dict[str, Callable[[Guarded], object]] = {
    "hit": lambda cache: cache.get_or_load("old", lambda: b"loaded", None),
    "load": lambda cache: cache.get_or_load("loaded", lambda: b"loaded", 20.0),
    "nothing": lambda cache: cache.get_or_load("loaded", lambda: MISSING, 20.0),
    "no room": lambda cache: cache.get_or_load("loaded", lambda: bytes(500), 20.0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("make", MAKES)
def test_a_call_cut_short_at_any_step_leaves_the_cache_whole(make: str, call: str, way: str) -> None:
    worlds = 0
    for cache in WAYS[way](lambda: filled(MAKES[make]), CALLS[call]):
        check_whole(cache)
        worlds += 1
    assert worlds > 3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call", LOADS)
@pytest.mark.parametrize("make", [guarded, counted])
def test_a_load_cut_short_at_any_step_holds_nobody_up(make: Callable[[], MemoryBackend], call: str, way: str) -> None:
    worlds = 0
    for cache in WAYS[way](lambda: filled(make), LOADS[call]):
        check_whole(cache)
        worlds += 1
    assert worlds > 3


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("call", ["get", "get_many", "set", "set and evict", "pin", "delete", "sweep", "expire"])
def test_every_policy_is_whole_again(policy: str, call: str) -> None:
    for cache in after_every_interrupt(lambda: filled(lambda: memory(policy, shards=1)), CALLS[call]):
        check_whole(cache)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call", ["set", "pin"])
def test_what_was_being_overwritten_is_there_old_or_new_and_all_else_too(call: str, way: str) -> None:
    for cache in WAYS[way](lambda: filled(lambda: memory(shards=1)), CALLS[call]):
        found = {key: cache.get(key) for key in cache.keys("")}
        assert found == {**HELD, "kept": b"k" * 10, "old": found["old"], **{f"fill {n}": bytes(n) for n in range(5)}}
        assert found["old"] in (HELD["old"], b"new")
        check_agrees(cache)


def test_a_call_cut_short_while_it_mends_what_another_left_is_made_good_by_the_next() -> None:
    def torn() -> MemoryBackend:
        cache = filled(lambda: memory("lfu", shards=1))
        for at in range(1, 50):
            interrupted(lambda: cache.set("old", b"new", 20.0), at)
            if cache._shards[0]._torn:
                return cache
        raise AssertionError("nothing was torn")

    for cache in after_every_interrupt(torn, lambda cache: cache.get("other")):
        check_whole(cache)


@pytest.mark.parametrize("reads", [1, 3])
def test_a_count_that_was_read_while_interrupted_is_exact_all_the_same(reads: int) -> None:
    def raised() -> Tally:
        tally = Tally()
        tally.add(2)
        for _ in range(reads):
            tally.one()
            assert tally.value
        return tally

    for tally in after_every_interrupt(raised, lambda tally: tally.value):
        nothing_held(tally)
        assert (tally.value, tally.value) == (reads + 2, reads + 2)


def test_a_waiter_cut_short_leaves_the_flight_to_its_leader_and_the_others() -> None:
    """Each of many threads waits for one load and is interrupted at another step; then the load ends, for the rest."""
    flights = Flights()
    there, go, over = (threading.Event() for _ in range(3))
    led: list[Flight] = []

    def lead() -> None:
        leader = Flight()
        led.append(leader)
        with leader.door:
            flights.join("key", leader)
            there.set()
            go.wait(60.0)
            leader.landed = True
            flights.land("key", leader)
        over.set()

    threading.Thread(target=lead, daemon=True).start()
    assert there.wait(60.0)
    (leader,) = led

    def wait(_: Flights) -> bool:
        mine = Flight()
        try:
            with mine.door:
                flight, _current = flights.join("key", mine)
            return flights.wait(flight, 0.001)
        finally:
            mine.ahead = None

    for _ in after_every_interrupt(lambda: flights, wait):
        assert not leader.landed and not any(waiter.ahead for waiter in flights._waiting.values())
    go.set()
    assert over.wait(60.0)
    nothing_held(leader, flights)
    assert flights.join("key", Flight())[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("verb", ["write", "writes", "clear"])
def test_a_write_cut_short_at_any_step_leaves_another_of_the_key_under_way(verb: str, way: str) -> None:
    other = Writing()

    def begun() -> Flights:
        flights = Flights()
        flights.begin_write("key", other)
        if verb == "clear":
            flights.begin_clear(other)
        return flights

    def write(flights: Flights) -> None:
        mine = Writing()
        try:
            if verb == "clear":
                flights.begin_clear(mine)
            elif verb == "write":
                flights.begin_write("key", mine)
            else:
                flights.begin_writes(("more", "key"), mine)
        finally:
            mine.over = True
            if verb == "clear":
                flights.end_clear()
            elif verb == "write":
                flights.end_write("key", mine)
            else:
                flights.end_writes(("more", "key"), mine)

    for flights in WAYS[way](begun, write):
        nothing_held(flights)
        for key in ("key", "more"):
            flight = Flight()
            assert flights.join(key, flight)[0] is flight
            assert flights.may_store(flight) is (key == "more" and verb != "clear")


def test_the_kit_finds_what_an_interrupt_leaves_held() -> None:
    lock = threading.RLock()

    def by_hand(_: object) -> None:
        lock.acquire()
        try:
            len("work")
        finally:
            lock.release()

    left = []
    for _ in after_every_interrupt(lambda: lock, by_hand):
        try:
            nothing_held(lock)
        except AssertionError:
            lock.release()
            left.append("held")
    assert left == ["held"]


def test_the_kit_finds_what_a_full_stack_leaves_half_done() -> None:
    def deep(left: int) -> int:
        return left and deep(left - 1)

    done: list[list[str]] = []

    def call(world: list[str]) -> None:
        world.append("begun")
        deep(5)
        world.append("done")

    done.extend(after_every_depth(list, call))
    assert done[-1] == ["begun", "done"] and done.count(["begun"]) >= 5
