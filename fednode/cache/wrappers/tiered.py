"""A near cache over a server: reads cost nothing while the server's own messages keep it fresh."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Final, Protocol, Self

from fednode.cache.backend import (
    MISSING,
    CacheBackend,
    Closed,
    Missing,
    Usage,
    Value,
    check_items,
    checked_keys,
    is_number,
)
from fednode.cache.fork_safety import UsedAfterFork, refuse_after_fork
from fednode.cache.redis.records import Lasting
from fednode.cache.redis.tracking import Changes
from fednode.clock import Clock
from fednode.errors import ConfigError, StoreError

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0


class ChangeFeed(Protocol):
    """A server's messages about changed keys: `Feed` is one."""

    def probe(self) -> None:
        """Write something that the feed must report."""
        ...

    def wait(self, seconds: float) -> Changes | None:
        """The changes of the next message; None if `seconds` pass. Raises `StoreError` for a feed that has ended."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Remote(CacheBackend, Protocol):
    """What a near cache needs of the backend behind it: `RedisBackend` is one."""

    @property
    def clock(self) -> Clock:
        """The clock by which values expire."""
        ...

    def get_lasting(self, key: str) -> Lasting | Missing:
        """`get`, with the seconds that the value has still to live."""
        ...

    def get_many_lasting(self, keys: Iterable[str]) -> dict[str, Lasting]:
        """`get_many`, with the seconds that the values have still to live."""
        ...

    def follow(self) -> ChangeFeed:
        """Every change, whoever makes it."""
        ...


@dataclass(frozen=True, slots=True)
class TierOptions:
    """Seconds: how long a copy is served while it is followed and while it is not; how often following is tried out.

    `heartbeat`: after so much silence a probe is written, whose message must come within as much again. Where the
    connection hangs unnoticed, a copy is stale for two of them and the time that the server is given to answer.
    """

    followed_ttl: float = 300.0
    unfollowed_ttl: float = 1.0
    heartbeat: float = 2.0

    def __post_init__(self) -> None:
        for seconds in (self.followed_ttl, self.unfollowed_ttl, self.heartbeat):
            if not is_number(seconds) or not 0 < seconds < 1e6:
                raise ConfigError(f"a near cache cannot work with a time of {seconds!r} s; give seconds above 0")


@dataclass(frozen=True, slots=True)
class Near:
    """State and counts of a near cache. `followed`: the server's messages keep it fresh; else only time does."""

    followed: bool
    hits: int
    misses: int
    invalidations: int
    falls: int
    """How often the feed was lost, and all copies with it."""
    local: Usage


class _RemoteRead:
    """One read of the remote under way since `began`; `stale` are the keys that changed meanwhile and are not kept."""

    __slots__ = ("began", "stale")

    def __init__(self, began: float) -> None:
        self.began = began
        self.stale: set[str] = set()


class Tiered:
    """A `CacheBackend`: copies in `local`, which must be empty and belong to it alone, of what `remote` holds.

    All writes go to `remote` first and drop the copy, so a caller sees what it wrote. While `near.followed`, another
    node's write is seen as soon as the server's message arrives. Where following fails, all copies are dropped and new
    ones live for `unfollowed_ttl` until it works again. No copy outlives its original's expiry, but for the moment that
    keeping it takes. `usage` is that of `remote`. One thread listens until `close`, after which calls raise `Closed`;
    use it with `with`.

    How a read, and a change by another node, interleave:

    1. A reads: no copy here, so A asks the server, and notes that it is reading the key.
    2. B, on another node, writes the key; the server's message about it arrives here before A's answer.
    3. The listening thread drops the copy, if there is one, and marks A's read as stale.
    4. A's answer arrives. It may be older than B's write: A gets it, but no copy of it is kept.
    """

    def __init__(self, local: CacheBackend, remote: Remote, options: TierOptions | None = None) -> None:
        self._local = local
        self._remote = remote
        self._options = options or TierOptions()
        self._lock = Lock()
        self._reads: dict[str, set[_RemoteRead]] = {}
        self._followed = False
        self._hits = self._misses = self._invalidations = self._falls = 0
        self._closing = Event()
        self._tested = Event()
        self._feed: ChangeFeed | None = None
        self._thread = Thread(target=self._listen, name="fednode-near-cache", daemon=True)
        self._thread.start()
        refuse_after_fork(self, "_lock")
        self._tested.wait(2 * self._options.heartbeat)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self._remote)

    @property
    def near(self) -> Near:
        """Whether it is fresh, and its counts."""
        with self._lock:
            counts = (self._followed, self._hits, self._misses, self._invalidations, self._falls)
        return Near(*counts, self._local.usage())

    def close(self) -> None:
        """End the listening and drop all copies; `remote` stays open. Closing twice is allowed."""
        self._closing.set()
        feed = self._feed
        if feed is not None:
            feed.close()
        self._thread.join()
        # in a forked child there is nothing to drop
        with suppress(UsedAfterFork), self._lock:
            self._drop_all()

    def get(self, key: str) -> Value | Missing:
        """As `CacheBackend.get`; from the near copy where there is one."""
        near = self._local.get(key)
        if not isinstance(near, Missing):
            self._hit(1)
            return near
        with self._reading((key,)) as read:
            found = self._remote.get_lasting(key)
            if isinstance(found, Missing):
                return MISSING
            self._keep(key, found, read)
            return found.value

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """As `CacheBackend.get_many`; what is not near is asked for together."""
        wanted = tuple(dict.fromkeys(checked_keys(keys)))
        near = self._local.get_many(wanted)
        self._hit(len(near))
        far = tuple(key for key in wanted if key not in near)
        if not far:
            return near
        with self._reading(far) as read:
            found = self._remote.get_many_lasting(far)
            for key, lasting in found.items():
                self._keep(key, lasting, read)
        return {key: near[key] if key in near else found[key].value for key in wanted if key in near or key in found}

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """As `CacheBackend.set`, in the remote."""
        with self._changing((key,)):
            self._remote.set(key, value, ttl)

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """As `CacheBackend.set_many`, in the remote."""
        check_items(items)
        with self._changing(tuple(items)):
            self._remote.set_many(items, ttl)

    def pin(self, key: str, value: Value) -> None:
        """As `CacheBackend.pin`, in the remote."""
        with self._changing((key,)):
            self._remote.pin(key, value)

    def delete(self, key: str) -> bool:
        """As `CacheBackend.delete`, in the remote."""
        with self._changing((key,)):
            return self._remote.delete(key)

    def clear(self) -> None:
        """Forget everything, there and here."""
        self._require_open()
        try:
            self._remote.clear()
        finally:
            with self._lock:
                self._drop_all()

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed in the remote."""
        self._require_open()
        self._local.sweep()
        return self._remote.sweep()

    def keys(self, prefix: str = "") -> Iterator[str]:
        """As `CacheBackend.keys`, of the remote."""
        self._require_open()
        return self._remote.keys(prefix)

    def usage(self) -> Usage:
        """Of the remote; the near copies are in `near`."""
        return self._remote.usage()

    def _require_open(self) -> None:
        if self._closing.is_set():
            raise Closed(f"the near cache over {self._remote}")

    def _hit(self, count: int) -> None:
        with self._lock:
            self._hits += count

    @contextmanager
    def _reading(self, keys: tuple[str, ...]) -> Iterator[_RemoteRead]:
        self._require_open()
        read = _RemoteRead(self._remote.clock.now())
        with self._lock:
            self._misses += len(keys)
            for key in keys:
                self._reads.setdefault(key, set()).add(read)
        try:
            yield read
        finally:
            with self._lock:
                for key in keys:
                    others = self._reads.get(key, set())
                    others.discard(read)
                    if not others:
                        self._reads.pop(key, None)

    @contextmanager
    def _changing(self, keys: tuple[str, ...]) -> Iterator[None]:
        self._require_open()
        try:
            yield
        finally:
            # also after an error: the server may have done it all the same
            with self._lock:
                self._drop(keys)

    def _keep(self, key: str, found: Lasting, read: _RemoteRead) -> None:
        with self._lock:
            if key in read.stale:
                return
            if self._closing.is_set():
                return
            longest = self._options.followed_ttl if self._followed else self._options.unfollowed_ttl
            # the remote may have looked at the life at any time since the read began
            left = found.seconds - (self._remote.clock.now() - read.began)
            if left <= 0:
                return
            try:
                self._local.set(key, found.value, min(longest, left))
            except StoreError:
                # too large for here, or no room: the remote serves it
                self._local.delete(key)

    def _drop(self, keys: Iterable[str]) -> None:
        for key in keys:
            for read in self._reads.get(key, ()):
                read.stale.add(key)
            self._local.delete(key)

    def _drop_all(self) -> None:
        for key, reads in self._reads.items():
            for read in reads:
                read.stale.add(key)
        self._local.clear()

    def _set_followed(self, *, followed: bool) -> None:
        with self._lock:
            self._falls += self._followed and not followed
            self._followed = followed
            self._drop_all()

    def _listen(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closing.is_set():
            try:
                self._feed = self._remote.follow()
                self._follow(self._feed)
            except StoreError:
                # `near` shows it, and the next attempt follows
                pass
            finally:
                # nothing keeps the copies fresh now
                if self._followed:
                    pause = _FIRST_PAUSE
                    self._set_followed(followed=False)
                self._tested.set()
            if self._feed is not None:
                self._feed.close()
            self._closing.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _follow(self, feed: ChangeFeed) -> None:
        """Until the feed breaks, raises `StoreError`, or a probe's message stays out."""
        while not self._closing.is_set():
            feed.probe()
            if not self._until_probed(feed):
                return
            if not self._followed:
                self._set_followed(followed=True)
                self._tested.set()
            # as long as messages come it is alive
            while (changes := feed.wait(self._options.heartbeat)) is not None:
                self._apply(changes)

    def _until_probed(self, feed: ChangeFeed) -> bool:
        while not self._closing.is_set():
            changes = feed.wait(self._options.heartbeat)
            if changes is None:
                return False
            self._apply(changes)
            if changes.probed:
                return True
        return False

    def _apply(self, changes: Changes) -> None:
        with self._lock:
            self._invalidations += len(changes.keys)
            if changes.everything:
                self._drop_all()
            else:
                self._drop(changes.keys)
