"""Leases of runs on a server: the keys of a killed run are removed when a later run starts.

A run has two keys: a mark without expiry, `fednode.<run>.leased`, and a lease, `fednode.<run>.lease`, whose life its
process extends. A mark without a lease belongs to a dead run. Keys of a run without a mark are never touched.
"""

import logging
from collections.abc import Sequence
from threading import Event, Thread
from typing import Final, Self

from fednode.cache.redis.address import Names, is_namespace
from fednode.cache.redis.client import Link
from fednode.errors import StoreError

log = logging.getLogger("fednode.cache")

LEASE_SECONDS: Final = 86_400.0
"""A run that is stopped, suspended or cut off from its server for less than this loses nothing."""
RENEW_SECONDS: Final = 60.0
_PREFIX: Final = "fednode."
_MARK: Final = ".leased"


def namespace_of(run: str, part: str) -> str:
    """The namespace of one store of a run."""
    return f"{_PREFIX}{run}.{part}"


class Lease:
    """The lease of one run: within `with`, a thread renews it every `every` seconds, for `life` seconds each.

    At the end of the block mark and lease are removed; after `keep` only the lease, so that the next run removes what
    this one left. Raises `StoreError`, `ConfigError` for a run name that cannot be part of a namespace.
    """

    def __init__(self, link: Link, run: str, life: float = LEASE_SECONDS, every: float = RENEW_SECONDS) -> None:
        Names(f"{_PREFIX}{run}")
        self._link = link
        self._run = run
        self._life = round(life * 1000)
        self._every = every
        self._kept = False
        self._ended = Event()
        self._thread = Thread(target=self._renew_always, name="fednode-lease", daemon=True)

    def __enter__(self) -> Self:
        self.renew()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        try:
            if not self._kept:
                self._link.run([("UNLINK", _mark(self._run))])
            self._link.run([("UNLINK", _lease(self._run))])
        except StoreError as error:
            log.warning("the lease of this run stays on the cache server: %s", error)

    def renew(self) -> None:
        """Renew it now. Raises `StoreError`."""
        # the lease first: a mark without a lease would look like a dead run's
        # PEXPIRE first: a server at its maxmemory refuses SET, but extends lives
        if self._link.run([("PEXPIRE", _lease(self._run), self._life)]) != [1]:
            self._link.run([("SET", _lease(self._run), b"", "PX", self._life)])
        self._link.run([("SET", _mark(self._run), b"")])

    def keep(self) -> None:
        """Let the next run remove the keys of this one, because they could not be removed now."""
        self._kept = True

    def _renew_always(self) -> None:
        while not self._ended.wait(self._every):
            try:
                self.renew()
            except StoreError:
                # the life is long: the next attempt comes in time
                continue


def sweep_dead(link: Link, parts: Sequence[str]) -> tuple[str, ...]:
    """Remove the keys of dead runs in their namespaces of these parts; the runs. Raises `StoreError`."""
    dead = tuple(run for run in _marked(link) if link.run([("EXISTS", _lease(run))]) == [0])
    for run in dead:
        for part in parts:
            link.remove(Names(namespace_of(run, part)).everything)
        # the mark last, so that a sweep that fails is repeated
        link.run([("UNLINK", _mark(run))])
    return dead


def _marked(link: Link) -> list[str]:
    found = {name.decode(errors="replace") for names in link.scan(_mark("*")) for name in names}
    runs = sorted(name[len(_PREFIX) : -len(_MARK)] for name in found)
    # another name might make a pattern that matches other keys
    return [run for run in runs if run and is_namespace(f"{_PREFIX}{run}")]


def _mark(run: str) -> bytes:
    return f"{_PREFIX}{run}{_MARK}".encode()


def _lease(run: str) -> bytes:
    return f"{_PREFIX}{run}.lease".encode()
