"""Which pieces a `Chunked` has put into its inner cache, so that none stays there for good after a write that failed.

A write is noted before its first piece. Pieces that are noted, and that the key's record does not name, are leftovers.
The caller holds the lock of the cache's writers.
"""

from contextlib import suppress
from typing import Final

from fednode.cache.backend import CacheBackend, Missing, Value, check_key
from fednode.cache.values.pieces import GENERATION_BYTES, MAX_PIECE_BYTES, MAX_PIECES, Damaged, Manifest
from fednode.errors import StoreError

TAG: Final = "\0pieces"
ANY_BYTES: Final = MAX_PIECES * MAX_PIECE_BYTES
"""Limit for reading what is stored already: a limit that was lowered since does not make it damaged."""


def place_of(key: str) -> str:
    """Where a value, or its record, lies in the inner cache. Raises `TypeError` unless `key` is a str."""
    check_key(key)
    return "v" + key


def piece_names(key: str, manifest: Manifest) -> tuple[str, ...]:
    """Where the pieces of one write lie."""
    return tuple(f"p{manifest.generation.hex()}:{number}:{key}" for number in range(manifest.count))


def key_of_piece(name: str) -> str | None:
    """The key that a piece of this name belongs to; None if it is not the name of a piece."""
    generation, _, rest = name[1:].partition(":")
    number, colon, key = rest.partition(":")
    is_piece = name[:1] == "p" and len(generation) == 2 * GENERATION_BYTES and number.isdecimal() and bool(colon)
    return key if is_piece else None


def record_in(content: Value | Missing) -> bytes | None:
    """The record of a value in pieces; None for a value that is stored whole."""
    if type(content) is not tuple or len(content) != 2:
        return None
    tag, record = content
    # types first: `==` of an array gives an array
    return record if type(tag) is str and tag == TAG and type(record) is bytes else None


class PieceIndex:
    """The manifests whose pieces may lie in `inner`, by key."""

    def __init__(self, inner: CacheBackend) -> None:
        self._inner = inner
        self._noted: dict[str, tuple[Manifest, ...]] = {}
        self._unsettled: set[str] = set()
        self._pinned: set[bytes] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._noted

    def __len__(self) -> int:
        return len(self._noted)

    def begin(self, key: str, manifest: Manifest) -> None:
        """The pieces of `manifest` are about to be stored."""
        self._noted[key] = (*self._noted.get(key, ()), manifest)

    def pinning(self, manifest: Manifest) -> None:
        """Its pieces are pinned until `keep`: if the write fails before, the value is dropped."""
        self._pinned.add(manifest.generation)

    def keep(self, key: str, generation: bytes | None) -> int:
        """Delete the pieces of all writes of `key` but this one; how many were gone already.

        What cannot be deleted now is tried again by `settle`.
        """
        gone, kept = 0, []
        self._unsettled.discard(key)
        for manifest in self._noted.pop(key, ()):
            if manifest.generation != generation:
                try:
                    gone += sum([not self._inner.delete(name) for name in piece_names(key, manifest)])
                except StoreError:
                    self._unsettled.add(key)
                    kept.append(manifest)
                    continue
            else:
                kept.append(manifest)
            self._pinned.discard(manifest.generation)
        if kept:
            self._noted[key] = tuple(kept)
        return gone

    def failed(self, key: str) -> None:
        """A write of `key` ended with an error: delete its pieces now, or by the next `settle`."""
        if key in self._noted:
            self._unsettled.add(key)
            self.settle()

    def settle(self) -> None:
        """Free what failed writes left. Raises nothing: what fails again is left for the next time."""
        for key in tuple(self._unsettled):
            with suppress(StoreError):
                manifest = self._manifest(key)
                if manifest is not None and manifest.generation in self._pinned:
                    # some of its pieces may still be pinned, which nobody asked for
                    self._inner.delete(place_of(key))
                    manifest = None
                self.keep(key, None if manifest is None else manifest.generation)

    def drop_gone(self) -> int:
        """Free the pieces of values that expired or were evicted; how many pieces were gone already."""
        there = {place[1:] for place in self._inner.keys(place_of(""))}
        return sum(self.keep(key, None) for key in tuple(self._noted) if key not in there)

    def clear(self) -> None:
        """The inner cache is empty."""
        self._noted.clear()
        self._unsettled.clear()
        self._pinned.clear()

    def load(self) -> None:
        """Note what an earlier owner left in the inner cache, and delete the pieces that no record names."""
        pieces: dict[str, set[str]] = {}
        for name in self._inner.keys("p"):
            key = key_of_piece(name)
            if key is not None:
                pieces.setdefault(key, set()).add(name)
        for key, names in pieces.items():
            manifest = self._manifest(key)
            kept = () if manifest is None else piece_names(key, manifest)
            for name in names.difference(kept):
                # what cannot be deleted now is tried when the next owner comes
                with suppress(StoreError):
                    self._inner.delete(name)
            if manifest is not None and kept:
                self._noted[key] = (manifest,)

    def _manifest(self, key: str) -> Manifest | None:
        record = record_in(self._inner.get(place_of(key)))
        if record is not None:
            with suppress(Damaged):
                return Manifest.read(record, ANY_BYTES)
        return None
