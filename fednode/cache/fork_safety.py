"""What a forked child makes of the caches it finds in its memory: locks that nobody holds, and a state that is whole.

A fork copies locks as they are, and not the threads that hold them: without this a child waits for ever for a thread
that it does not have. Nothing here costs anything until a process forks.
"""

import os
from itertools import count
from threading import Event
from typing import Final, Protocol
from weakref import ref


class Forkable(Protocol):
    """What is mended in a child."""

    def after_fork(self) -> None:
        """Take fresh locks, and let go what threads of the parent had begun. One thread runs; nothing may wait."""
        ...


_alive: Final[dict[int, "ref[Forkable]"]] = {}
_numbers: Final = count()


def mend_after_fork(one: Forkable) -> None:
    """Have `one` mended in every child for as long as it is there.

    In the order of these calls: what stands on others calls it after they did, and finds them mended.
    """
    number = next(_numbers)
    _alive[number] = ref(one, lambda _: _alive.pop(number, None))


class _Lock(Protocol):
    def acquire(self, blocking: bool = ...) -> bool: ...  # noqa: FBT001 - the library's

    def release(self) -> None: ...


def held_by_another(lock: _Lock) -> bool:
    """Whether a thread that is not in this process holds `lock`, just after a fork. Of a `Lock`: whether anybody does.

    The thread that forked may hold an `RLock` itself: it goes on in the child, and lets go of it there.
    """
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


def fresh_event(event: Event) -> Event:
    """An event in the state of `event`, whose own lock may be held for ever."""
    fresh = Event()
    if event.is_set():
        fresh.set()
    return fresh


def _mend_all() -> None:
    failed: list[Exception] = []
    for found in tuple(_alive.values()):
        one = found()
        if one is None:
            continue
        try:
            one.after_fork()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are mended
            failed.append(error)
    if failed:
        # where the fork was asked for nobody can catch it: the interpreter writes it to the child's stderr
        raise ExceptionGroup("caches of the parent that a forked child cannot use", failed)


os.register_at_fork(after_in_child=_mend_all)
