"""`Chunked`: the kit and the walk over two inner backends; lost and foreign pieces; leftovers of a killed process."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, rule
from kit.cache.backend import BackendKit, same
from kit.cache.backend_machine import BackendMachine
from kit.clocks import FakeClock

from fednode.cache import MISSING, CacheBackend, FileBackend, Limits, MemoryBackend, StoreFull, TooLarge, WhenFull
from fednode.cache.memory.policies import POLICIES
from fednode.cache.values.codec import Undecodable
from fednode.cache.values.pieces import Damaged, Manifest
from fednode.cache.wrappers.chunked import Chunked
from fednode.cache.wrappers.piece_index import piece_names, record_in
from fednode.errors import StoreError

ROOMY = Limits(entries=10_000, total_bytes=1 << 24, value_bytes=1 << 12)
BIG = np.arange(1_000, dtype=np.float64)


def over(inner: CacheBackend, piece_bytes: int = 1_000) -> Chunked:
    return Chunked(inner, piece_bytes, value_bytes=1 << 16)


def filled() -> tuple[MemoryBackend, Chunked]:
    inner = MemoryBackend(FakeClock(), ROOMY)
    chunked = over(inner)
    chunked.set("big", BIG, None)
    return inner, chunked


class TestChunked(BackendKit):
    def make(self, clock: FakeClock, limits: Limits) -> Chunked:
        return Chunked(MemoryBackend(clock, limits, shards=1), min(100, limits.value_bytes), limits.value_bytes)


class TestChunkedWithRoomForAllInPieces(BackendKit):
    """One piece a byte or two: everything that can come in pieces does."""

    def make(self, clock: FakeClock, limits: Limits) -> Chunked:
        if limits.total_bytes == 20:
            pytest.skip("pieces carry manifests: no such small limits hold for them")
        inner = Limits(1 << 20, 1 << 28, 1 << 16)
        return Chunked(
            MemoryBackend(clock, inner),
            min(limits.value_bytes, max(9, limits.value_bytes // 5_000)),
            limits.value_bytes,
        )


class ChunkedMachine(BackendMachine):
    """Usage counts pieces, so here it is no value's; instead no piece may outlive its value."""

    def make(self, clock: FakeClock, limits: Limits) -> Chunked:
        self.inner = MemoryBackend(clock, limits)
        return Chunked(self.inner, 16, limits.value_bytes)

    @rule()
    def sweep(self) -> None:
        assert self.backend.sweep() >= 0
        self.model = self.live()
        pieces = {name.split(":", 2)[2] for name in self.inner.keys("p")}
        assert pieces <= self.live().keys()

    @invariant()
    def limits_hold_and_pins_are_counted(self) -> None:
        pinned = [held for held in self.live().values() if held.pinned]
        assert (self.backend.usage().pinned_entries >= len(pinned)) and (self.backend.usage().damaged == 0)


TestChunkedMachine = ChunkedMachine.TestCase
TestChunkedMachine.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


def test_a_value_over_what_the_inner_takes_comes_back_whole() -> None:
    inner, chunked = filled()
    assert 8 * 1_000 // 1_000 < inner.usage().entries < 12
    back = chunked.get("big")
    assert isinstance(back, np.ndarray) and back.dtype == BIG.dtype and not back.flags.writeable
    assert np.array_equal(back, BIG)
    assert list(chunked.keys()) == ["big"]
    with pytest.raises(TooLarge, match="65537 bytes"):
        chunked.set("big", bytes(65_537), None)
    assert np.array_equal(np.asarray(chunked.get("big")), BIG)


@pytest.mark.parametrize("way", ["set", "small", "pin", "delete", "clear", "expire", "sweep"])
def test_no_piece_of_an_old_value_stays(way: str) -> None:
    clock = FakeClock()
    inner = MemoryBackend(clock, ROOMY)
    chunked = over(inner)
    chunked.set("big", BIG, 5.0)
    if way == "set":
        chunked.set("big", BIG[::-1].copy(), 5.0)
    elif way == "small":
        chunked.set("big", b"small", None)
    elif way == "pin":
        chunked.pin("big", BIG)
        assert inner.usage().pinned_entries == inner.usage().entries
    elif way == "delete":
        assert chunked.delete("big") and not chunked.delete("big")
    elif way == "clear":
        chunked.clear()
    else:
        clock.sleep(5.0)
        assert chunked.get("big") is MISSING if way == "expire" else (chunked.sweep(), chunked.sweep()) == (1, 0)
    left = {"set": 1 + 9, "pin": 1 + 9, "small": 1, "delete": 0, "clear": 0, "expire": 0, "sweep": 0}[way]
    assert inner.usage().entries == left


def test_a_lost_or_changed_piece_makes_the_value_a_miss_and_frees_the_rest() -> None:
    for spoil in ("delete", "change", "swap"):
        inner, chunked = filled()
        pieces = sorted(inner.keys("p"))
        if spoil == "delete":
            inner.delete(pieces[3])
        elif spoil == "change":
            inner.set(pieces[3], bytes(1_000), None)
        else:
            one, other = inner.get(pieces[3]), inner.get(pieces[4])
            inner.set(pieces[3], other, None)
            inner.set(pieces[4], one, None)
        assert chunked.get_many(["big"]) == {}
        assert (chunked.usage().damaged, inner.usage().entries) == (1, 0)
        chunked.set("big", BIG, None)
        assert np.array_equal(np.asarray(chunked.get("big")), BIG)


def test_a_value_that_looks_like_a_manifest_is_a_value() -> None:
    inner, chunked = filled()
    manifest = inner.get("vbig")
    chunked.set("copy", manifest, None)
    assert chunked.get("copy") == manifest
    assert chunked.get("big") is not MISSING


def test_a_value_that_the_inner_has_no_room_for_is_refused_and_leaves_nothing() -> None:
    inner = MemoryBackend(FakeClock(), Limits(100, 5_000, 2_000), shards=1)
    chunked = over(inner)
    with pytest.raises(StoreFull, match="no room"):
        chunked.set("big", BIG, None)
    with pytest.raises(StoreFull):
        chunked.pin("big", BIG)
    assert (chunked.get("big"), list(inner.keys())) == (MISSING, [])


def test_a_restart_keeps_values_and_frees_what_no_manifest_names(tmp_path: Path) -> None:
    with FileBackend(tmp_path, FakeClock(), ROOMY, WhenFull.EVICT) as inner:
        over(inner).pin("big", BIG)
        inner.set(f"p{'0' * 32}:0:big", bytes(10), None)
        inner.set(f"p{'0' * 32}:1:never:written", bytes(10), None)
        before = inner.usage().entries
    with FileBackend(tmp_path, FakeClock(), ROOMY, WhenFull.EVICT) as inner:
        chunked = over(inner)
        assert inner.usage().entries == before - 2
        assert np.array_equal(np.asarray(chunked.get("big")), BIG)
        chunked.delete("big")
        assert list(inner.keys()) == []


def test_readers_of_a_value_that_is_overwritten_see_the_old_or_the_new_one() -> None:
    chunked = over(MemoryBackend(FakeClock(), ROOMY))
    values = [bytes([number]) * 5_000 for number in range(4)]
    chunked.set("key", values[0], None)
    seen: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(chunked.get("key"))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(150):
        chunked.set("key", values[turn % 4], None)
    done.set()
    for reader in readers:
        reader.join()
    assert all(one in values for one in seen)
    assert chunked.usage().damaged == 0


def full(policy: str) -> tuple[MemoryBackend, Chunked]:
    """An inner cache full of small values, each read since: a policy that counts reads prefers them to newcomers."""
    inner = MemoryBackend(FakeClock(), Limits(60, 1 << 16, 1 << 10), policy=policy, shards=1)
    chunked = Chunked(inner, piece_bytes=1_000, value_bytes=1 << 14)
    for number in range(60):
        chunked.set(str(number), b"small", None)
        chunked.get(str(number))
    return inner, chunked


@pytest.mark.parametrize("policy", POLICIES)
def test_a_value_in_pieces_is_there_after_its_set_however_full_the_inner_is(policy: str) -> None:
    inner, chunked = full(policy)
    for number in range(40):
        value = bytes([number]) * 6_000
        chunked.set(f"big {number}", value, 50.0)
        assert chunked.get(f"big {number}") == value
    usage = inner.usage()
    assert (usage.pinned_entries, usage.entries <= 60) == (0, True)


def test_what_was_evicted_is_forgotten_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fednode.cache.wrappers.chunked._SLACK", 10)
    inner, chunked = full("lru")
    chunked._most_split = 10
    for number in range(500):
        chunked.set(f"big {number}", bytes(2_500), None)
        assert len(chunked._index) <= 2 * 60 + 11
    there = {name[1:] for name in inner.keys("v")}
    assert chunked._drop_gone() >= 0
    assert set(chunked._index._noted) == {key for key in there if key.startswith("big")}


def test_an_unpinning_that_fails_leaves_nothing_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, chunked = full("lfu")
    real, calls = inner.set, []

    def fail_late(place: str, value: object, ttl: float | None) -> None:
        calls.append(place)
        # after the try without pins and the manifest, among the pieces
        if len(calls) == 6 + 1 + 3:
            raise StoreError("the disk is away")
        real(place, value, ttl)

    monkeypatch.setattr(inner, "set", fail_late)
    with pytest.raises(StoreError, match="away"):
        chunked.set("big", bytes(5_800), None)
    assert (chunked.get("big"), inner.usage().pinned_entries, list(inner.keys("p"))) == (MISSING, 0, [])


PAIRS: list[Any] = [
    (np.zeros(3), np.zeros(3)),
    (np.zeros(3), b"record"),
    (["list"], b"record"),
    ("\0pieces", np.zeros(3)),
    ("\0pieces", b"no record"),
    ("\0pieces", b""),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(type(one).__name__ for one in pair))
@pytest.mark.parametrize("times", [1, 400])
def test_a_pair_of_anything_is_a_value(pair: Any, times: int) -> None:
    _, chunked = filled()
    value = pair if times == 1 else (pair[0], np.zeros(3 * times))
    for store in (lambda key: chunked.set(key, value, None), lambda key: chunked.pin(key, value)):
        store("pair")
        assert same(chunked.get("pair"), value) and same(chunked.get_many(["pair"])["pair"], value)
    assert same(over(chunked._inner).get("pair"), value)


@pytest.mark.parametrize("shards", [1, 8])
def test_a_value_that_is_refused_costs_nothing(shards: int) -> None:
    inner = MemoryBackend(FakeClock(), Limits(100, 1 << 20, 1 << 14), shards=shards)
    chunked = Chunked(inner, piece_bytes=1 << 10, value_bytes=1 << 19)
    for number in range(40):
        chunked.set(f"small {number}", b"small", None)
    for old in (b"old" * 10_000, b"small"):
        chunked.set("big", old, None)
        there, before = sorted(chunked.keys()), chunked.usage()
        for store in (chunked.pin, lambda key, value: chunked.set(key, value, 5.0)):
            for size in (200 << 10, 101 << 10):
                with pytest.raises(StoreFull, match="no room"):
                    store("big", bytes(size))
        assert chunked.get("big") == old and sorted(chunked.keys()) == there
        after = chunked.usage()
        assert (after.refusals, after.evictions) == (before.refusals + 4, before.evictions)
    # the room that pins take is no room
    for number in range(50 if shards == 1 else 30):
        chunked.pin(f"pin {number}", b"p")
    there, left = sorted(chunked.keys()), chunked.get("big")
    with pytest.raises(StoreFull, match="no room"):
        chunked.set("big", bytes(90 << 10), None)
    assert sorted(chunked.keys()) == there and chunked.get("big") == left


def test_a_folder_too_refuses_before_anything_makes_way(tmp_path: Path) -> None:
    with FileBackend(tmp_path, FakeClock(), Limits(20, 1 << 20, 1 << 14), WhenFull.EVICT) as inner:
        chunked = Chunked(inner, piece_bytes=1 << 10, value_bytes=1 << 19)
        chunked.set("big", b"old" * 1_000, None)
        chunked.set("small", b"small", None)
        with pytest.raises(StoreFull, match="no room"):
            chunked.set("big", bytes(30 << 10), None)
        assert (chunked.get("big"), chunked.get("small")) == (b"old" * 1_000, b"small")


def test_what_another_thread_changes_meanwhile_is_counted_as_it_is_stored() -> None:
    import fednode.cache.wrappers.chunked as module

    _, chunked = filled()
    value: list[Any] = [b"1"]
    real = module.size_of

    def size_then_grow(given: Any) -> int:
        size = real(given)
        value[0] = b"2" * 2_000
        return size

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "size_of", size_then_grow)
        chunked.set("key", value, None)
    # too large for the inner cache by then: it went there in pieces
    assert chunked.get("key") == [b"2" * 2_000]


def test_what_is_asked_wrongly_is_told_at_once() -> None:
    _, chunked = filled()
    for wrong in (5, None, b"key", np.str_("big")):
        for call in (chunked.keys, chunked.get, chunked.delete, lambda key: chunked.get_many(["big", key])):
            with pytest.raises(TypeError, match="cache keys must be str"):
                call(wrong)  # type: ignore[arg-type]
    for items in ([("a", 1)], None, 5):
        with pytest.raises(TypeError, match="set_many takes a dict"):
            chunked.set_many(items, None)  # type: ignore[arg-type]
    assert list(chunked.keys()) == ["big"]


@pytest.mark.parametrize("name", ["pabc", "p", f"p{'0' * 32}", f"p{'0' * 32}:x:big", "p1:0:big"])
def test_a_key_below_that_is_nobody_s_is_let_alone(name: str) -> None:
    inner, _ = filled()
    inner.set(name, b"foreign", None)
    chunked = over(inner)
    assert inner.get(name) == b"foreign" and np.array_equal(np.asarray(chunked.get("big")), BIG)


def test_what_fits_its_digest_and_cannot_be_read_here_is_a_miss_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    _, chunked = filled()

    def fails(data: bytes) -> object:
        raise error("for the test")

    for error, outcome in ((Undecodable, MISSING), (RecursionError, None), (MemoryError, None), (RuntimeError, None)):
        with monkeypatch.context() as patched:
            patched.setattr("fednode.cache.wrappers.chunked.decode", fails)
            if outcome is MISSING:
                assert chunked.get("big") is MISSING and chunked.usage().damaged == 1
            else:
                with pytest.raises(error):
                    chunked.get("big")
        assert np.array_equal(np.asarray(chunked.get("big")), BIG)


# --- an inner cache that fails


class World:
    """A cache over `inner`, which is nearly full, with a value in pieces that one call overwrites."""

    def __init__(self, inner: MemoryBackend) -> None:
        self.inner = inner
        self.cache = Chunked(inner, piece_bytes=200, value_bytes=1 << 12)
        self.cache.set("key", OLD, None)
        for number in range(3):
            self.cache.set(f"other {number}", b"o", None)


OLD, NEW = b"o" * 350, b"n" * 450
CALLS: dict[str, Callable[[Chunked], object]] = {
    "set": lambda cache: cache.set("key", NEW, None),
    "small": lambda cache: cache.set("key", b"small", 5.0),
    "pin": lambda cache: cache.pin("key", NEW),
    "delete": lambda cache: cache.delete("key"),
}


def check_settled(world: World, *, pinned: bool) -> None:
    """The next call frees what was left; the old value stands there, the new one, or none."""
    world.cache.set("next", b"1", None)
    found = world.cache.get("key")
    assert found is MISSING or found in (OLD, NEW, b"small")
    record = record_in(world.inner.get("vkey"))
    named = set() if record is None else set(piece_names("key", Manifest.read(record, 1 << 20)))
    # what was evicted leaves pieces until they are looked for
    world.cache._drop_gone()
    assert set(world.inner.keys("p")) == (named if found is not MISSING else set())
    usage = world.inner.usage()
    assert usage.pinned_entries == (len(named) + 1 if pinned and found == NEW else 0)
    # a piece that was evicted is a value that cannot be read
    assert world.cache.usage().damaged == 0 or usage.evictions > 0
    world.cache.set("key", NEW, None)
    assert world.cache.get("key") == NEW
    world.cache.delete("key")
    assert list(world.inner.keys("p")) == [] and world.inner.usage().pinned_entries == 0


class Moody(MemoryBackend):
    """Refuses the call of this number, and the ones after it while `for_good`."""

    until_failure, for_good = 1 << 30, False

    def fail(self) -> None:
        self.until_failure -= 1
        if self.until_failure == 0 or (self.for_good and self.until_failure < 0):
            raise StoreError("away, for the test")

    def set(self, key: str, value: object, ttl: float | None) -> None:
        self.fail()
        super().set(key, value, ttl)

    def pin(self, key: str, value: object) -> None:
        self.fail()
        super().pin(key, value)

    def delete(self, key: str) -> bool:
        self.fail()
        return super().delete(key)

    def get(self, key: str) -> object:
        self.fail()
        return super().get(key)


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_cache_that_fails_at_any_call_keeps_no_piece_for_good(name: str, for_good: bool) -> None:
    for at in range(1, 60):
        inner = Moody(FakeClock(), Limits(8, 1 << 16, 1 << 10), policy="lfu", shards=1)
        world = World(inner)
        inner.until_failure, inner.for_good = at, for_good
        with contextlib.suppress(StoreError):
            CALLS[name](world.cache)
        reached = inner.until_failure <= 0
        inner.until_failure = 1 << 30
        check_settled(world, pinned=name == "pin")
        if not reached:
            return
    raise AssertionError("the call makes no end of calls")


def test_damage_is_no_error_of_ours() -> None:
    assert not issubclass(Damaged, (ValueError, RuntimeError))


def test_sizes_with_which_nothing_is_ever_cut_are_refused() -> None:
    memory = MemoryBackend(FakeClock(), Limits(10, 1 << 20, 1 << 16))
    with pytest.raises(ValueError, match="never cut into pieces of 100 bytes"):
        Chunked(memory, piece_bytes=100, value_bytes=99)
    assert str(Chunked(memory, piece_bytes=100, value_bytes=100)) == "this process's memory"
