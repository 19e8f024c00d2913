"""The directory of a federated task: one writer, many clients, whole batches. Pure values.

How a release and the clients interleave:

1. The node releases a version: `write` marks the copies of the changed keys as stale. It waits for nobody.
2. The next round's message names the new version, and brings each client what it lacks (`offer`).
3. The client's reply acknowledges that (`acknowledge`, `confirm`): from now on it holds these keys.
4. A client that was late for step 2 cannot read an old copy as a new one: its update names the old version, and is
   refused if that is too old (`too_old`).

Sets of keys are bits of one integer each: a release or a reply costs a few operations a client, however many keys.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, Self

from fednode.errors import PeerFault
from fednode.reasons import Reason

_HEAD: Final = Struct("<QIII")
_HEAD_BYTES: Final = _HEAD.size
_head: Final = _HEAD.unpack_from
_read: Final = int.from_bytes


def too_old(computed_from: int, current: int, bound: int) -> bool:
    """Whether an update computed from version `computed_from` is more than `bound` versions behind `current`.

    A version above `current` does not exist and is refused as well. Raises `ValueError` for a bound under 0.
    """
    if bound < 0:
        raise ValueError(f"a staleness bound of {bound} means nothing; give 0 or more versions")
    return not current - bound <= computed_from <= current


class Parcel(NamedTuple):
    """What one message asks of a client's copies, as bits of keys: `drop`, then `keep`, then take `send`."""

    number: int
    drop: int
    keep: int
    send: int


class Standing(NamedTuple):
    """What the node knows of a client's copies, as bits of keys; clients in the same situation share one object.

    `held` are confirmed at their newest version, `sent` are under way at it, `stale` may be there at an older one.
    `parcel` and `dropping` are the parts of `sent` and `stale` that the client's last parcel speaks of.
    """

    held: int = 0
    sent: int = 0
    stale: int = 0
    parcel: int = 0
    dropping: int = 0

    def written(self, keys: int) -> "Standing":
        """The standing after a new version of `keys`: all copies of them are stale."""
        held, sent = self.held & keys, self.sent & keys
        # x ^ (x & y) is x without y, and does not build the long complement of y
        return Standing(
            self.held ^ held,
            self.sent ^ sent,
            self.stale | held | sent,
            self.parcel ^ (self.parcel & keys),
            self.dropping ^ (self.dropping & keys),
        )

    def offered(self, keys: int) -> "Standing":
        """The standing once the next parcel is made: all of `keys` that are not held are sent."""
        parcel = keys ^ (keys & self.held)
        return Standing(self.held, self.sent | parcel, self.stale, parcel, self.stale)

    def acknowledged(self) -> "Standing":
        """The standing once the last parcel is acknowledged."""
        return Standing(self.held | self.parcel, self.sent ^ self.parcel, self.stale ^ self.dropping)

    def proven(self, keys: int) -> "Standing":
        """The standing once the client is known to have the newest version of `keys`, by whichever parcel."""
        rest = self.written(keys)
        return Standing(rest.held | keys, rest.sent, rest.stale ^ (rest.stale & keys), rest.parcel, rest.dropping)


@dataclass(frozen=True, slots=True)
class RoundDirectory:
    """Who holds which chunk at which version.

    `lease` is in seconds: a client that is silent for that long is forgotten, and gets everything when it comes back.
    `made` counts offers: no client gets a number twice.

    Versions are counters, one a key, kept bit by bit: `planes[i]` has the bits of the keys in whose version bit i is
    set, so a release adds one to any number of versions in a few operations.
    """

    lease: float
    keys: tuple[str, ...]
    places: Mapping[str, int]
    planes: tuple[int, ...] = ()
    standings: Mapping[str, Standing] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    leases: Mapping[str, float] = field(default_factory=dict)
    made: int = 0

    @classmethod
    def of(cls, keys: Iterable[str], lease: float) -> Self:
        """A directory of `keys` at version 0, held by nobody. Raises `ValueError` for a key that comes twice."""
        named = tuple(keys)
        places = {key: place for place, key in enumerate(named)}
        if len(places) < len(named):
            raise ValueError("a key comes twice; name each key once")
        if not (math.isfinite(lease) and lease > 0):
            raise ValueError(f"a lease of {lease} s means nothing; give seconds above 0")
        return cls(lease, named, places)

    def bits(self, keys: Iterable[str]) -> int:
        """The bits of `keys`. Raises `KeyError` for one that is not here."""
        found = 0
        for key in keys:
            found |= 1 << self.places[key]
        return found

    def names(self, bits: int) -> tuple[str, ...]:
        """The keys whose bits are set, in the order of the directory."""
        return tuple(self.keys[place] for place in _places(bits))

    def version(self, key: str) -> int:
        """The newest version of `key`."""
        place = self.places[key]
        return sum((plane >> place & 1) << bit for bit, plane in enumerate(self.planes))

    def write(self, keys: int) -> tuple[Self, dict[str, int]]:
        """A new version of each key whose bit is in `keys`; and for each client that may have one, the bits of what it
        has to drop. They go out with its next parcel.

        Raises `ValueError` for bits without a key.
        """
        if keys < 0 or keys >> len(self.keys):
            raise ValueError(f"there are bits for {len(self.keys)} keys only; make them with `bits`")
        known: dict[int, tuple[Standing, int]] = {}
        standings, news = {}, {}
        for client, before in self.standings.items():
            same = known.get(id(before))
            if same is None:
                same = known[id(before)] = before.written(keys), (before.held | before.sent) & keys
            standings[client], touched = same
            if touched:
                news[client] = touched
        planes = _counted(self.planes, keys)
        return self._with(standings, self.numbers, self.leases, self.made, planes), news

    def offer(self, clients: Iterable[str], now: float, keys: int | None = None) -> tuple[Self, dict[str, Parcel]]:
        """The next parcel for each of `clients`, about all keys or those whose bits are `keys`; leases start anew.

        Clients in the same situation get the same parcel, with the same number, so it is packed once. An earlier parcel
        that was not acknowledged is void.
        """
        wanted = (1 << len(self.keys)) - 1 if keys is None else keys
        known: dict[int, tuple[Standing, Parcel]] = {}
        standings, parcels, made = dict(self.standings), {}, self.made + 1
        for client in clients:
            before = standings.get(client, _UNKNOWN)
            same = known.get(id(before))
            if same is None:
                after = before.offered(wanted)
                parcel = Parcel(made, after.dropping, wanted & before.held, after.parcel)
                same = known[id(before)] = after, parcel
            standings[client], parcels[client] = same
        numbers = {**self.numbers, **dict.fromkeys(parcels, made)}
        leases = {**self.leases, **dict.fromkeys(parcels, now + self.lease)}
        return self._with(standings, numbers, leases, made), parcels

    def acknowledge(self, replies: Mapping[str, int], now: float) -> Self:
        """Each client of `replies` has done what the parcel of that number asks; only its last parcel counts.

        Raises `PeerFault` ("not-offered") for a parcel that was never made; nothing is acknowledged then.
        """
        known: dict[int, Standing] = {}
        standings, leases, until = dict(self.standings), dict(self.leases), now + self.lease
        for client, number in replies.items():
            if not 0 < number <= self.made:
                raise PeerFault(Reason.NOT_OFFERED, f"parcel {number}, which {client} acknowledges, was never made")
            if self.numbers.get(client) != number:
                continue
            before = standings[client]
            after = known.get(id(before))
            if after is None:
                after = known[id(before)] = before.acknowledged()
            standings[client], leases[client] = after, until
        return self._with(standings, self.numbers, leases, self.made)

    def confirm(self, client: str, keys: int, now: float) -> Self:
        """`client` has proved that it holds the newest version of `keys`, as by a signed reply to a round of them.

        This acknowledgement needs no parcel's number, and may come late.
        """
        standings = {**self.standings, client: self.standings.get(client, _UNKNOWN).proven(keys)}
        numbers = self.numbers if client in self.numbers else {**self.numbers, client: 0}
        return self._with(standings, numbers, {**self.leases, client: now + self.lease}, self.made)

    def holds(self, client: str, key: str) -> int | None:
        """The version of `key` that `client` is known to hold, which is always the newest; None if it may not."""
        standing = self.standings.get(client, _UNKNOWN)
        return self.version(key) if standing.held >> self.places[key] & 1 else None

    def waiting(self) -> dict[str, int]:
        """For each client, the bits of the keys of which it may still have an older version."""
        return {client: one.stale for client, one in self.standings.items() if one.stale}

    def expire(self, now: float) -> Self:
        """Forget the clients whose lease has run out."""
        return self._without({client for client, until in self.leases.items() if until <= now})

    def forget(self, client: str) -> Self:
        """Forget `client`: it came back empty, or lacks what it should hold."""
        return self._without({client})

    def _without(self, clients: set[str]) -> Self:
        if clients.isdisjoint(self.standings):
            return self
        standings = {client: one for client, one in self.standings.items() if client not in clients}
        numbers = {client: self.numbers[client] for client in standings}
        return self._with(standings, numbers, {client: self.leases[client] for client in standings}, self.made)

    def _with(
        self,
        standings: Mapping[str, Standing],
        numbers: Mapping[str, int],
        leases: Mapping[str, float],
        made: int,
        planes: tuple[int, ...] | None = None,
    ) -> Self:
        counted = self.planes if planes is None else planes
        return type(self)(self.lease, self.keys, self.places, counted, standings, numbers, leases, made)


_UNKNOWN: Final = Standing()


class Copies(NamedTuple):
    """The client's side: the bits of the keys that it holds, and the number of the last parcel."""

    number: int = 0
    held: int = 0

    def take(self, data: bytes, start: int = 0) -> "Copies":
        """Do what the parcel asks that `pack` wrote at `start`; an older or repeated one changes nothing.

        Raises `PeerFault`: "malformed" for anything but a parcel, "copy-missing" where a copy to be kept is not here:
        the node has to forget this client.
        """
        newest, held = self
        first = start + _HEAD_BYTES
        if len(data) < first:
            raise PeerFault(Reason.MALFORMED, "a parcel is cut off")
        number, drop, keep, send = _head(data, start)
        second = first + drop
        third = second + keep
        if len(data) != third + send:
            raise PeerFault(Reason.MALFORMED, f"a parcel of {len(data)} bytes is not as long as its sets")
        if number <= newest:
            return self
        held ^= held & _read(data[first:second], "little")
        if keep:
            kept = _read(data[second:third], "little")
            if kept & held != kept:
                raise PeerFault(
                    Reason.COPY_MISSING, "the node relies on a copy that is not here; it has to send everything"
                )
        if send:
            held |= _read(data[third:], "little")
        # the constructor of a named tuple costs three times as much
        return Copies._make((number, held))


@lru_cache(maxsize=64)
def pack(parcel: Parcel) -> bytes:
    """A parcel in little-endian bytes: its number, the lengths of its three sets, then each set as one integer."""
    # most clients of a round are told the same, in the same parcel
    sets = [bits.to_bytes((bits.bit_length() + 7) // 8, "little") for bits in parcel[1:]]
    return _HEAD.pack(parcel.number, *map(len, sets)) + b"".join(sets)


def _counted(planes: tuple[int, ...], keys: int) -> tuple[int, ...]:
    """The planes after one more for each of `keys`."""
    counted = []
    for plane in planes:
        counted.append(plane ^ keys)
        keys &= plane
    return (*counted, keys) if keys else tuple(counted)


def _places(bits: int) -> Iterator[int]:
    return (place for place, bit in enumerate(reversed(bin(bits)[2:])) if bit == "1")
