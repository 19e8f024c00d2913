"""Any backend for values larger than it takes: in pieces under a manifest, all of it or a miss."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Lock
from typing import Final

from fednode.cache.backend import (
    MISSING,
    CacheBackend,
    Missing,
    StoreFull,
    TooLarge,
    Usage,
    Value,
    check_items,
    check_key,
    check_ttl,
)
from fednode.cache.files.backend import FileBackend
from fednode.cache.fork_safety import refuse_after_fork
from fednode.cache.memory.backend import MemoryBackend
from fednode.cache.values.codec import Undecodable, decode, encode_counted
from fednode.cache.values.freeze import size_of
from fednode.cache.values.pieces import (
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
from fednode.cache.wrappers.counter import EventCounter
from fednode.cache.wrappers.piece_index import ANY_BYTES, TAG, PieceIndex, piece_names, place_of, record_in
from fednode.errors import StoreError

_GRACE: Final = 10.0
"""Seconds that pieces outlive their manifest: who saw it finds them."""
_ATTEMPTS: Final = 16
_SLACK: Final = 1_000
"""Values in pieces that may be gone below before they are looked for, on top of one for each that was there."""


class Chunked:
    """A `CacheBackend` for values of up to `value_bytes`, over an `inner` that takes `piece_bytes` and a little more.

    `inner` must belong to it alone, and be empty or filled by another `Chunked`. A value of `piece_bytes` or less is
    stored as it is, a larger one as pieces and, after them, a manifest with a checksum. Where `inner` lost or changed
    a piece the value is a miss, counted in `damaged`, and the rest of it is freed. A killed process may leave pieces
    without a manifest in an `inner` that outlives it: they are freed when this is made. Over a `MemoryBackend` or
    `FileBackend` a value that does not fit beside what is pinned is refused before anything makes way; another `inner`
    that evicts may have evicted by then, the older value under that key too. `usage` is that of `inner`: each piece
    counts as an entry; `sweep` counts values. Writes take turns. Raises `ValueError` for sizes with which nothing is
    ever cut.
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
                "pieces, or use the cache without Chunked"
            )
        self._inner = inner
        self._piece_bytes = piece_bytes
        self._value_bytes = value_bytes
        self._draw = draw
        self._limit = encoded_limit(value_bytes)
        self._writing = Lock()
        self._index = PieceIndex(inner)
        self._most_split = _SLACK
        self._damaged, self._refused = EventCounter(), EventCounter()
        self._index.load()
        refuse_after_fork(self, "_writing")

    def __str__(self) -> str:
        return str(self._inner)

    def get(self, key: str) -> Value | Missing:
        """As `CacheBackend.get`."""
        return self._whole(key, self._inner.get(place_of(key)))

    def get_many(self, keys: Iterable[str]) -> dict[str, Value]:
        """As `CacheBackend.get_many`."""
        places = {key: place_of(key) for key in keys}
        found = self._inner.get_many(places.values())
        whole = ((key, self._whole(key, found.get(place, MISSING))) for key, place in places.items())
        return {key: value for key, value in whole if not isinstance(value, Missing)}

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        """As `CacheBackend.set`."""
        self._store(key, value, check_ttl(ttl), pinned=False)

    def set_many(self, items: Mapping[str, Value], ttl: float | None) -> None:
        """As `CacheBackend.set_many`, one value after the other."""
        check_items(items)
        check_ttl(ttl)
        for key, value in items.items():
            self.set(key, value, ttl)

    def pin(self, key: str, value: Value) -> None:
        """As `CacheBackend.pin`: no piece of it is evicted."""
        self._store(key, value, None, pinned=True)

    def delete(self, key: str) -> bool:
        """As `CacheBackend.delete`."""
        place = place_of(key)
        with self._changing(key):
            there = self._inner.delete(place)
            self._index.keep(key, None)
        return there

    def clear(self) -> None:
        """Forget everything."""
        with self._writing:
            self._inner.clear()
            self._index.clear()

    def sweep(self) -> int:
        """Free what has expired; the number of values freed. No work where `inner` frees nothing."""
        with self._writing:
            self._index.settle()
            freed = self._inner.sweep()
            return max(0, freed - self._drop_gone()) if freed and len(self._index) else freed

    def keys(self, prefix: str = "") -> Iterator[str]:
        """As `CacheBackend.keys`."""
        places = self._inner.keys(place_of(prefix))
        return (place[1:] for place in places)

    def usage(self) -> Usage:
        """Entries, bytes and counts of `inner`, with what was refused or damaged here."""
        inner = self._inner.usage()
        return replace(
            inner, damaged=inner.damaged + self._damaged.value, refusals=inner.refusals + self._refused.value
        )

    # --- writing, one at a time

    def _store(self, key: str, value: Value, ttl: float | None, *, pinned: bool) -> None:
        check_key(key)
        if record_in(value) is None and size_of(value) <= self._piece_bytes:
            # a value that another thread makes too large meanwhile is cut
            with suppress(TooLarge), self._changing(key):
                self._put(key, value, ttl, pinned=pinned)
                self._index.keep(key, None)
                return
        ready = self._cut(key, value)
        with self._changing(key):
            if ready.pieces:
                self._require_room(key, ready)
                self._index.begin(key, ready.manifest)
            if pinned or not self._stored_unpinned(key, ready, ttl):
                self._store_pinned(key, ready, ttl, pinned=pinned)
            self._index.keep(key, ready.manifest.generation)
            if len(self._index) > self._most_split:
                self._drop_gone()

    @contextmanager
    def _changing(self, key: str) -> Iterator[None]:
        with self._writing:
            self._index.settle()
            try:
                yield
            except StoreError:
                self._index.failed(key)
                raise

    def _cut(self, key: str, value: Value) -> Cut:
        try:
            data, _ = encode_counted(value, self._value_bytes)
            if len(data) > self._limit:
                raise TooLarge(len(data), self._limit)
        except TooLarge:
            self._refused.one()
            raise
        return cut(key_bytes(key), data, self._piece_bytes, self._draw(GENERATION_BYTES))

    def _put(self, key: str, value: Value, ttl: float | None, *, pinned: bool) -> None:
        if pinned:
            self._inner.pin(place_of(key), value)
        else:
            self._inner.set(place_of(key), value, ttl)

    def _require_room(self, key: str, ready: Cut) -> None:
        sizes = dict(zip(piece_names(key, ready.manifest), map(len, ready.pieces), strict=True))
        sizes[place_of(key)] = size_of((TAG, ready.record))
        # a backend of another kind refuses one value after the other
        inner = self._inner
        if isinstance(inner, (FileBackend, MemoryBackend)) and not inner.fits_beside_pins(sizes):
            self._refused.one()
            raise StoreFull(
                f"no room for {sum(sizes.values())} more bytes in {len(sizes)} entries beside what is pinned; try "
                "again later or raise the limits"
            )

    def _stored_unpinned(self, key: str, ready: Cut, ttl: float | None) -> bool:
        """Store it as it is; False where something was evicted meanwhile, which may have been a piece of it."""
        evictions = self._inner.usage().evictions
        for name, piece in zip(piece_names(key, ready.manifest), ready.pieces, strict=True):
            self._inner.set(name, bytes(piece), _longer(ttl))
        if self._inner.usage().evictions != evictions:
            return False
        self._inner.set(place_of(key), (TAG, ready.record), ttl)
        return not ready.pieces or self._inner.usage().evictions == evictions

    def _store_pinned(self, key: str, ready: Cut, ttl: float | None, *, pinned: bool) -> None:
        """Store it with its pieces pinned until all of it is there: some policies would let newcomers go first."""
        names = piece_names(key, ready.manifest)
        if not pinned:
            self._index.pinning(ready.manifest)
        for name, piece in zip(names, ready.pieces, strict=True):
            self._inner.pin(name, bytes(piece))
        self._put(key, (TAG, ready.record), ttl, pinned=pinned)
        if not pinned:
            # in place and of the same size: nothing makes way for them
            for name, piece in zip(names, ready.pieces, strict=True):
                self._inner.set(name, bytes(piece), _longer(ttl))

    def _drop_gone(self) -> int:
        gone = self._index.drop_gone()
        # half of them at most are gone the next time
        self._most_split = 2 * len(self._index) + _SLACK
        return gone

    # --- reading

    def _whole(self, key: str, content: Value | Missing) -> Value | Missing:
        for _ in range(_ATTEMPTS):
            record = record_in(content)
            if record is None:
                return self._gone(key) if isinstance(content, Missing) else content
            try:
                data = self._joined(key, record)
            except Damaged:
                # 1. we read the record; 2. a writer replaced it and deleted the old pieces; 3. we missed a piece.
                # Another record by now: read that one. The same record still: it is damaged
                content = self._inner.get(place_of(key))
                if record_in(content) == record:
                    return self._drop(key, record)
                continue
            return self._decoded(data)
        raise StoreError(f"the cached value {key} is overwritten faster than it can be read; give it fewer writers")

    def _decoded(self, data: bytes) -> Value | Missing:
        try:
            return decode(data)
        except Undecodable:
            # it is what was stored: a process that knows its kind may still read it
            self._damaged.one()
            return MISSING

    def _joined(self, key: str, record: bytes) -> bytes:
        manifest = Manifest.read(record, ANY_BYTES)
        if not manifest.count:
            return manifest.inline(record, key_bytes(key))
        names = piece_names(key, manifest)
        found = self._inner.get_many(names)
        pieces = [piece for name in names if isinstance(piece := found.get(name), bytes)]
        return manifest.join(key_bytes(key), pieces)

    def _gone(self, key: str) -> Missing:
        # no reader waits for a writer: it may be writing this very key for the first time
        if key in self._index and self._writing.acquire(blocking=False):
            try:
                if isinstance(self._inner.get(place_of(key)), Missing):
                    self._index.keep(key, None)
            finally:
                self._writing.release()
        return MISSING

    def _drop(self, key: str, record: bytes) -> Missing:
        with self._changing(key):
            if record_in(self._inner.get(place_of(key))) == record:
                self._damaged.one()
                self._inner.delete(place_of(key))
                self._index.keep(key, None)
        return MISSING


def _longer(ttl: float | None) -> float | None:
    return None if ttl is None else ttl + _GRACE
