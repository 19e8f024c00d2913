"""Any backend for values larger than it takes: in pieces under a manifest, all of it or a miss."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from threading import Lock
from typing import Final

from fednode.cache.backend import (
    MISSING,
    CacheBackend,
    Missing,
    TooLarge,
    Usage,
    Value,
    check_key,
    check_ttl,
)
from fednode.cache.forked import held_by_another, mend_after_fork
from fednode.cache.memory import MemoryBackend
from fednode.cache.pieces import (
    GENERATION_BYTES,
    PIECE_BYTES,
    Cut,
    Damaged,
    Manifest,
    check_piece_bytes,
    cut,
    encoded_limit,
    key_bytes,
)
from fednode.cache.values import Undecodable, decode, encode, size_of
from fednode.errors import StoreError

_STRIPES: Final = 64
_TAG: Final = "\0pieces"
_GRACE: Final = 10.0
"""Seconds that pieces outlive their manifest: who saw it finds them."""
_ATTEMPTS: Final = 16
_SLACK: Final = 1_000
"""Values in pieces that may be gone below before they are looked for, on top of one for each that was there."""


class Chunked:
    """A `CacheBackend` for values of up to `value_bytes`, over an `inner` that takes `piece_bytes` and a little more.

    `inner` must belong to it alone, and be empty or filled by another `Chunked`. A value of `piece_bytes` or less goes
    through as it is, a larger one as pieces and, after them, a manifest with a checksum. Where `inner` lost or changed
    a piece the value is a miss, counted in `damaged`, and the rest of it is freed. A killed process may leave pieces
    without a manifest in an `inner` that outlives it: they are freed when this is made. `usage` is that of `inner`:
    each piece counts as an entry; `sweep` counts values. Raises `ValueError` for sizes with which it would never cut.
    """

    def __init__(
        self,
        inner: CacheBackend,
        piece_bytes: int = PIECE_BYTES,
        value_bytes: int = 1 << 30,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        check_piece_bytes(piece_bytes, value_bytes)
        if value_bytes < piece_bytes:
            raise ValueError(
                f"values of {value_bytes} bytes at most are never cut into pieces of {piece_bytes} bytes; give smaller "
                "pieces, or leave the cutting out"
            )
        self._inner = inner
        self._piece_bytes = piece_bytes
        self._value_bytes = value_bytes
        self._draw = draw
        self._limit = encoded_limit(value_bytes)
        self._stripes = tuple(Lock() for _ in range(_STRIPES))
        self._lock = Lock()
        # serialises those that pin for a moment: two at once might refuse each other
        self._holding = Lock()
        self._tight = False
        self._split: dict[str, Manifest] = {}
        self._most_split = _SLACK
        self._damaged = self._refused = 0
        self._load()
        mend_after_fork(self)

    def __str__(self) -> str:
        return str(self._inner)

    def get(self, key: str) -> Value | Missing:
        """As `CacheBackend.get`."""
        return self._whole(key, self._inner.get(_place(key)))

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """As `CacheBackend.get_many`."""
        wanted = tuple(dict.fromkeys(keys))
        found = self._inner.get_many(map(_place, wanted))
        whole = ((key, self._whole(key, found.get(_place(key), MISSING))) for key in wanted)
        return {key: value for key, value in whole if not isinstance(value, Missing)}

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """As `CacheBackend.set`."""
        check_ttl(ttl)
        self._store(key, value, ttl, pinned=False)

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """As `CacheBackend.set_many`; one by one, for what has pieces needs an order."""
        check_ttl(ttl)
        for key, value in items.items():
            self.set(key, value, ttl)

    def pin(self, key: str, value: Value) -> None:
        """As `CacheBackend.pin`: no piece of it is evicted."""
        self._store(key, value, None, pinned=True)

    def delete(self, key: str) -> bool:
        """As `CacheBackend.delete`."""
        with self._stripe(key):
            there = self._inner.delete(_place(key))
            self._free_split(key)
        return there

    def clear(self) -> None:
        """Forget everything."""
        with ExitStack() as stack:
            for stripe in self._stripes:
                stack.enter_context(stripe)
            self._inner.clear()
            self._split.clear()

    def sweep(self) -> int:
        """Free what has expired; the number of values freed. No work where `inner` frees nothing."""
        freed = self._inner.sweep()
        return max(0, freed - self._look_for_gone()) if freed and self._split else freed

    def keys(self, prefix: str = "") -> Iterator[str]:
        """As `CacheBackend.keys`."""
        for place in self._inner.keys(_place(prefix)):
            yield place[1:]

    def usage(self) -> Usage:
        """Entries, bytes and counts of `inner`; what was refused or damaged here is added."""
        inner = self._inner.usage()
        return replace(inner, damaged=inner.damaged + self._damaged, refusals=inner.refusals + self._refused)

    def after_fork(self) -> None:
        """In a forked child: no lock is held by a thread that is not here, and no piece of a half-written value."""
        busy = any(held_by_another(lock) for lock in (*self._stripes, self._holding))
        self._stripes = tuple(Lock() for _ in range(_STRIPES))
        self._lock, self._holding = Lock(), Lock()
        if busy and isinstance(self._inner, MemoryBackend):
            # one that another process sees too may hold a value that the parent is writing
            self._split.clear()
            self._load()

    def _store(self, key: str, value: Value, ttl: float | None, *, pinned: bool) -> None:
        size = size_of(value)
        if size > self._value_bytes:
            with self._lock:
                self._refused += 1
            raise TooLarge(size, self._value_bytes)
        if size <= self._piece_bytes and not _looks_split(value):
            with self._stripe(key):
                self._put(_place(key), value, ttl, pinned=pinned)
                self._free_split(key)
            return
        data = encode(value)
        if len(data) > self._limit:
            raise TooLarge(len(data), self._limit)
        ready = cut(key_bytes(key), data, self._piece_bytes, self._draw(GENERATION_BYTES))
        with self._stripe(key):
            self._store_pieces(key, ready, ttl, pinned=pinned)
        if len(self._split) > self._most_split:
            self._look_for_gone()

    def _put(self, place: str, value: Value, ttl: float | None, *, pinned: bool) -> None:
        if pinned:
            self._inner.pin(place, value)
        else:
            self._inner.set(place, value, ttl)

    def _store_pieces(self, key: str, ready: Cut, ttl: float | None, *, pinned: bool) -> None:
        names = _names(key, ready.manifest)
        try:
            if pinned or not self._stored_with_room(key, ready, ttl):
                self._store_held(key, ready, ttl, pinned=pinned)
        except BaseException:
            self._free(names)
            raise
        self._free_split(key)
        self._split[key] = ready.manifest

    def _stored_with_room(self, key: str, ready: Cut, ttl: float | None) -> bool:
        """Store it as it is; False where something was evicted meanwhile, which may have been a piece of it."""
        if self._tight and ready.pieces:
            # there was no room a moment ago: to try costs a write of every piece
            return False
        evictions = self._inner.usage().evictions
        for name, piece in zip(_names(key, ready.manifest), ready.pieces, strict=True):
            self._inner.set(name, bytes(piece), _longer(ttl))
        if self._inner.usage().evictions != evictions:
            return False
        self._inner.set(_place(key), (_TAG, ready.record), ttl)
        return not ready.pieces or self._inner.usage().evictions == evictions

    def _store_held(self, key: str, ready: Cut, ttl: float | None, *, pinned: bool) -> None:
        """Store it with its pieces pinned until all of it is there: some policies would let newcomers go first."""
        names = _names(key, ready.manifest)
        with self._holding:
            evictions = self._inner.usage().evictions
            for name, piece in zip(names, ready.pieces, strict=True):
                self._inner.pin(name, bytes(piece))
            self._put(_place(key), (_TAG, ready.record), ttl, pinned=pinned)
            self._tight = self._inner.usage().evictions != evictions
            if pinned:
                return
            try:
                # in place and of the same size: nothing makes way for them
                for name, piece in zip(names, ready.pieces, strict=True):
                    self._inner.set(name, bytes(piece), _longer(ttl))
            except BaseException:
                self._inner.delete(_place(key))
                raise

    def _whole(self, key: str, content: Value | Missing) -> Value | Missing:
        for _ in range(_ATTEMPTS):
            if not _looks_split(content):
                return self._gone(key) if isinstance(content, Missing) else content
            record = content[1]  # type: ignore[index]
            try:
                return decode(self._joined(key, record))
            except (Damaged, Undecodable):
                again = self._inner.get(_place(key))
                if _looks_split(again) and again[1] == record:  # type: ignore[index]
                    return self._drop(key, record)
                # overwritten while its pieces were fetched: no damage
                content = again
        raise StoreError(f"the cached value {key} is overwritten faster than it can be read; give it fewer writers")

    def _joined(self, key: str, record: bytes) -> bytes:
        manifest = Manifest.read(record, self._limit)
        if not manifest.count:
            return manifest.inline(record, key_bytes(key))
        names = _names(key, manifest)
        found = self._inner.get_many(names)
        pieces = [piece for name in names if isinstance(piece := found.get(name), bytes)]
        return manifest.join(key_bytes(key), pieces)

    def _gone(self, key: str) -> Missing:
        if key in self._split:
            with self._stripe(key):
                # nobody writes it now: it expired, or was evicted
                if isinstance(self._inner.get(_place(key)), Missing):
                    self._free_split(key)
        return MISSING

    def _drop(self, key: str, record: bytes) -> Missing:
        with self._stripe(key):
            content = self._inner.get(_place(key))
            if _looks_split(content) and content[1] == record:  # type: ignore[index]
                with self._lock:
                    self._damaged += 1
                self._inner.delete(_place(key))
                self._free_split(key)
        return MISSING

    def _look_for_gone(self) -> int:
        """Free what is left of values that expired or were evicted; how many pieces were gone already."""
        gone = 0
        there = {place[1:] for place in self._inner.keys(_place(""))}
        for key in [key for key in tuple(self._split) if key not in there]:
            with self._stripe(key):
                # nobody writes it now; a write that was under way a moment ago has put its manifest there
                if isinstance(self._inner.get(_place(key)), Missing):
                    gone += self._free_split(key)
        # half of them at most are gone the next time
        self._most_split = 2 * len(self._split) + _SLACK
        return gone

    def _free_split(self, key: str) -> int:
        """Delete the pieces that the last write of `key` left; how many were gone already."""
        manifest = self._split.pop(key, None)
        return 0 if manifest is None else self._free(_names(key, manifest))

    def _free(self, names: Iterable[str]) -> int:
        """Delete pieces; how many were gone already."""
        gone = 0
        for name in names:
            # what cannot be deleted now is in nobody's way
            with suppress(StoreError):
                gone += not self._inner.delete(name)
        return gone

    def _load(self) -> None:
        pieces: dict[str, list[str]] = {}
        for name in self._inner.keys("p"):
            pieces.setdefault(name.split(":", 2)[2], []).append(name)
        for key, names in pieces.items():
            content = self._inner.get(_place(key))
            kept: Manifest | None = None
            if _looks_split(content):
                with suppress(Damaged):
                    kept = Manifest.read(content[1], self._limit)  # type: ignore[index]
            self._free(set(names) - set(_names(key, kept) if kept else ()))
            if kept and kept.count:
                self._split[key] = kept

    def _stripe(self, key: str) -> Lock:
        return self._stripes[hash(key) % _STRIPES]


def _longer(ttl: float | None) -> float | None:
    return None if ttl is None else ttl + _GRACE


def _place(key: str) -> str:
    check_key(key)
    return "v" + key


def _names(key: str, manifest: Manifest) -> tuple[str, ...]:
    return tuple(f"p{manifest.generation.hex()}:{number}:{key}" for number in range(manifest.count))


def _looks_split(content: Value) -> bool:
    return type(content) is tuple and len(content) == 2 and content[0] == _TAG and type(content[1]) is bytes
