"""A cache in a folder: one file a value, whole or absent, for what has to outlive a killed process.

An overwritten value stays until the new one is durable. `fednode.cache.file_format` says what stands in a file.
"""

import contextlib
import heapq
import math
import os
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Final, Self

from fednode.cache.backend import (
    MISSING,
    Closed,
    Limits,
    Missing,
    StoreFull,
    TooLarge,
    Usage,
    Value,
    check_key,
    check_ttl,
)
from fednode.cache.file_format import (
    ASIDE_NAME,
    VALUE_NAME,
    DamagedFile,
    Header,
    is_withdrawn,
    number_of,
    open_value,
    read_value,
    stem_of,
    withdraw,
)
from fednode.cache.file_place import lock_folder, make_private, require_same, spoken
from fednode.cache.forked import mend_after_fork
from fednode.cache.memory import WhenFull
from fednode.cache.values import encode, size_of
from fednode.clock import Clock
from fednode.errors import StoreError
from fednode.files import write_whole

_SLACK: Final = 64
"""Stale heap items that are tolerated before the heap is rebuilt, on top of one for each entry."""


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    number: int
    size: int
    expires_at: float
    """Monotonic clock; infinite for no expiry."""
    pinned: bool


class FileBackend:
    """A `CacheBackend` in a folder of its own, which one process at a time may have open.

    What `set` stored is there after the process was killed and after a power cut; a `set` that was cut short left the
    old value or the new one. A deletion outlives a killed process; a power cut may undo the last ones. A truncated or
    changed file, or one of another version, is a miss: removed and counted in `damaged`. Where the disk fails, every
    verb raises `StoreError`. After `close` calls raise `Closed`. Within a process expiry is monotonic; across a restart
    it is the wall clock's, and an opening with that set back leaves one ttl at most. Keys are in memory, values only
    while a call works on them. Order of use is not kept: after opening, the oldest written entry counts as the least
    recently used; pins are kept.

    `limits` bound the bytes of the values; on the disk come a header each, and the one value being written. Entries
    that lower limits leave no room for are evicted at opening under `WhenFull.EVICT`; pinned ones, and under REFUSE
    all, stay, and `set` refuses.

    Thread-safe: writers queue for the disk, readers do not wait for them. POSIX only (flock), local disks only; in a
    forked child it is closed. The folder becomes 0700, files are 0600; other files in it are left alone. The lock is
    the folder's own; once the folder was moved away or replaced, `StoreError`.
    """

    def __init__(self, folder: Path | str, clock: Clock, limits: Limits, when_full: WhenFull) -> None:
        if not isinstance(folder, (str, Path)):
            raise TypeError(f"a cache folder of type {type(folder).__name__} means nothing; give a path or text")
        self._folder = folder = Path(folder)
        self._clock = clock
        self._limits = limits
        self._when_full = when_full
        self._writing = Lock()
        self._lock = Lock()
        self._entries: dict[str, _Entry] = {}
        self._evictable: OrderedDict[str, None] = OrderedDict()
        self._expiries: list[tuple[float, int, str]] = []
        self._bytes = self._pinned = self._pinned_bytes = 0
        self._evictions = self._expired = self._refusals = self._damaged = 0
        self._number = 0
        self._left: dict[str, list[str]] = {}
        """Files that could not be removed, by the key's part of their names: the value in force outlasts them."""
        with spoken("open", folder):
            make_private(folder)
            self._held = lock_folder(folder)
            self._release = weakref.finalize(self, os.close, self._held)
        try:
            self._load()
        except BaseException:
            self._release()
            raise
        mend_after_fork(self)

    def __str__(self) -> str:
        return f"the cache folder {self._folder}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def damaged(self) -> int:
        """Value files found damaged, or gone, since this was opened: each was a miss."""
        return self._damaged

    def close(self) -> None:
        """Let another process have the folder; everything stays in it. Closing twice is allowed."""
        with self._writing, self._lock:
            self._release()

    def after_fork(self) -> None:
        """In a forked child: closed, since the folder is the parent's."""
        self._writing, self._lock = Lock(), Lock()
        self._release()

    def get(self, key: str) -> Value | Missing:
        """The value last set and not expired, or `MISSING`; counts as a use, not as a new life."""
        with self._lock:
            entry = self._living(key)
            if entry is None:
                return MISSING
            if not entry.pinned:
                self._evictable.move_to_end(key)
            path = self._folder / entry.name
            with spoken("read", path):
                try:
                    # once open it stays readable, whoever overwrites or deletes the key meanwhile
                    file = open_value(path)
                except (FileNotFoundError, DamagedFile):
                    self._discard(key, entry)
                    return MISSING
        try:
            with file, spoken("read", path):
                return read_value(file, entry.name)
        except DamagedFile:
            with self._lock:
                self._discard(key, entry)
            return MISSING

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """Those of `keys` that `get` would find, in the order asked."""
        found = ((key, self.get(key)) for key in dict.fromkeys(keys))
        return {key: value for key, value in found if not isinstance(value, Missing)}

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """Store `value` for `ttl` seconds, as `CacheBackend.set` promises it; durable when this returns.

        Raises `StoreError` where the disk does not take it: an older value under `key` is then untouched. What was
        evicted to make room is gone all the same.
        """
        check_ttl(ttl)
        self._store(key, value, math.inf if ttl is None else ttl, pinned=False)

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """`set` for each item in order, up to the first refusal."""
        check_ttl(ttl)
        for key, value in items.items():
            self.set(key, value, ttl)

    def pin(self, key: str, value: Value) -> None:
        """`set` without expiry where no eviction reaches it; it is pinned still after a restart."""
        self._store(key, value, math.inf, pinned=True)

    def delete(self, key: str) -> bool:
        """Forget `key`; True if it was there and had not expired."""
        with self._lock:
            entry = self._living(key)
            if entry is None:
                return False
            self._remove(key)
            return True

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._require_open()
            for key in tuple(self._entries):
                self._remove(key)
            self._expiries.clear()

    def keys(self, prefix: str = "") -> Iterator[str]:
        """The keys that begin with `prefix` and have not expired, as of this call."""
        check_key(prefix)
        with self._lock:
            self._require_open()
            now = self._clock.now()
            entries = self._entries.items()
            return iter([key for key, entry in entries if key.startswith(prefix) and entry.expires_at > now])

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed. Looks at nothing else."""
        with self._lock:
            self._require_open()
            return self._sweep()

    def usage(self) -> Usage:
        """Entries and bytes of values held right now, and counts since this was opened."""
        with self._lock:
            held = (len(self._entries), self._bytes, self._pinned, self._pinned_bytes)
            return Usage(*held, self._evictions, self._expired, self._refusals, self._damaged)

    def _require_open(self) -> None:
        if not self._release.alive:
            raise Closed(str(self))

    def _living(self, key: str) -> _Entry | None:
        check_key(key)
        self._require_open()
        entry = self._entries.get(key)
        if entry is not None and entry.expires_at <= self._clock.now():
            self._remove(key)
            self._expired += 1
            return None
        return entry

    def _store(self, key: str, value: Value, life: float, *, pinned: bool) -> None:
        check_key(key)
        size = size_of(value)
        if size > self._limits.value_bytes:
            with self._lock:
                self._require_open()
                self._refusals += 1
            raise TooLarge(size, self._limits.value_bytes)
        encoded = encode(value)
        digest = sha256(encoded).digest()
        # one writer at a time: meanwhile the others can only free room, so what was made stays
        with self._writing:
            with self._lock:
                self._require_open()
                require_same(self._folder, self._held)
                self._clear_left()
                self._make_room(key, size)
                self._number += 1
                wall = self._clock.time() + life
                header = Header(key, self._number, life, wall, len(encoded), size, pinned, digest)
                expires_at = self._clock.now() + life
            self._write(header, encoded)
            with self._lock:
                self._insert(header, expires_at)

    def _make_room(self, key: str, size: int) -> None:
        if self._fits(key, size):
            return
        self._sweep()
        if not self._fits(key, size) and not self._could_fit(key, size):
            self._refusals += 1
            raise StoreFull(
                f"no room for {size} more bytes: {len(self._entries)} of {self._limits.entries} entries and "
                f"{self._bytes} of {self._limits.total_bytes} bytes are in use ({self._pinned} entries are pinned); "
                "try again later or raise the limits"
            )
        # the old value under `key` stays until the new one is on the disk
        while not self._fits(key, size):
            self._evict(next(other for other in self._evictable if other != key))

    def _could_fit(self, key: str, size: int) -> bool:
        """Whether evicting all that may be evicted leaves room: known before anything is."""
        if self._when_full is WhenFull.REFUSE:
            return False
        old = self._entries.get(key)
        ours = old if old is not None and old.pinned else None
        entries = self._pinned + (ours is None)
        total = self._pinned_bytes + size - (0 if ours is None else ours.size)
        return entries <= self._limits.entries and total <= self._limits.total_bytes

    def _fits(self, key: str, size: int) -> bool:
        old = self._entries.get(key)
        entries = len(self._entries) + (old is None)
        total = self._bytes + size - (0 if old is None else old.size)
        return entries <= self._limits.entries and total <= self._limits.total_bytes

    def _write(self, header: Header, value: bytes) -> None:
        path = self._folder / header.name
        try:
            write_whole(path, b"".join((header.pack(), value)), 0o600)
        except BaseException:
            # it may have been renamed already: what fails last is the sync of the folder
            try:
                path.unlink(missing_ok=True)
            except OSError:
                # what cannot be removed must not count: this write never happened
                with contextlib.suppress(OSError):
                    withdraw(path)
                with self._lock:
                    self._leave(header.name)
            raise

    def _insert(self, header: Header, expires_at: float) -> None:
        old = self._forget(header.key) if header.key in self._entries else None
        entry = _Entry(header.name, header.number, header.size, expires_at, header.pinned)
        self._entries[header.key] = entry
        self._count(entry, 1)
        if not entry.pinned:
            self._evictable[header.key] = None
        if math.isfinite(expires_at):
            heapq.heappush(self._expiries, (expires_at, header.number, header.key))
            self._compact()
        if old is not None:
            # the new value is in force already, and its number the higher one
            try:
                (self._folder / old.name).unlink(missing_ok=True)
            except OSError:
                self._leave(old.name)

    def _remove(self, key: str) -> None:
        name = self._entries[key].name
        require_same(self._folder, self._held)
        # the one in force goes last: none that is left then counts as the newest
        self._remove_left(stem_of(name))
        self._unlink(name)
        self._forget(key)

    def _unlink(self, name: str) -> None:
        path = self._folder / name
        with spoken("remove", path):
            path.unlink(missing_ok=True)

    def _leave(self, name: str) -> None:
        self._left.setdefault(stem_of(name), []).append(name)

    def _remove_left(self, stem: str) -> None:
        """Remove what was left of a key, in order. Raises `StoreError` at the first that stays."""
        names = self._left.get(stem, [])
        while names:
            self._unlink(names[0])
            del names[0]
        self._left.pop(stem, None)

    def _clear_left(self) -> None:
        for stem in tuple(self._left):
            with contextlib.suppress(StoreError):
                self._remove_left(stem)

    def _forget(self, key: str) -> _Entry:
        entry = self._entries.pop(key)
        self._evictable.pop(key, None)
        self._count(entry, -1)
        return entry

    def _count(self, entry: _Entry, sign: int) -> None:
        self._bytes += sign * entry.size
        self._pinned += sign * entry.pinned
        self._pinned_bytes += sign * entry.size * entry.pinned

    def _evict(self, key: str) -> None:
        self._remove(key)
        self._evictions += 1

    def _discard(self, key: str, entry: _Entry) -> None:
        # two readers may find the same damage, and a writer may have replaced it meanwhile
        if self._release.alive and self._entries.get(key) is entry:
            self._remove(key)
            self._damaged += 1

    def _sweep(self) -> int:
        freed, now = 0, self._clock.now()
        while self._expiries and self._expiries[0][0] <= now:
            _, number, key = self._expiries[0]
            entry = self._entries.get(key)
            # an overwritten key left an item behind that speaks of an older value
            if entry is not None and entry.number == number:
                self._remove(key)
                self._expired += 1
                freed += 1
            heapq.heappop(self._expiries)
        return freed

    def _compact(self) -> None:
        if len(self._expiries) <= 2 * len(self._entries) + _SLACK:
            return
        mortal = [(key, entry) for key, entry in self._entries.items() if math.isfinite(entry.expires_at)]
        self._expiries = [(entry.expires_at, entry.number, key) for key, entry in mortal]
        heapq.heapify(self._expiries)

    def _load(self) -> None:
        now, wall = self._clock.now(), self._clock.time()
        for header in sorted(self._headers(), key=lambda one: one.number):
            self._number = header.number
            self._insert(header, now + min(header.ttl, header.expires_at - wall))
        self._number = max([self._number, *(number_of(name) for names in self._left.values() for name in names)])
        self._sweep()
        if self._when_full is WhenFull.EVICT:
            over = len(self._entries) > self._limits.entries or self._bytes > self._limits.total_bytes
            while over and self._evictable:
                self._evict(next(iter(self._evictable)))
                over = len(self._entries) > self._limits.entries or self._bytes > self._limits.total_bytes

    def _headers(self) -> Iterator[Header]:
        with spoken("open", self._folder):
            paths = [path for path in self._folder.iterdir() if path.is_file() and not path.is_symlink()]
        kept: dict[str, list[str]] = {}
        for path in paths:
            if ASIDE_NAME.fullmatch(path.name):
                self._unlink(path.name)
            elif VALUE_NAME.fullmatch(path.name):
                kept.setdefault(stem_of(path.name), []).append(path.name)
        for names in kept.values():
            header = self._newest(sorted(names))
            if header is not None:
                yield header

    def _newest(self, names: list[str]) -> Header | None:
        """The header in the last of the files of a key that was not withdrawn; the others are removed, or left.

        None where there is none, or it is damaged: then it is what keeps the older ones from coming back.
        """
        with spoken("read", self._folder):
            withdrawn = [name for name in names if is_withdrawn(self._folder / name)]
        standing = [name for name in names if name not in withdrawn]
        for name in (*withdrawn, *standing[:-1]):
            self._leave(name)
        if standing:
            path = self._folder / standing[-1]
            try:
                with spoken("read", path), open_value(path) as file:
                    header = Header.read(file, path.name)
            except DamagedFile:
                self._damaged += 1
                self._leave(path.name)
            else:
                with contextlib.suppress(StoreError):
                    self._remove_left(stem_of(path.name))
                return header
        if names:
            with contextlib.suppress(StoreError):
                self._remove_left(stem_of(names[0]))
        return None
