"""A cache in a folder: one file for each value, whole or absent, for values that must outlive a killed process.

An overwritten value stays until the new one is durable. `fednode.cache.files.format` describes the files.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from math import inf
from pathlib import Path
from threading import Lock
from typing import Self

from fednode.cache.backend import (
    MISSING,
    Closed,
    Limits,
    Missing,
    TooLarge,
    Usage,
    Value,
    WhenFull,
    check_items,
    check_key,
    check_ttl,
    check_when_full,
    checked_keys,
)
from fednode.cache.files.folder import CacheFolder, disk_errors
from fednode.cache.files.format import DamagedFile, FileHeader, open_value, read_value, stem_of
from fednode.cache.files.index import FileEntry, FileIndex
from fednode.cache.fork_safety import UsedAfterFork, refuse_after_fork
from fednode.cache.values.codec import Undecodable, encode_counted
from fednode.clock import Clock
from fednode.disk.atomic import write_whole
from fednode.errors import StoreError


class FileBackend:
    """A `CacheBackend` in a folder of its own, which one process at a time may have open.

    What `set` stored is there after the process was killed and after a power cut; a `set` that was cut short left the
    old value or the new one. A deletion outlives a killed process; a power cut may undo the last ones. A truncated or
    changed file, or one of another version, is a miss: removed and counted in `damaged`. An undamaged file whose value
    this version cannot decode is a miss too, and stays. If the disk fails, every method raises `StoreError`; after
    `close`, `Closed`.

    While it is open, lives are counted on the monotonic clock; across a restart on the wall clock, where a clock that
    was set back adds one ttl at most. Keys are in memory, values only while a call works on them. After opening, the
    oldest written entry counts as the least recently used; pins are kept.

    `limits` bound the bytes of the values; each file has a header besides. Under `WhenFull.EVICT`, opening and `tune`
    evict what lower limits leave no room for, and values over a lower `value_bytes`, but nothing that is pinned. Under
    `WhenFull.REFUSE` all of it stays, and `set` refuses.

    Thread-safe: writers queue for the disk, readers do not wait for them. POSIX only (flock), local disks only. The
    folder gets mode 0700, its files 0600; other files in it are left alone. If the folder is moved or replaced, methods
    raise `StoreError`.
    """

    def __init__(self, folder: Path | str, clock: Clock, limits: Limits, when_full: WhenFull) -> None:
        check_when_full(when_full)
        self._clock = clock
        self._when_full = when_full
        self._writing = Lock()
        """Held while a value is written: the disk takes one at a time. Always taken before `_lock`."""
        self._lock = Lock()
        self._index = FileIndex(limits)
        self._closed = False
        self._folder = CacheFolder(Path(folder))
        try:
            self._load()
            self._keep_limits()
        except BaseException:
            self._folder.close()
            raise
        refuse_after_fork(self, "_writing", "_lock", release=self._folder.release)

    def __str__(self) -> str:
        return f"the cache folder {self._folder.path}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def limits(self) -> Limits:
        """The limits as they are now."""
        return self._index.limits

    def close(self) -> None:
        """Unlock the folder for other processes; everything stays in it. Closing twice is allowed."""
        with suppress(UsedAfterFork), self._writing, self._lock:
            self._closed = True
            self._folder.close()

    def get(self, key: str) -> Value | Missing:
        """The value last set and not expired, or `MISSING`; counts as a use."""
        with self._lock:
            entry = self._live(key)
            if entry is None:
                return MISSING
            self._index.used(key)
            path = self._folder.path / entry.name
            with disk_errors("read", path):
                try:
                    # once open it stays readable, whoever overwrites or deletes the key meanwhile
                    file = open_value(path)
                except (FileNotFoundError, DamagedFile):
                    self._discard(key, entry)
                    return MISSING
        try:
            with file, disk_errors("read", path):
                return read_value(file, entry.name)
        except DamagedFile:
            with self._lock:
                self._discard(key, entry)
        except Undecodable:
            # the file is as it was written: another version may be able to decode it
            pass
        return MISSING

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """Those of `keys` that `get` would find, in the order asked."""
        found = ((key, self.get(key)) for key in dict.fromkeys(checked_keys(keys)))
        return {key: value for key, value in found if not isinstance(value, Missing)}

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """Store `value` for `ttl` seconds, as `CacheBackend.set` promises; durable when this returns.

        Raises `StoreError` if the disk fails: an older value under `key` is then untouched, but entries that were
        evicted to make room are gone.
        """
        seconds = check_ttl(ttl)
        self._store(key, value, inf if seconds is None else seconds, pinned=False)

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """`set` for each item in order, up to the first refusal."""
        check_items(items)
        check_ttl(ttl)
        for key, value in items.items():
            self.set(key, value, ttl)

    def pin(self, key: str, value: Value) -> None:
        """`set` without expiry where no eviction reaches it; still pinned after a restart."""
        self._store(key, value, inf, pinned=True)

    def delete(self, key: str) -> bool:
        """Forget `key`; True if it was there and had not expired."""
        with self._lock:
            if self._live(key) is None:
                return False
            self._remove(key)
            return True

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._require_open()
            for key in tuple(self._index.entries):
                self._remove(key)

    def keys(self, prefix: str = "") -> Iterator[str]:
        """The keys that begin with `prefix` and have not expired, as of this call."""
        check_key(prefix)
        with self._lock:
            self._require_open()
            now = self._clock.now()
            entries = self._index.entries.items()
            return iter([key for key, entry in entries if key.startswith(prefix) and entry.expires_at > now])

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed. Looks at nothing else."""
        with self._lock:
            self._require_open()
            return self._sweep()

    def usage(self) -> Usage:
        """Entries and bytes of values now, and counts since this was opened; also after `close`."""
        with self._lock:
            return self._index.usage()

    def tune(self, limits: Limits) -> None:
        """Change the limits while the cache is in use. Raises `Closed`.

        Lower limits evict at once; pinned entries stay, and new ones are refused until there is room. Under
        `WhenFull.REFUSE` nothing is evicted.
        """
        # no value is being written under the old limits meanwhile
        with self._writing, self._lock:
            self._require_open()
            before, self._index.limits = self._index.limits, limits
            try:
                self._keep_limits()
            except StoreError:
                self._index.limits = before
                raise

    def fits_beside_pins(self, sizes: dict[str, int]) -> bool:
        """Whether values of these sizes, by key, would fit together if everything that is not pinned were evicted."""
        with self._lock:
            return self._index.fits_beside_pins(sizes)

    def _require_open(self) -> None:
        if self._closed:
            raise Closed(str(self))

    def _live(self, key: str) -> FileEntry | None:
        check_key(key)
        self._require_open()
        entry = self._index.entries.get(key)
        if entry is not None and entry.expires_at <= self._clock.now():
            self._remove(key)
            self._index.expiries += 1
            return None
        return entry

    def _store(self, key: str, value: Value, life: float, *, pinned: bool) -> None:
        check_key(key)
        try:
            encoded, size = encode_counted(value, self._index.limits.value_bytes)
        except TooLarge:
            with self._lock:
                self._require_open()
                self._index.refusals += 1
            raise
        digest = sha256(encoded).digest()
        # one writer at a time; other calls can only free room meanwhile, so the room that was made stays
        with self._writing:
            with self._lock:
                self._require_open()
                self._folder.require_same()
                self._folder.remove_all_stale()
                self._make_room(key, size)
                wall = self._clock.time() + life
                header = FileHeader(key, self._folder.next_number(), life, wall, len(encoded), size, pinned, digest)
                expires_at = self._clock.now() + life
            try:
                write_whole(self._folder.path / header.name, b"".join((header.pack(), encoded)), 0o600)
            except StoreError:
                with self._lock:
                    self._folder.take_back(header.name)
                raise
            with self._lock:
                old = self._index.drop(key) if key in self._index.entries else None
                self._index.add(key, FileEntry(header.name, size, expires_at, pinned=pinned))
                if old is not None:
                    self._folder.replaced(old.name)

    def _make_room(self, key: str, size: int) -> None:
        index = self._index
        if size > index.limits.value_bytes:
            # the limits were lowered since the value was measured
            index.refusals += 1
            raise TooLarge(size, index.limits.value_bytes)
        if not index.fits(key, size):
            self._sweep()
        if index.fits(key, size):
            return
        if self._when_full is WhenFull.REFUSE or not index.fits_beside_pins({key: size}):
            raise index.refuse(size)
        # the old value under `key` stays until the new one is on the disk
        while not index.fits(key, size) and (victim := index.victim(but=key)) is not None:
            self._evict(victim)

    def _remove(self, key: str) -> None:
        name = self._index.entries[key].name
        self._folder.require_same()
        # the newest file last: as long as it is there no older one counts
        self._folder.remove_stale(stem_of(name))
        self._folder.unlink(name)
        self._index.drop(key)

    def _evict(self, key: str) -> None:
        self._remove(key)
        self._index.evictions += 1

    def _discard(self, key: str, entry: FileEntry) -> None:
        """Remove a damaged entry, unless another reader did so or a writer has replaced it meanwhile."""
        if not self._closed and self._index.entries.get(key) is entry:
            self._remove(key)
            self._index.damaged += 1

    def _sweep(self) -> int:
        freed, now = 0, self._clock.now()
        while (key := self._index.first_due(now)) is not None:
            self._remove(key)
            self._index.expiries += 1
            freed += 1
        return freed

    def _load(self) -> None:
        """Index the files that are there."""
        now, wall = self._clock.now(), self._clock.time()
        headers, self._index.damaged = self._folder.load()
        for header in headers:
            expires_at = now + min(header.ttl, header.expires_at - wall)
            self._index.add(header.key, FileEntry(header.name, header.size, expires_at, pinned=header.pinned))

    def _keep_limits(self) -> None:
        self._sweep()
        if self._when_full is WhenFull.REFUSE:
            return
        for key in self._index.larger(self._index.limits.value_bytes):
            self._evict(key)
        while not self._index.within_limits() and (victim := self._index.victim()) is not None:
            self._evict(victim)
