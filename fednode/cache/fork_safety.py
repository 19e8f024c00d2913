"""A cache belongs to the process that made it: in a forked child every call on it raises `UsedAfterFork`.

A fork copies locks as they are, but not the threads that hold them, so a child that took one could wait for ever.
"""

import os
from collections.abc import Callable
from typing import Final, NoReturn
from weakref import WeakKeyDictionary

from fednode.errors import StoreError


class UsedAfterFork(StoreError):
    """The cache was made before this process was forked."""

    def __init__(self) -> None:
        super().__init__("this cache belongs to the parent process; make a new one in the forked child")


class _ForkedLock:
    """Stands in the place of a lock in a forked child."""

    def __enter__(self) -> NoReturn:
        raise UsedAfterFork

    def __exit__(self, *_: object) -> None:
        pass

    def acquire(self, *_: object, **__: object) -> NoReturn:
        raise UsedAfterFork


_owners: Final[WeakKeyDictionary[object, tuple[tuple[str, ...], Callable[[], object] | None]]] = WeakKeyDictionary()


def refuse_after_fork(owner: object, *locks: str, release: Callable[[], object] | None = None) -> None:
    """Make these locks of `owner` (attributes: a lock, or a tuple of locks) raise `UsedAfterFork` in forked children.

    So every method that takes one of them is refused there; a `close` that is to be harmless catches the error.
    `release` is called in the child first; it must not refer to `owner`, which would then live for ever.
    """
    _owners[owner] = (locks, release)


def _refuse_all() -> None:
    for owner, (locks, release) in tuple(_owners.items()):
        if release is not None:
            release()
        for name in locks:
            found = getattr(owner, name)
            setattr(owner, name, tuple(_ForkedLock() for _ in found) if type(found) is tuple else _ForkedLock())


os.register_at_fork(after_in_child=_refuse_all)
