"""Calls that are interrupted at each of their steps in turn, or run out of stack at each of their depths.

    for world in after_every_interrupt(make, lambda world: world.cache.set("key", b"new", None)):
        nothing_held(world)
        ...usage is right, later calls work: in as many fresh worlds as the call has steps, and in one left in peace

A step is where CPython itself lets a signal's handler raise: at the start of a function written in Python, after a
function written in C has returned, and where a loop goes round. Nothing else can be interrupted: a lock taken by `with`
(the library's own, in C) is always let go, and so is what stands right after a store to an attribute. No step comes
after a class was called, and none in another thread.
"""

import dis
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any, TypeVar

World = TypeVar("World")

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_ROUND = frozenset(
    code for name, code in dis.opmap.items() if "JUMP_BACKWARD" in name and not name.endswith("NO_INTERRUPT")
)
_MOST = 20_000


class Interrupt(KeyboardInterrupt):
    """The one that was planted."""


class _Fuse:
    """Raises at the `at`-th step, from 1, and only once."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.armed = True

    def profile(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call" or event == "c_return":
            self._step()

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode" and frame.f_code.co_code[frame.f_lasti] in _ROUND:
            self._step()
        return self.trace

    def _step(self) -> None:
        if self.armed:
            self.left -= 1
            if not self.left:
                self.armed = False
                raise Interrupt


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Whether `call` had an `at`-th step (from 1): it was then interrupted there. Its own errors go to the caller."""
    fuse = _Fuse(at)
    before = sys.getprofile(), sys.gettrace()
    collects = gc.isenabled()
    gc.disable()
    try:
        sys.settrace(fuse.trace)
        sys.setprofile(fuse.profile)
        call()
    except Interrupt:
        pass
    finally:
        there = not fuse.armed
        fuse.armed = False
        sys.setprofile(before[0])
        sys.settrace(before[1])
        if collects:
            gc.enable()
    return there


def after_every_interrupt(
    make: Callable[[], World], call: Callable[[World], object], *, every: int = 1
) -> Iterator[World]:
    """Worlds made by `make`, after `call` was interrupted at its first step, at its second, and so on to the last.

    `every`: at every so-manieth step, for a call with many. The last of them is one where `call` came to its end.
    `make` may be slow, and must make the same each time.
    """
    for at in count(1, every):
        assert at < _MOST, "the call has no end of steps"
        world = make()
        went_off = interrupted(lambda: call(world), at)  # noqa: B023 - called at once
        yield world
        if not went_off:
            return


def after_every_depth(make: Callable[[], World], call: Callable[[World], object]) -> Iterator[World]:
    """Worlds made by `make`, after `call` ran out of stack after one level, after two, until it had enough.

    The last of them is one where `call` came to its end.
    """
    for room in count():
        assert room < 500, "the call needs no end of stack"
        world = make()
        ran_out = _out_of_stack(lambda: call(world), room)  # noqa: B023 - called at once
        yield world
        if not ran_out:
            return


def _out_of_stack(call: Callable[[], object], room: int) -> bool:
    before, depth, frame = sys.getrecursionlimit(), 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    for limit in range(depth, before):
        # what C called into counts too, and is in no frame
        try:
            sys.setrecursionlimit(limit)
            break
        except RecursionError:
            continue
    try:
        sys.setrecursionlimit(sys.getrecursionlimit() + room)
        call()
    except RecursionError:
        return True
    finally:
        sys.setrecursionlimit(before)
    return False


def parts_of(one: object) -> Iterator[object]:
    """What an object of the caches is made of, and the locks in it."""
    seen: set[int] = set()
    waiting = [one]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, (list, tuple)):
            waiting += part
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, threading.Condition):
            waiting.append(part._lock)  # type: ignore[attr-defined]
        elif type(part).__module__.startswith("fednode.cache"):
            slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
            waiting += [getattr(part, name) for name in slots if name != "__weakref__" and hasattr(part, name)]
            waiting += vars(part).values() if hasattr(part, "__dict__") else []


def locks_of(one: object) -> list[object]:
    return [part for part in parts_of(one) if isinstance(part, _LOCKS)]


def nothing_held(*ones: object) -> None:
    """Fail where a lock in any of these objects is held, by this thread too. Objects of `fednode.cache`, or locks."""
    held: list[object] = []

    def look() -> None:
        for lock in (lock for one in ones for lock in locks_of(one)):
            if lock.acquire(blocking=False):  # type: ignore[attr-defined]
                lock.release()  # type: ignore[attr-defined]
            else:
                held.append(lock)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert not held, f"held after the call: {held}"
