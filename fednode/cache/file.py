"""A cache in a folder: one file a value, whole or absent, for what has to outlive a killed process.

A value file is a fixed part (`_FIXED`), the key, a SHA-256 seal over both, and the value. Its name is the SHA-256 of
the key and a running number: an overwritten value stays until the new one is durable, and where a killed process left
two, the higher number holds. Seal and digest find damage, not forgery: updates are sealed before they come here.
"""

import contextlib
import fcntl
import heapq
import math
import os
import re
import struct
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, Self

from fednode.cache.backend import MISSING, Limits, Missing, StoreFull, TooLarge, check_ttl
from fednode.cache.memory import Usage, WhenFull
from fednode.clock import Clock
from fednode.errors import StoreError
from fednode.files import sync_folder, write_whole

_MAGIC: Final = b"FNvalue1"
_FIXED: Final = struct.Struct("<8sQddIQ32s")
"""Magic with version, number, ttl and expiry (s, infinite for none), bytes of key and value, SHA-256 of the value."""
_SEAL: Final = 32
_VALUE_NAME: Final = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
_ASIDE_NAME: Final = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{16}\.[0-9a-f]{8}")
_SLACK: Final = 64
"""Stale heap items that are tolerated before the heap is rebuilt, on top of one for each entry."""


class _Damaged(Exception):
    """The file is not what was written under its name."""


@dataclass(frozen=True, slots=True)
class _Header:
    key: str
    number: int
    ttl: float
    expires_at: float
    """Wall clock: a monotonic clock starts anew with the machine, so its readings mean nothing after a restart."""
    size: int
    digest: bytes

    @property
    def name(self) -> str:
        return _name(self.key.encode("utf-8", "surrogatepass"), self.number)

    def pack(self) -> bytes:
        key = self.key.encode("utf-8", "surrogatepass")
        fixed = _FIXED.pack(_MAGIC, self.number, self.ttl, self.expires_at, len(key), self.size, self.digest)
        return fixed + key + sha256(fixed + key).digest()

    @classmethod
    def read(cls, file: BinaryIO, name: str) -> Self:
        """The header of the file called `name`, which is then at its value. Raises `_Damaged`, `OSError`."""
        fixed = file.read(_FIXED.size)
        if len(fixed) != _FIXED.size or not fixed.startswith(_MAGIC):
            raise _Damaged
        _, number, ttl, expires_at, key_size, size, digest = _FIXED.unpack(fixed)
        # before anything of a damaged length is read into memory
        if os.fstat(file.fileno()).st_size != _FIXED.size + key_size + _SEAL + size:
            raise _Damaged
        key, seal = file.read(key_size), file.read(_SEAL)
        if sha256(fixed + key).digest() != seal or _name(key, number) != name:
            raise _Damaged
        return cls(key.decode("utf-8", "surrogatepass"), number, ttl, expires_at, size, digest)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    number: int
    size: int
    expires_at: float
    """Monotonic clock; infinite for no expiry."""


class FileBackend:
    """A `CacheBackend` in a folder of its own, which one process at a time may have open.

    What `set` stored is there after the process was killed and after a power cut; a `set` that was cut short left the
    old value or the new one. A deletion outlives a killed process; a power cut may undo the last ones. A truncated or
    changed file, or one of another version, is a miss: removed and counted in `damaged`. Where the disk fails, every
    verb raises `StoreError`. Within a process expiry is monotonic; across a restart it is the wall clock's, and an
    opening with that set back leaves one ttl at most. Keys are in memory, values only while a call works on them. Order
    of use is not kept: after opening, the oldest written entry counts as the least recently used.

    `limits` bound the bytes of the values; on the disk come a header each and the one value being written. Entries that
    lower limits leave no room for are evicted at opening under `WhenFull.EVICT`; under REFUSE all stay, `set` refuses.

    Thread-safe: writers queue for the disk, readers do not wait for them. POSIX only (flock), local disks only; a
    forked child must not use its parent's. The folder becomes 0700, files are 0600; other files in it are left alone.
    """

    def __init__(self, folder: Path, clock: Clock, limits: Limits, when_full: WhenFull) -> None:
        self._folder = folder
        self._clock = clock
        self._limits = limits
        self._when_full = when_full
        self._writing = Lock()
        self._lock = Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._expiries: list[tuple[float, int, str]] = []
        self._bytes = 0
        self._damaged = 0
        self._number = 0
        with _spoken("open", folder):
            _make_private(folder)
            self._release = weakref.finalize(self, os.close, _lock_folder(folder))
        try:
            self._load()
        except BaseException:
            self._release()
            raise

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

    def get(self, key: str) -> bytes | Missing:
        """The value last set and not expired, or `MISSING`; counts as a use, not as a new life."""
        with self._lock:
            entry = self._living(key)
            if entry is None:
                return MISSING
            self._entries.move_to_end(key)
            path = self._folder / entry.name
            with _spoken("read", path):
                try:
                    # once open it stays readable, whoever overwrites or deletes the key meanwhile
                    file = path.open("rb")
                except FileNotFoundError:
                    self._discard(key, entry)
                    return MISSING
        try:
            with file, _spoken("read", path):
                return _read_value(file, entry.name)
        except _Damaged:
            with self._lock:
                self._discard(key, entry)
            return MISSING

    def set(self, key: str, value: bytes, ttl: float | None) -> None:
        """Store `value` for `ttl` seconds, as `CacheBackend.set` promises it; durable when this returns.

        Raises `StoreError` where the disk does not take it: an older value under `key` is then untouched. What was
        evicted to make room is gone all the same.
        """
        check_ttl(ttl)
        # through memoryview: bytes(3) would quietly be three zero bytes
        owned = value if type(value) is bytes else bytes(memoryview(value))
        if len(owned) > self._limits.value_bytes:
            raise TooLarge(len(owned), self._limits.value_bytes)
        digest, life = sha256(owned).digest(), math.inf if ttl is None else ttl
        # one writer at a time: meanwhile the others can only free room, so what was made stays
        with self._writing:
            with self._lock:
                self._require_open()
                self._make_room(key, len(owned))
                self._number += 1
                header = _Header(key, self._number, life, self._clock.time() + life, len(owned), digest)
                expires_at = self._clock.now() + life
            self._write(header, owned)
            with self._lock:
                self._insert(header, expires_at)

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

    def sweep(self) -> int:
        """Free what has expired; the number of entries freed. Looks at nothing else."""
        with self._lock:
            self._require_open()
            return self._sweep()

    def usage(self) -> Usage:
        """Entries and bytes of values held right now."""
        with self._lock:
            return Usage(len(self._entries), self._bytes)

    def _require_open(self) -> None:
        if not self._release.alive:
            raise ValueError(f"the cache in {self._folder} is closed; open it again")

    def _living(self, key: str) -> _Entry | None:
        self._require_open()
        entry = self._entries.get(key)
        if entry is not None and entry.expires_at <= self._clock.now():
            self._remove(key)
            return None
        return entry

    def _make_room(self, key: str, size: int) -> None:
        if self._fits(key, size):
            return
        self._sweep()
        if self._when_full is WhenFull.REFUSE:
            if not self._fits(key, size):
                raise StoreFull(
                    f"no room for {size} more bytes: {len(self._entries)} of {self._limits.entries} entries and "
                    f"{self._bytes} of {self._limits.total_bytes} bytes are in use; try again later or raise the limits"
                )
            return
        # the old value under `key` stays until the new one is on the disk
        while not self._fits(key, size):
            self._remove(next(other for other in self._entries if other != key))

    def _fits(self, key: str, size: int) -> bool:
        old = self._entries.get(key)
        entries = len(self._entries) + (old is None)
        total = self._bytes + size - (0 if old is None else old.size)
        return entries <= self._limits.entries and total <= self._limits.total_bytes

    def _write(self, header: _Header, value: bytes) -> None:
        path = self._folder / header.name
        try:
            write_whole(path, b"".join((header.pack(), value)), 0o600)
        except BaseException:
            # it may have been renamed already: what fails last is the sync of the folder
            with contextlib.suppress(OSError):
                path.unlink()
            raise

    def _insert(self, header: _Header, expires_at: float) -> None:
        old = self._entries.pop(header.key, None)
        self._entries[header.key] = _Entry(header.name, header.number, header.size, expires_at)
        self._bytes += header.size
        if math.isfinite(expires_at):
            heapq.heappush(self._expiries, (expires_at, header.number, header.key))
            self._compact()
        if old is not None:
            self._bytes -= old.size
            # the new value is in force already; a file left behind has the lower number and goes at the next opening
            with contextlib.suppress(OSError):
                (self._folder / old.name).unlink()

    def _remove(self, key: str) -> None:
        path = self._folder / self._entries[key].name
        with _spoken("remove", path):
            path.unlink(missing_ok=True)
        self._bytes -= self._entries.pop(key).size

    def _discard(self, key: str, entry: _Entry) -> None:
        # two readers may find the same damage, and a writer may have replaced it meanwhile
        if self._entries.get(key) is entry:
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
        self._sweep()
        if self._when_full is WhenFull.EVICT:
            while len(self._entries) > self._limits.entries or self._bytes > self._limits.total_bytes:
                self._remove(next(iter(self._entries)))

    def _headers(self) -> Iterator[_Header]:
        with _spoken("open", self._folder):
            paths = [path for path in self._folder.iterdir() if path.is_file() and not path.is_symlink()]
        for path in paths:
            with _spoken("read", path):
                if _ASIDE_NAME.fullmatch(path.name):
                    path.unlink()
                elif _VALUE_NAME.fullmatch(path.name):
                    try:
                        with path.open("rb") as file:
                            yield _Header.read(file, path.name)
                    except _Damaged:
                        path.unlink()
                        self._damaged += 1


def _name(key: bytes, number: int) -> str:
    return f"{sha256(key).hexdigest()}.{number:016x}"


def _read_value(file: BinaryIO, name: str) -> bytes:
    header = _Header.read(file, name)
    value = file.read(header.size)
    if len(value) != header.size or sha256(value).digest() != header.digest:
        raise _Damaged
    return value


@contextlib.contextmanager
def _spoken(verb: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` into a `StoreError` with a sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"could not {verb} {path}: {error.strerror or error}; check the disk and who may use the folder"
        ) from error


def _make_private(folder: Path) -> None:
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for place in missing:
        sync_folder(place.parent)


def _lock_folder(folder: Path) -> int:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreError(
            f"the cache folder {folder} is in use by another process; wait for it to end or choose another folder"
        ) from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
