"""Values on a server: read whole or not at all. A writer that is killed at any point leaves the old value.

A value is one record, or a record that lists pieces (`fednode.cache.values.pieces`). A write goes:
1. The pieces are written under new names, with a short life. A writer killed here leaves pieces that expire.
2. One transaction gives the pieces the life of the value, writes the record, and lets the old pieces expire.
The server expires values; the record also has the expiry by the writer's wall clock.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from fednode.cache.backend import Limits, StoreFull, TooLarge, Value, is_number
from fednode.cache.redis.address import Names
from fednode.cache.redis.client import Link
from fednode.cache.redis.connections import Command, LinkOptions
from fednode.cache.redis.index import WrittenEntry
from fednode.cache.redis.tracking import Feed
from fednode.cache.values.codec import Undecodable, decode, encode_counted
from fednode.cache.values.pieces import (
    GENERATION_BYTES,
    HEAD_BYTES,
    PIECE_BYTES,
    Cut,
    Damaged,
    Manifest,
    check_piece_bytes,
    cut,
    encoded_limit,
    key_bytes,
)
from fednode.clock import Clock
from fednode.errors import ConfigError, StoreError

_RUN_BYTES: Final = 8 << 20
"""Bytes of pieces to send before their answers are read."""
_ATTEMPTS: Final = 16
"""How often to read a value again that others overwrite meanwhile."""
_GRACE_MS: Final = 10_000
"""How much longer pieces live than their record, so that a reader of the record finds them."""
_LONGEST_MS: Final = 10**15
_LIMITS: Final = Limits(entries=1 << 20, total_bytes=1 << 36, value_bytes=1 << 30)


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """How a `RedisBackend` uses a server. Raises `ConfigError`.

    `namespace`: a backend that pins in it must be the only one that writes there. `limits` bound what this backend
    itself stores; beyond them it refuses. `pins`: refuse a server that could evict. `orphan_seconds`: the life of
    pieces whose record is not written yet.
    """

    namespace: str
    limits: Limits = _LIMITS
    piece_bytes: int = PIECE_BYTES
    pins: bool = False
    orphan_seconds: float = 600.0
    link: LinkOptions = field(default_factory=LinkOptions)

    def __post_init__(self) -> None:
        Names(self.namespace)
        if not is_number(self.orphan_seconds) or not 1.0 <= self.orphan_seconds <= _LONGEST_MS / 1000:
            raise ConfigError(
                f"orphan_seconds is {self.orphan_seconds!r}; give at least 1 and at most {_LONGEST_MS // 1000}"
            )
        try:
            check_piece_bytes(self.piece_bytes, self.limits.value_bytes)
        except ValueError as error:
            raise ConfigError(str(error)) from error


class Lasting(NamedTuple):
    """A value and the seconds until it expires; infinite for no expiry."""

    value: Value
    seconds: float


class PreparedWrite(NamedTuple):
    """A value ready to be written under `key`, and its entry in the accounts."""

    key: str
    cut: Cut
    entry: WrittenEntry


class RedisValues:
    """Reads and writes the values of one namespace; keeps no accounts. Thread-safe."""

    def __init__(self, link: Link, options: RedisOptions, clock: Clock, draw: Callable[[int], bytes]) -> None:
        self._link = link
        self._options = options
        self._clock = clock
        self._draw = draw
        self._limit = encoded_limit(options.limits.value_bytes)
        self._orphan_ms = math.ceil(options.orphan_seconds * 1000)
        self.names = Names(options.namespace)

    def read(self, keys: Sequence[str]) -> list[Lasting | Damaged | None]:
        """For each key its value, None if it is absent or expired, or a `Damaged` (not raised)."""
        records = self._link.run([self._ask(key) for key in keys])
        return [self._understood(key, record) for key, record in zip(keys, records, strict=True)]

    def follow(self) -> Feed:
        """A connection of its own that reports every change in this namespace. Raises `StoreError`."""
        probe = self.names.probe(self._draw(GENERATION_BYTES).hex())

        def write_probe() -> None:
            self._link.run([("SET", probe, b"", "PX", 1000)])

        return Feed(self._link.track(self.names.records), self.names, write_probe)

    def living(self, keys: Iterable[str]) -> list[str]:
        """Those of `keys` that have a record that has not expired."""
        asked = tuple(keys)
        heads = self._link.run([self.head(key) for key in asked]) if asked else []
        now = self._clock.time()
        manifests = [self.manifest(head) for head in heads]
        return [key for key, one in zip(asked, manifests, strict=True) if one is not None and one.expires_at > now]

    def head(self, key: str) -> Command:
        """The command that asks for the manifest alone."""
        return ("GETRANGE", self.names.record(key), 0, HEAD_BYTES - 1)

    def manifest(self, head: Any) -> Manifest | None:
        """The manifest in an answer to `head`; None if there is none."""
        try:
            return Manifest.read(_octets(head), self._limit)
        except Damaged:
            return None

    def prepared(self, key: str, value: Value, ttl: float | None, most: int, *, pinned: bool) -> PreparedWrite:
        """Encode a value of `most` bytes at most. Raises `TooLarge`, and as `encode_counted` does."""
        data, size = encode_counted(value, most)
        if len(data) > self._limit:
            raise TooLarge(len(data), self._limit)
        life = math.inf if ttl is None else ttl
        generation = self._draw(GENERATION_BYTES)
        ready = cut(key_bytes(key), data, self._options.piece_bytes, generation, self._clock.time() + life)
        entry = WrittenEntry(size, generation, ready.manifest.count, self._clock.now() + life, pinned=pinned)
        return PreparedWrite(key, ready, entry)

    def write(self, writes: Sequence[PreparedWrite], before: Sequence[WrittenEntry | None], ttl: float | None) -> None:
        """PreparedWrite values in one transaction and remove what they replace. Raises `StoreError`, `StoreFull`.

        `before` are the writes of these keys that the caller knows of.
        """
        fresh = [self._pieces(one.key, one.cut.manifest) for one in writes]
        try:
            for names, one in zip(fresh, writes, strict=True):
                if names:
                    self._send_pieces(names, one.cut)
        except StoreError:
            self._unlink(fresh)
            raise
        commits = [self._commit(*write, ttl) for write in zip(fresh, writes, before, strict=True)]
        try:
            replies = iter(self._link.run([command for commit in commits for command in commit], atomic=True))
        except StoreFull:
            self._unlink(fresh)
            raise
        for names, one, old, commit in zip(fresh, writes, before, commits, strict=True):
            answers = list(islice(replies, len(commit)))
            if names and answers[-2] != len(names):
                self._unlink([[self.names.record(one.key), *names]])
                raise StoreError(f"the cache server lost pieces of {one.key} while it was written; try again")
            self._unlink_replaced(one, self.manifest(answers[0]), old)

    def _commit(
        self, names: Sequence[bytes], write: PreparedWrite, old: WrittenEntry | None, ttl: float | None
    ) -> list[Command]:
        """The transaction: get the old manifest, set the lives of old and new pieces, count those, write the record."""
        # the server refuses longer lives
        life_ms = None if ttl is None else math.ceil(min(ttl * 1000, _LONGEST_MS))
        life: tuple[object, ...] = () if life_ms is None else ("PX", life_ms)
        keep: list[Command] = [("PEXPIRE", piece, self._orphan_ms) for piece in self._pieces(write.key, old)]
        if life_ms is None:
            keep += [("PERSIST", piece) for piece in names]
        else:
            keep += [("PEXPIRE", piece, life_ms + _GRACE_MS) for piece in names]
        count: list[Command] = [("EXISTS", *names)] if names else []
        return [self.head(write.key), *keep, *count, ("SET", self.names.record(write.key), write.cut.record, *life)]

    def _unlink_replaced(self, write: PreparedWrite, *before: Manifest | WrittenEntry | None) -> None:
        # the manifest and the entry: a transaction sent again after a lost answer finds the manifest of its first try
        old = {one.generation: one for one in before if one is not None and one.generation != write.entry.generation}
        self._unlink([self._pieces(write.key, one) for one in old.values()])

    def delete(self, key: str, old: WrittenEntry | None) -> Manifest | None:
        """Remove a value with the pieces we know of; the manifest that was there. Raises `StoreError`."""
        # one command, so that a killed process leaves no pieces without a record
        commands = [self.head(key), ("UNLINK", self.names.record(key), *self._pieces(key, old))]
        try:
            replies = self._link.run(commands, atomic=True)
        except StoreFull:
            # a server at its maxmemory refuses a transaction, but not a deletion
            replies = self._link.run(commands)
        manifest = self.manifest(replies[0])
        if old is None or (manifest is not None and manifest.generation != old.generation):
            self._unlink([self._pieces(key, manifest)])
        return manifest

    def _pieces(self, key: str, written: WrittenEntry | Manifest | None) -> list[bytes]:
        return self.names.pieces(key, written.generation, written.count) if written and written.count else []

    def _ask(self, key: str) -> Command:
        # not more than one value may have, whatever is stored there
        return ("GETRANGE", self.names.record(key), 0, HEAD_BYTES + self._limit)

    def _understood(self, key: str, record: Any) -> Lasting | Damaged | None:
        try:
            return self._value(key, record)
        except Damaged as damage:
            return damage
        except Undecodable:
            # it is as it was written: another version may be able to decode it
            return None

    def _value(self, key: str, record: Any) -> Lasting | None:
        for _ in range(_ATTEMPTS):
            # GETRANGE answers the same for an absent key and an empty one
            if record == b"":
                return None
            manifest = Manifest.read(_octets(record), self._limit)
            seconds = manifest.expires_at - self._clock.time()
            if seconds <= 0:
                return None
            try:
                return Lasting(decode(self._joined(key, manifest, record)), seconds)
            except Damaged:
                again = self._link.run([self._ask(key)])[0] if manifest.count else record
                if again != b"" and _octets(again)[:HEAD_BYTES] == record[:HEAD_BYTES]:
                    raise
                # overwritten while its pieces were fetched: no damage
                record = again
        raise StoreError(f"the cached value {key} is overwritten faster than it can be read; give it fewer writers")

    def _joined(self, key: str, manifest: Manifest, record: bytes) -> bytes:
        owner = key_bytes(key)
        if not manifest.count:
            return manifest.inline(record, owner)
        names = self.names.pieces(key, manifest.generation, manifest.count)
        # one byte more than expected, to find a piece that is too long
        asked = zip(names, manifest.lengths, strict=True)
        pieces = self._link.run([("GETRANGE", name, 0, length) for name, length in asked])
        return manifest.join(owner, [_octets(piece) for piece in pieces])

    def _send_pieces(self, names: Sequence[bytes], ready: Cut) -> None:
        started = self._clock.now()
        per_run = max(1, _RUN_BYTES // self._options.piece_bytes)
        for start in range(0, len(names), per_run):
            batch = zip(names[start : start + per_run], ready.pieces[start : start + per_run], strict=True)
            self._link.run([("SET", name, piece, "PX", self._orphan_ms) for name, piece in batch])
            if self._clock.now() - started > self._options.orphan_seconds / 2:
                raise StoreError("the cache server took too long for the pieces of one value; raise orphan_seconds")

    def _unlink(self, values: Iterable[Sequence[bytes]]) -> None:
        """Remove the keys of each of these values, as far as the server answers."""
        for names in values:
            # pieces that cannot be removed now do no harm, and most of them expire
            with suppress(StoreError):
                if names:
                    self._link.run([("UNLINK", *names)])


def _octets(reply: Any) -> bytes:
    if not isinstance(reply, bytes):
        raise Damaged
    return reply
