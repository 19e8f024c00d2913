"""A call of `FileBackend` that Ctrl-C or the end of the stack cuts short is done or not done, after a restart too."""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kit.cache.backend import same
from kit.cache.interrupts import after_every_depth, after_every_interrupt, nothing_held
from kit.clocks import FakeClock
from kit.folders import opened, value_files

from fednode.cache import MISSING, FileBackend, Limits, WhenFull
from fednode.cache.values.codec import encode, size_of

# what was interrupted in a destructor has no caller to tell
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
LIMITS = Limits(3, 1_000, 500)
NESTED: Any = [[[1, {"a": (2,)}]]]
OLD = {"key": b"old", "pinned": NESTED, "short": b"short"}
Call = Callable[[FileBackend], object]


@pytest.fixture(autouse=True, scope="module")
def lazy_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@dataclass
class World:
    backend: FileBackend
    clock: FakeClock
    folder: Path


def worlds(tmp_path: Path, when_full: WhenFull = WhenFull.EVICT) -> Callable[[], World]:
    numbers = itertools.count()

    def make() -> World:
        clock, folder = FakeClock(), tmp_path / str(next(numbers))
        backend = opened(folder, clock, LIMITS, when_full)
        backend.set("key", OLD["key"], None)
        backend.pin("pinned", OLD["pinned"])
        backend.set("short", OLD["short"], 5.0)
        return World(backend, clock, folder)

    return make


CALLS: dict[str, tuple[Call, dict[str, tuple[object, ...]]]] = {
    "get": (lambda one: one.get("pinned"), {}),
    "set": (lambda one: one.set("key", b"new", None), {"key": (b"new",)}),
    "evicting": (lambda one: one.set("new", b"new", 5.0), {"new": (b"new", MISSING), "key": (MISSING,)}),
    "pin": (lambda one: one.pin("key", b"new"), {"key": (b"new",)}),
    "unpin": (lambda one: one.set("pinned", b"new", None), {"pinned": (b"new",)}),
    "delete": (lambda one: one.delete("pinned"), {"pinned": (MISSING,)}),
    "clear": (lambda one: one.clear(), dict.fromkeys(OLD, (MISSING,))),
    "tune": (lambda one: one.tune(Limits(2, 1_000, 500)), {"key": (MISSING,)}),
}
READS: dict[str, Call] = {
    "get_many": lambda one: one.get_many(["key", "pinned", "absent"]),
    "keys": lambda one: list(one.keys()),
    "usage": lambda one: one.usage(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("cut_short", [after_every_interrupt, after_every_depth])
def test_a_call_that_was_cut_short_is_done_or_not_done(
    tmp_path: Path, name: str, cut_short: Callable[[Callable[[], World], Callable[[World], object]], Iterator[World]]
) -> None:
    call, changes = CALLS[name]
    seen = 0
    for world in cut_short(worlds(tmp_path), lambda world: call(world.backend)):
        seen += 1
        found = check_settled(world, {key: (OLD.get(key, MISSING), *changes.get(key, ())) for key in {*OLD, *changes}})
    assert seen > 2
    # the last one came to its end
    assert all(same(found[key], wanted[0]) for key, wanted in changes.items())


@pytest.mark.parametrize("name", READS)
def test_a_reader_that_ran_out_of_stack_changed_nothing(tmp_path: Path, name: str) -> None:
    for world in after_every_depth(worlds(tmp_path), lambda world: READS[name](world.backend)):
        check_settled(world, {key: (value,) for key, value in OLD.items()})


@pytest.mark.parametrize("cut_short", [after_every_interrupt, after_every_depth])
@pytest.mark.parametrize("name", ["sweep", "set"])
def test_what_expires_meanwhile_is_gone(tmp_path: Path, name: str, cut_short: Any) -> None:
    calls: dict[str, Call] = {
        "sweep": lambda one: one.sweep(),
        "set": lambda one: one.set("short", b"new", 5.0),
    }

    def make() -> World:
        world = made()
        world.clock.sleep(10.0)
        return world

    made = worlds(tmp_path)
    for world in cut_short(make, lambda world: calls[name](world.backend)):
        check_settled(world, {"key": (b"old",), "pinned": (NESTED,), "short": (MISSING, b"new")})


def check_settled(world: World, may_be: dict[str, tuple[object, ...]]) -> dict[str, object]:
    """What is there, the same after a restart; each key has one of the values that it may have."""
    backend = world.backend
    nothing_held(backend)
    found = {key: backend.get(key) for key in may_be}
    assert all(any(same(found[key], one) for one in allowed) for key, allowed in may_be.items()), found
    there = {key: value for key, value in found.items() if value is not MISSING}
    assert sorted(backend.keys()) == sorted(there)
    check_usage(backend, there)
    # what is deleted now stays deleted, and what is set stays set
    if "key" in there:
        assert backend.delete("key")
    backend.set("last", b"last", None)
    kept = backend.get_many(backend.keys())
    assert "key" not in kept and kept["last"] == b"last"
    check_usage(backend, kept)
    assert len(value_files(world.folder)) == len(kept)
    backend.close()
    with opened(world.folder, world.clock, LIMITS, WhenFull.EVICT) as again:
        assert set(again.keys()) == kept.keys()
        assert all(same(again.get(key), value) for key, value in kept.items())
        assert again.damaged == 0 and len(value_files(world.folder)) == len(kept)
    return found


def check_usage(backend: FileBackend, there: dict[str, object]) -> None:
    usage = backend.usage()
    assert (usage.entries, usage.bytes, usage.damaged) == (len(there), sum(map(size_of, there.values())), 0)
    # nothing but these is ever pinned
    assert usage.pinned_entries <= len({"key", "pinned"} & there.keys())


@pytest.mark.parametrize("cut_short", [after_every_interrupt, after_every_depth])
def test_an_opening_or_a_closing_that_was_cut_short_leaves_the_folder_to_the_next(
    tmp_path: Path, cut_short: Any
) -> None:
    made = worlds(tmp_path)

    def make() -> World:
        world = made()
        world.backend.close()
        return world

    def reopen(world: World) -> None:
        world.backend = opened(world.folder, world.clock, LIMITS, WhenFull.EVICT)
        world.backend.close()

    for world in cut_short(make, reopen):
        world.backend.close()
        with opened(world.folder, world.clock, LIMITS, WhenFull.EVICT) as again:
            assert all(same(again.get(key), value) for key, value in OLD.items())
            assert again.damaged == 0


def test_reading_near_the_end_of_the_stack_destroys_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as backend:
        backend.pin("deep", NESTED)
        answers: list[object] = []
        for _ in after_every_depth(lambda: None, lambda _: answers.append(backend.get("deep"))):
            assert all(same(answer, NESTED) for answer in answers)
        assert len(answers) == 1 and backend.damaged == 0
        assert encode(backend.get("deep")) == encode(NESTED)
