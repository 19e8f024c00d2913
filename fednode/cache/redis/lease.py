"""Which runs are alive on a server, so that what a killed run pinned there goes when a later one starts.

A run holds two keys: a mark without an expiry, `fednode.<run>.leased`, and a lease, `fednode.<run>.lease`, whose life
it extends as long as its process is there. A mark without a lease is that of a run that is dead. Keys of a run without
a mark are never touched.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from threading import Event, Thread
from typing import Final, Self

from fednode.cache.redis.address import Names
from fednode.cache.redis.client import Link
from fednode.errors import ConfigError, StoreError

log = logging.getLogger("fednode.cache")

LEASE_SECONDS: Final = 86_400.0
"""A run that is stopped, asleep or cut off from its server for less than this loses nothing."""
RENEW_SECONDS: Final = 60.0
_PREFIX: Final = "fednode."
_MARK: Final = ".leased"


def namespace_of(run: str, part: str) -> str:
    """What the keys of one store of a run begin with."""
    return f"{_PREFIX}{run}.{part}"


class Lease:
    """That one run is alive, said from `with` on by a thread of its own every `every` seconds, for `life` seconds each.

    At the end of the block the lease goes and the mark with it, unless `keep` was called: then whatever the run left is
    removed by the next one. Raises `StoreError`, `ConfigError` for a run whose name is no part of a namespace.
    """

    def __init__(self, link: Link, run: str, life: float = LEASE_SECONDS, every: float = RENEW_SECONDS) -> None:
        Names(f"{_PREFIX}{run}")
        self._link = link
        self._run = run
        self._life = round(life * 1000)
        self._every = every
        self._kept = False
        self._owner = os.getpid()
        self._ended = Event()
        self._thread = Thread(target=self._renew_always, name="fednode-lease", daemon=True)

    def __enter__(self) -> Self:
        self.renew()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._owner:
            # a forked child: the run is the parent's
            return
        self._ended.set()
        self._thread.join()
        try:
            if not self._kept:
                self._link.run([("UNLINK", _mark(self._run))])
            self._link.run([("UNLINK", _lease(self._run))])
        except StoreError as error:
            log.warning("the lease of this run stays on the cache server: %s", error)

    def renew(self) -> None:
        """Say it now. Raises `StoreError`."""
        # in this order: a mark is never there before its lease
        # a server at its maxmemory takes no SET, but extends what it has
        if self._link.run([("PEXPIRE", _lease(self._run), self._life)]) != [1]:
            self._link.run([("SET", _lease(self._run), b"", "PX", self._life)])
        self._link.run([("SET", _mark(self._run), b"")])

    def keep(self) -> None:
        """Something of this run could not be removed: let the next run do it."""
        self._kept = True

    def _renew_always(self) -> None:
        while not self._ended.wait(self._every):
            try:
                self.renew()
            except StoreError:
                # the life is long: the next attempt is as good
                continue


def sweep_dead(link: Link, parts: Sequence[str]) -> tuple[str, ...]:
    """Remove what dead runs left in their namespaces of these parts; the runs. Raises `StoreError`."""
    dead = tuple(run for run in _marked(link) if link.run([("EXISTS", _lease(run))]) == [0])
    for run in dead:
        for part in parts:
            for pattern in Names(namespace_of(run, part)).everything:
                for names in link.scan(pattern):
                    if names:
                        link.run([("UNLINK", name) for name in names])
        # last: a sweep that is cut short is taken up again
        link.run([("UNLINK", _mark(run))])
    return dead


def _marked(link: Link) -> Iterator[str]:
    seen: set[str] = set()
    for names in link.scan(_mark("*")):
        for name in names:
            run = name.decode(errors="replace")[len(_PREFIX) : -len(_MARK)]
            if run not in seen and _is_run(run):
                seen.add(run)
                yield run


def _is_run(name: str) -> bool:
    # a pattern made of anything else might match what is not that run's
    try:
        Names(f"{_PREFIX}{name}")
    except ConfigError:
        return False
    return bool(name)


def _mark(run: str) -> bytes:
    return f"{_PREFIX}{run}{_MARK}".encode()


def _lease(run: str) -> bytes:
    return f"{_PREFIX}{run}.lease".encode()
