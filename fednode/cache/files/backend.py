"""A cache in a folder: one file a value, whole or absent, for what has to outlive a killed process.

An overwritten value stays until the new one is durable. `fednode.cache.files.format` says what stands in a file.
"""

import contextlib
import math
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import NoReturn, Self

from fednode.cache.backend import (
    MISSING,
    Closed,
    Limits,
    Missing,
    StoreFull,
    TooLarge,
    Usage,
    Value,
    check_items,
    check_key,
    check_ttl,
)
from fednode.cache.files.folder import lock_folder, require_same, spoken
from fednode.cache.files.format import (
    NUMBERS,
    DamagedFile,
    Header,
    open_value,
    read_value,
    stem_of,
)
from fednode.cache.files.index import Entry, FileBook
from fednode.cache.files.leftovers import FilesLeft
from fednode.cache.fork_safety import UsedAfterFork, refuse_after_fork
from fednode.cache.memory.backend import WhenFull, check_when_full
from fednode.cache.values.codec import Undecodable, encode_counted
from fednode.clock import Clock
from fednode.disk.atomic import write_whole
from fednode.disk.locks import open_folder, unlock
from fednode.disk.private import make_private
from fednode.errors import StoreError


class FileBackend:
    """A `CacheBackend` in a folder of its own, which one process at a time may have open.

    What `set` stored is there after the process was killed and after a power cut; a `set` that was cut short left the
    old value or the new one. A deletion outlives a killed process; a power cut may undo the last ones. A truncated or
    changed file, or one of another version, is a miss: removed and counted in `damaged`. A whole one whose value is of
    no kind that is known here is a miss too, and stays. Where the disk fails, every verb raises `StoreError`. After
    `close` calls raise `Closed`. Within a process expiry is monotonic; across a restart it is the wall clock's, and an
    opening with that set back leaves one ttl at most. Keys are in memory, values only while a call works on them. Order
    of use is not kept: after opening, the oldest written entry counts as the least recently used; pins are kept.

    A call that was interrupted (Ctrl-C, or the stack ended) is done or not done, and a key that it wrote has its old
    value or its new one, after a restart too.

    `limits` bound the bytes of the values; on the disk come a header each, and the one value being written. Entries
    that lower limits leave no room for, and values over a lower `value_bytes`, are evicted at opening and by `tune`
    under `WhenFull.EVICT`; pinned ones, and under REFUSE all, stay, and `set` refuses.

    Thread-safe: writers queue for the disk, readers do not wait for them. POSIX only (flock), local disks only; in a
    forked child calls raise `UsedAfterFork`. The folder becomes 0700, files are 0600; other files in it are left alone.
    The lock is the folder's own; once the folder was moved away or replaced, `StoreError`.
    """

    def __init__(self, folder: Path | str, clock: Clock, limits: Limits, when_full: WhenFull) -> None:
        if not isinstance(folder, (str, Path)):
            raise TypeError(f"a cache folder of type {type(folder).__name__} means nothing; give a path or text")
        check_when_full(when_full)
        self._folder = folder = Path(folder)
        self._clock = clock
        self._limits = limits
        self._when_full = when_full
        self._writing = Lock()
        self._lock = Lock()
        self._book = FileBook()
        self._evictions = self._expired = self._refusals = self._damaged = 0
        self._number = 0
        self._closed = False
        make_private(folder)
        with spoken("open", folder):
            self._held = open_folder(folder)
        self._left = FilesLeft(folder, self._held, self._book)
        self._release = weakref.finalize(self, os.close, self._held)
        try:
            with spoken("open", folder):
                lock_folder(folder, self._held)
            self._load()
            refuse_after_fork(self, "_writing", "_lock", release=self._release)
        except BaseException:
            self._release()
            raise

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
        with contextlib.suppress(UsedAfterFork), self._writing, self._lock:
            self._closed = True
            if self._release.alive:
                # not by the last descriptor alone: a child of ours may hold another, without knowing of it
                unlock(self._held)
                self._release()

    def get(self, key: str) -> Value | Missing:
        """The value last set and not expired, or `MISSING`; counts as a use, not as a new life."""
        with self._lock:
            entry = self._living(key)
            if entry is None:
                return MISSING
            self._book.used(key)
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
        except Undecodable:
            # the file is what was written: another program may know what to make of it
            return MISSING

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """Those of `keys` that `get` would find, in the order asked."""
        asked = tuple(keys)
        for key in asked:
            check_key(key)
        found = ((key, self.get(key)) for key in dict.fromkeys(asked))
        return {key: value for key, value in found if not isinstance(value, Missing)}

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """Store `value` for `ttl` seconds, as `CacheBackend.set` promises it; durable when this returns.

        Raises `StoreError` where the disk does not take it: an older value under `key` is then untouched. What was
        evicted to make room is gone all the same.
        """
        seconds = check_ttl(ttl)
        self._store(key, value, math.inf if seconds is None else seconds, pinned=False)

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """`set` for each item in order, up to the first refusal."""
        check_items(items)
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
            for key in tuple(self._book.entries):
                self._remove(key)

    def keys(self, prefix: str = "") -> Iterator[str]:
        """The keys that begin with `prefix` and have not expired, as of this call."""
        check_key(prefix)
        with self._lock:
            self._require_open()
            now = self._clock.now()
            entries = self._book.entries.items()
            return iter([key for key, entry in entries if key.startswith(prefix) and entry.expires_at > now])

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed. Looks at nothing else."""
        with self._lock:
            self._require_open()
            return self._sweep()

    def usage(self) -> Usage:
        """Entries and bytes of values held right now, and counts since this was opened; of a closed one too."""
        with self._lock:
            if self._left.doubted and not self._closed:
                self._left.settle()
            book = self._book
            held = (len(book.entries), book.bytes, book.pinned, book.pinned_bytes)
            return Usage(*held, self._evictions, self._expired, self._refusals, self._damaged)

    @property
    def limits(self) -> Limits:
        """The limits as they are now."""
        return self._limits

    def tune(self, limits: Limits) -> None:
        """Change the limits while the cache is in use. Raises `Closed`.

        Lower limits evict at once; pinned entries stay, and new ones are refused until there is room. Under
        `WhenFull.REFUSE` nothing goes. One that was interrupted may not have evicted all: tune again.
        """
        # no value is on its way to the disk under the old limits meanwhile
        with self._writing, self._lock:
            self._require_open()
            before, self._limits = self._limits, limits
            try:
                self._keep_limits()
            except StoreError:
                self._limits = before
                raise

    def _require_open(self) -> None:
        """Raise `Closed`; else everything here is as it should be when this returns."""
        if self._closed:
            raise Closed(str(self))
        if self._left.doubted:
            self._left.settle()

    def _living(self, key: str) -> Entry | None:
        check_key(key)
        self._require_open()
        entry = self._book.entries.get(key)
        if entry is not None and entry.expires_at <= self._clock.now():
            self._remove(key)
            self._expired += 1
            return None
        return entry

    def _store(self, key: str, value: Value, life: float, *, pinned: bool) -> None:
        check_key(key)
        try:
            encoded, size = encode_counted(value, self._limits.value_bytes)
        except TooLarge as refusal:
            with self._lock:
                self._require_open()
                self._refuse(refusal)
        digest = sha256(encoded).digest()
        # one writer at a time: meanwhile the others can only free room, so what was made stays
        with self._writing:
            with self._lock:
                self._require_open()
                require_same(self._folder, self._held)
                self._left.remove_all()
                self._make_room(key, size)
                wall = self._clock.time() + life
                header = Header(key, self._next_number(), life, wall, len(encoded), size, pinned, digest)
                expires_at = self._clock.now() + life
                self._left.coming = header.name
            try:
                write_whole(self._folder / header.name, b"".join((header.pack(), encoded)), 0o600)
                with self._lock:
                    self._insert(header, expires_at)
            except BaseException as error:
                # said first and by plain stores, which nothing interrupts: the file may be there already
                self._left.coming = None
                alone = not self._left.doubted
                self._left.doubted[key] = None
                with self._lock, contextlib.suppress(StoreError):
                    # again: who was settling a moment ago did not look at what this write left
                    self._left.doubted[key] = None
                    if isinstance(error, StoreError) and alone and len(self._left.doubted) == 1:
                        self._left.take_back(header)
                    else:
                        self._left.settle()
                raise

    def _next_number(self) -> int:
        if self._number + 1 >= NUMBERS:
            raise StoreError(f"the files in the cache folder {self._folder} are numbered to the end; empty it")
        self._number += 1
        return self._number

    def _refuse(self, refusal: StoreFull | TooLarge) -> NoReturn:
        self._refusals += 1
        raise refusal

    def _make_room(self, key: str, size: int) -> None:
        book, limits = self._book, self._limits
        if size > limits.value_bytes:
            # tuned since it was counted
            self._refuse(TooLarge(size, limits.value_bytes))
        if book.fits(key, size, limits):
            return
        self._sweep()
        may_evict = self._when_full is WhenFull.EVICT and book.could_fit(key, size, limits)
        if not book.fits(key, size, limits) and not may_evict:
            self._refuse(
                StoreFull(
                    f"no room for {size} more bytes: {len(book.entries)} of {limits.entries} entries and {book.bytes} "
                    f"of {limits.total_bytes} bytes are in use ({book.pinned} entries are pinned); try again later or "
                    "raise the limits"
                )
            )
        # the old value under `key` stays until the new one is on the disk
        while not book.fits(key, size, limits) and (victim := book.victim(but=key)) is not None:
            self._evict(victim)

    def _insert(self, header: Header, expires_at: float) -> None:
        if self._left.doubted:
            self._left.settle()
        entry = Entry(header.name, header.number, header.size, expires_at, header.pinned)
        self._left.doubted[header.key] = None
        old = self._book.put(header.key, entry)
        if old is not None:
            self._left.leave(old.name)
        self._left.coming = None
        del self._left.doubted[header.key]
        if old is not None:
            # the new value is in force already, and its number the higher one
            with contextlib.suppress(StoreError):
                self._left.remove(stem_of(old.name))

    def _remove(self, key: str) -> None:
        name = self._book.entries[key].name
        require_same(self._folder, self._held)
        # the one in force goes last: none that is left then counts as the newest
        self._left.remove(stem_of(name))
        self._left.doubted[key] = None
        self._left.unlink(name)
        self._book.drop(key)
        del self._left.doubted[key]

    def _evict(self, key: str) -> None:
        self._remove(key)
        self._evictions += 1

    def _discard(self, key: str, entry: Entry) -> None:
        # two readers may find the same damage, and a writer may have replaced it meanwhile
        if self._closed:
            return
        self._require_open()
        if self._book.entries.get(key) is entry:
            self._remove(key)
            self._damaged += 1

    def _sweep(self) -> int:
        freed, now = 0, self._clock.now()
        while (key := self._book.due(now)) is not None:
            self._remove(key)
            self._expired += 1
            freed += 1
        return freed

    def _load(self) -> None:
        now, wall = self._clock.now(), self._clock.time()
        headers, self._damaged = self._left.load()
        for header in headers:
            self._number = header.number
            self._insert(header, now + min(header.ttl, header.expires_at - wall))
        self._number = max(self._number, self._left.last_number)
        self._keep_limits()

    def _keep_limits(self) -> None:
        self._sweep()
        if self._when_full is WhenFull.REFUSE:
            return
        for key in self._book.larger(self._limits.value_bytes):
            self._evict(key)
        while not self._book.within(self._limits) and (victim := self._book.victim()) is not None:
            self._evict(victim)
