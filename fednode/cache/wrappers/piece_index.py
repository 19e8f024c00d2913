"""Which pieces a `Chunked` has put into its inner cache, so that none stays behind whatever a write was broken off by.

A write is noted before its first piece: what is noted and not named by the key's record is left over. All of it is
called under the key's lock, but for `open`.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from fednode.cache.backend import CacheBackend, Missing, Value, check_key
from fednode.cache.values.pieces import GENERATION_BYTES, MAX_PIECE_BYTES, MAX_PIECES, Damaged, Manifest
from fednode.errors import StoreError

TAG: Final = "\0pieces"
ANY_BYTES: Final = MAX_PIECES * MAX_PIECE_BYTES
"""What is there was taken under a limit: one that is lower now makes no damage of it."""


def place_of(key: str) -> str:
    """Where a value, or its record, lies in the inner cache. Raises `TypeError` for what is no text."""
    check_key(key)
    return "v" + key


def piece_names(key: str, manifest: Manifest) -> tuple[str, ...]:
    """Where the pieces of one write lie."""
    return tuple(f"p{manifest.generation.hex()}:{number}:{key}" for number in range(manifest.count))


def key_of_piece(name: str) -> str | None:
    """The key that a piece of this name belongs to; None for a name that no piece has."""
    generation, _, rest = name[1:].partition(":")
    number, colon, key = rest.partition(":")
    is_one = name[:1] == "p" and len(generation) == 2 * GENERATION_BYTES and number.isdecimal() and bool(colon)
    return key if is_one else None


def record_in(content: Value | Missing) -> bytes | None:
    """The record of a value in pieces, where `content` is one; None for a value that stands there itself."""
    if type(content) is not tuple or len(content) != 2:
        return None
    tag, record = content
    # types first: what `==` says of an array is no truth
    return record if type(tag) is str and tag == TAG and type(record) is bytes else None


class PieceBook:
    """The manifests whose pieces may lie in `inner`, by key. Settled: exactly those that the key's record names."""

    def __init__(self, inner: CacheBackend) -> None:
        self._inner = inner
        self._noted: dict[str, tuple[Manifest, ...]] = {}
        self._open: set[str] = set()
        self._held: set[bytes] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._noted

    def __len__(self) -> int:
        return len(self._noted)

    @property
    def keys(self) -> tuple[str, ...]:
        """Those with pieces."""
        return tuple(self._noted)

    @property
    def open(self) -> tuple[str, ...]:
        """The keys that are being written, or of which a write was broken off."""
        return tuple(self._open)

    def is_open(self, key: str) -> bool:
        """Whether `key` is one of them."""
        return key in self._open

    def begin(self, key: str) -> None:
        """The value under `key` is about to change: where it has pieces they may soon be left over."""
        if key in self._noted:
            self._open.add(key)

    def begin_pieces(self, key: str, manifest: Manifest) -> None:
        """Its pieces are about to be stored."""
        self._open.add(key)
        self._noted[key] = (*self._noted.get(key, ()), manifest)

    def hold(self, manifest: Manifest) -> None:
        """Its pieces are pinned from now on, until `let_go`; broken off in between, the value goes."""
        self._held.add(manifest.generation)

    def let_go(self, manifest: Manifest) -> None:
        """Its pieces are pinned no more."""
        self._held.discard(manifest.generation)

    def keep(self, key: str, generation: bytes | None) -> int:
        """Delete the pieces of all writes of `key` but this one; how many were gone already.

        What cannot be deleted now stays noted, and `key` open.
        """
        gone, kept, settled = 0, [], True
        for manifest in self._noted.get(key, ()):
            if manifest.generation == generation:
                kept.append(manifest)
                continue
            try:
                gone += sum([not self._inner.delete(name) for name in piece_names(key, manifest)])
                self._held.discard(manifest.generation)
            except StoreError:
                kept.append(manifest)
                settled = False
        if kept:
            self._noted[key] = tuple(kept)
        else:
            self._noted.pop(key, None)
        if settled:
            self._open.discard(key)
        return gone

    def settle(self, key: str) -> int:
        """`keep` what the record under `key` names. Raises `StoreError`."""
        manifest = self._manifest(self._inner.get(place_of(key)))
        if manifest is not None and manifest.generation in self._held:
            # some of its pieces may be pinned still, which nobody asked for
            self._inner.delete(place_of(key))
            manifest = None
        return self.keep(key, None if manifest is None else manifest.generation)

    def clear(self) -> None:
        """Nothing is in the inner cache any more."""
        self._noted.clear()
        self._open.clear()
        self._held.clear()

    def load(self) -> None:
        """Note what an earlier owner left in the inner cache, and delete the pieces that no record names."""
        pieces: dict[str, set[str]] = {}
        for name in self._inner.keys("p"):
            key = key_of_piece(name)
            if key is not None:
                pieces.setdefault(key, set()).add(name)
        for key, names in pieces.items():
            manifest = self._manifest(self._inner.get(place_of(key)))
            kept = () if manifest is None else piece_names(key, manifest)
            for name in names.difference(kept):
                # what cannot be deleted now is tried when the next owner comes
                with suppress(StoreError):
                    self._inner.delete(name)
            if manifest is not None and kept:
                self._noted[key] = (manifest,)

    def gone(self) -> Iterator[str]:
        """The keys with pieces, but without a record a moment ago: they expired, were evicted, or are being written."""
        there = {place[1:] for place in self._inner.keys(place_of(""))}
        return (key for key in self.keys if key not in there)

    def _manifest(self, content: Value | Missing) -> Manifest | None:
        record = record_in(content)
        if record is None:
            return None
        with suppress(Damaged):
            return Manifest.read(record, ANY_BYTES)
        return None
